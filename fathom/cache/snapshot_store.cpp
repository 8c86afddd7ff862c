#include "fathom/cache/snapshot_store.h"

#include <algorithm>

#include "fathom/base/check.h"

namespace fathom {

int64_t SnapshotStore::bytes_of(const Entry& entry) {
  return int64_t(entry.bytes.size() + entry.root.size() + entry.ids.size() * sizeof(int32_t) +
                 entry.images.size() * sizeof(ImageSpan));
}

bool SnapshotStore::confirms(const Entry& entry, const PrefixIndex& index, const PrefixChain& chain,
                             std::span<const int32_t> ids) const {
  const auto images = images_in(chain.images, 0, int64_t(ids.size()));
  const auto same = [](const ImageSpan& a, const ImageSpan& b) { return a.first == b.first && a.digest == b.digest; };
  return std::ranges::equal(entry.root, index.identity_of(chain.root)) && std::ranges::equal(entry.ids, ids) &&
         std::ranges::equal(entry.images, images, same);
}

void SnapshotStore::append(int32_t at) {
  Entry& entry = entries_[size_t(at)];
  entry.previous = tail_;
  entry.next = 0;
  entry.used = now_;
  (tail_ != 0 ? entries_[size_t(tail_)].next : head_) = at;
  tail_ = at;
}

void SnapshotStore::unlink(int32_t at) {
  const Entry& entry = entries_[size_t(at)];
  (entry.previous != 0 ? entries_[size_t(entry.previous)].next : head_) = entry.next;
  (entry.next != 0 ? entries_[size_t(entry.next)].previous : tail_) = entry.previous;
}

void SnapshotStore::remove(int32_t at) {
  unlink(at);
  Entry& entry = entries_[size_t(at)];
  table_.erase(entry.key);
  bytes_ -= bytes_of(entry);
  std::vector<uint8_t> frame = std::move(entry.bytes);
  entry = {};
  entry.bytes = std::move(frame);
  entry.next = free_;
  free_ = at;
}

bool SnapshotStore::put(const PrefixIndex& index, PrefixChain& chain, std::span<const int32_t> ids, int64_t position,
                        const std::function<void(std::span<uint8_t>)>& fill) {
  check(position > 0 && position % kBlockTokens == 0 && position <= int64_t(ids.size()),
        "a snapshot lies between two full blocks");
  if (chain.root == 0) return false;
  index.extend_keys(chain, ids, position / kBlockTokens);
  const PrefixKey& key = chain.keys[size_t(position / kBlockTokens) - 1];
  const auto prefix = ids.first(size_t(position));
  if (const int32_t at = table_.find(key); at != 0) {
    Entry& entry = entries_[size_t(at)];
    if (!confirms(entry, index, chain, prefix)) return false;
    if (chain.seams < entry.seams) {
      fill(entry.bytes);
      entry.seams = chain.seams;
    }
    unlink(at);
    append(at);
    return true;
  }
  const auto identity = index.identity_of(chain.root);
  const auto images = images_in(chain.images, 0, position);
  const int64_t needed = snapshot_bytes_ + int64_t(identity.size() + prefix.size_bytes() + images.size_bytes());
  if (needed > limits_.budget_bytes) return false;
  for (; bytes_ + needed > limits_.budget_bytes; ++statistics_.evicted) remove(head_);
  int32_t at = free_;
  if (at != 0) {
    free_ = entries_[size_t(at)].next;
  } else {
    at = int32_t(entries_.size());
    entries_.emplace_back().bytes.resize(size_t(snapshot_bytes_));
  }
  Entry& entry = entries_[size_t(at)];
  entry.key = key;
  entry.root.assign(identity.begin(), identity.end());
  entry.ids.assign(prefix.begin(), prefix.end());
  entry.images.assign(images.begin(), images.end());
  entry.seams = chain.seams;
  fill(entry.bytes);
  bytes_ += bytes_of(entry);
  table_.insert(key, at);
  append(at);
  ++statistics_.put;
  return true;
}

std::optional<SnapshotView> SnapshotStore::latest(const PrefixIndex& index, PrefixChain& chain,
                                                  std::span<const int32_t> ids, SnapshotRange range, bool exact_only) {
  if (chain.root == 0 || range.lowest > range.highest) return {};
  index.extend_keys(chain, ids, range.highest / kBlockTokens);
  for (int64_t position = range.highest; position >= range.lowest; position -= kBlockTokens) {
    const int32_t at = table_.find(chain.keys[size_t(position / kBlockTokens) - 1]);
    if (at == 0) continue;
    const Entry& entry = entries_[size_t(at)];
    if ((exact_only && entry.seams > 0) || !confirms(entry, index, chain, ids.first(size_t(position)))) continue;
    unlink(at);
    append(at);
    ++statistics_.found;
    return SnapshotView{position, entry.seams, entry.bytes};
  }
  ++statistics_.missed;
  return {};
}

void SnapshotStore::drop(const PrefixKey& key) {
  if (const int32_t at = table_.find(key); at != 0) remove(at);
}

void SnapshotStore::advance(std::chrono::seconds now) {
  now_ = std::max(now_, now);
  for (; head_ != 0 && entries_[size_t(head_)].used + limits_.time_to_live < now_; ++statistics_.expired) remove(head_);
}

Result<void> SnapshotStore::verify() const {
  const auto wrong = [](const char* what, int64_t at) {
    return Error{ErrorCode::failed, std::string("snapshot store is inconsistent: ") + what,
                 "snapshot " + std::to_string(at), ""};
  };
  int64_t bytes = 0, count = 0, previous = 0;
  std::vector<bool> seen(entries_.size(), false);
  for (int32_t at = head_; at != 0; at = entries_[size_t(at)].next) {
    const Entry& entry = entries_[size_t(at)];
    if (seen[size_t(at)]) return wrong("the list has a cycle", at);
    seen[size_t(at)] = true;
    if (entry.previous != previous) return wrong("the list is not linked both ways", at);
    if (table_.find(entry.key) != at) return wrong("its key leads elsewhere", at);
    if (entry.ids.empty() || entry.ids.size() % kBlockTokens != 0) return wrong("it lies inside a block", at);
    if (int64_t(entry.bytes.size()) != snapshot_bytes_) return wrong("it has another size", at);
    bytes += bytes_of(entry);
    ++count;
    previous = at;
  }
  for (int32_t at = free_; at != 0; at = entries_[size_t(at)].next) {
    if (seen[size_t(at)]) return wrong("free and in use, or free twice", at);
    seen[size_t(at)] = true;
  }
  if (std::count(seen.begin() + 1, seen.end(), false) != 0) return wrong("some are lost", 0);
  if (tail_ != previous || count != table_.size() || bytes != bytes_) return wrong("the counts do not add up", 0);
  if (bytes_ > limits_.budget_bytes) return wrong("it takes more than its budget", 0);
  return {};
}

}  // namespace fathom
