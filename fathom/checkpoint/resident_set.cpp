#include "fathom/checkpoint/resident_set.h"

#include <algorithm>
#include <cmath>

#include "fathom/base/check.h"

namespace fathom {
namespace {

constexpr double kHotShare = 0.75;
constexpr int64_t kLoosePieces =
    8;                              // at least so many have room beside the hot set: what is in use and what comes next
constexpr double kUsesToHalve = 4;  // of each piece on average
// So many aged uses more than the coldest hot piece make a piece hot. Pieces that come in turn differ by one, by whose
// turn it was last; to trade places for that would bring the turn's order back in.
constexpr double kHotter = 1.5;

}  // namespace

ResidentSet::ResidentSet(std::span<const int64_t> piece_bytes, int64_t limit_bytes)
    : entries_(piece_bytes.size() + 1), limit_(limit_bytes) {
  int64_t largest = 0;
  for (size_t i = 0; i < piece_bytes.size(); ++i) {
    entries_[i].bytes = piece_bytes[i];
    largest = std::max(largest, piece_bytes[i]);
  }
  check(largest <= limit_, "the largest piece fits the limit");
  hot_limit_ = std::max<int64_t>(0, std::min(int64_t(kHotShare * double(limit_)), limit_ - kLoosePieces * largest));
  const auto ring = int32_t(piece_bytes.size());
  entries_.back().before = entries_.back().after = ring;
}

double ResidentSet::aged(double heat, int64_t since) const {
  const double uses_of_each = double(clock_ - since) / double(entries_.size() - 1);
  return heat * std::exp2(-uses_of_each / kUsesToHalve);
}

void ResidentSet::count(Entry& entry) {
  ++clock_;
  entry.heat = heat_now(entry) + 1;
  entry.used = clock_;
}

void ResidentSet::link_newest(int32_t piece) {
  const auto ring = int32_t(entries_.size() - 1);
  Entry &entry = entries_[size_t(piece)], &end = entries_.back();
  entry.before = end.before;
  entry.after = ring;
  entries_[size_t(end.before)].after = piece;
  end.before = piece;
}

void ResidentSet::unlink(int32_t piece) {
  const Entry& entry = entries_[size_t(piece)];
  entries_[size_t(entry.before)].after = entry.after;
  entries_[size_t(entry.after)].before = entry.before;
}

void ResidentSet::evict(int32_t piece, std::vector<int32_t>& evicted) {
  Entry& entry = entries_[size_t(piece)];
  if (entry.hot) {
    hot_bytes_ -= entry.bytes;
  } else {
    unlink(piece);
    loose_bytes_ -= entry.bytes;
  }
  entry.hot = entry.resident = false;
  bytes_ -= entry.bytes;
  evicted.push_back(piece);
}

// Of the hot pieces that nobody holds; -1: none.
int32_t ResidentSet::coldest() const {
  int32_t found = -1;
  double least = 0;
  for (size_t i = 0; i + 1 < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (!entry.hot || entry.held > 0) continue;
    const double heat = heat_now(entry);
    if (found < 0 || heat < least) found = int32_t(i), least = heat;
  }
  bound_ = found < 0 ? 0 : least;
  bound_at_ = clock_;
  return found;
}

// Hot pieces leave only when nothing is held: otherwise waiting for a release costs less than reading them again.
bool ResidentSet::make_room(int64_t bytes, std::vector<int32_t>& evicted) {
  if (bytes_ + bytes - loose_bytes_ > limit_ && held_ > 0) return false;
  for (int32_t piece = entries_.back().after; bytes_ + bytes > limit_ && piece != int32_t(entries_.size() - 1);) {
    const int32_t next = entries_[size_t(piece)].after;
    if (entries_[size_t(piece)].held == 0) evict(piece, evicted);
    piece = next;
  }
  while (bytes_ + bytes > limit_) evict(coldest(), evicted);
  return true;
}

void ResidentSet::consider_hot(int32_t piece) {
  Entry& entry = entries_[size_t(piece)];
  if (entry.bytes > hot_limit_) return;
  if (hot_bytes_ + entry.bytes > hot_limit_) {
    if (entry.heat < aged(bound_, bound_at_) + kHotter) return;
    const int32_t colder = coldest();
    if (colder < 0) return;
    Entry& other = entries_[size_t(colder)];
    if (heat_now(other) + kHotter > entry.heat || hot_bytes_ - other.bytes + entry.bytes > hot_limit_) return;
    other.hot = false;
    hot_bytes_ -= other.bytes;
    link_newest(colder);
    loose_bytes_ += other.bytes;
  }
  unlink(piece);
  entry.hot = true;
  hot_bytes_ += entry.bytes;
  bound_ = std::min(aged(bound_, bound_at_), entry.heat);
  bound_at_ = clock_;
}

ResidentSet::Answer ResidentSet::use(int32_t piece, std::vector<int32_t>& evicted) {
  Entry& entry = entries_[size_t(piece)];
  const bool was_resident = entry.resident;
  if (was_resident) {
    if (!entry.hot) {
      if (entry.held == 0) loose_bytes_ -= entry.bytes;
      unlink(piece);
    }
  } else {
    if (!make_room(entry.bytes, evicted)) return Answer::full;
    entry.resident = true;
    bytes_ += entry.bytes;
  }
  if (!entry.hot) link_newest(piece);
  if (entry.held++ == 0) ++held_;
  count(entry);
  if (!entry.hot) consider_hot(piece);
  return was_resident ? Answer::resident : Answer::admitted;
}

void ResidentSet::release(int32_t piece) {
  Entry& entry = entries_[size_t(piece)];
  check(entry.held > 0, "a piece that is released is held");
  if (--entry.held > 0) return;
  --held_;
  if (!entry.hot) loose_bytes_ += entry.bytes;
}

}  // namespace fathom
