// fathom/checkpoint/resident_set.h
// Which of many pieces of a checkpoint are in memory when they do not all fit: the decision alone, without memory and
// without a disk, so that what runs and what predicts it (model/stream_plan.h) decide alike.
//
// The newest pieces stay, and beside them a hot set of those that are used most. Recency alone fails where pieces come
// in turn, as all experts of all layers do for a long prompt: each would leave just before it is wanted again. Counts
// alone would keep what an earlier text liked. So three quarters of the limit belong to the pieces with the highest
// count of uses, a count that halves while every piece is used four times on average; the rest belongs to the newest.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace fathom {

/// One thread at a time. A use costs O(1), and now and then O(pieces).
class ResidentSet {
 public:
  /// `piece_bytes` [pieces]; at least the largest piece must fit the limit.
  ResidentSet(std::span<const int64_t> piece_bytes, int64_t limit_bytes);

  enum class Answer { resident, admitted, full };
  /// Counts a use and holds the piece until release().
  ///   resident  it is in
  ///   admitted  it counts as in from now on; `evicted` got the pieces that leave for it
  ///   full      nothing was changed: it does not fit beside what is held; release something first
  Answer use(int32_t piece, std::vector<int32_t>& evicted);
  void release(int32_t piece);

  bool resident(int32_t piece) const { return entries_[size_t(piece)].resident; }
  int64_t bytes() const { return bytes_; }
  int64_t limit_bytes() const { return limit_; }
  int64_t hot_bytes() const { return hot_bytes_; }

 private:
  struct Entry {
    int64_t bytes = 0;
    double heat = 0;  // uses, each aged since; as of `used`
    int64_t used = 0;
    int32_t before = -1, after = -1;  // in the list of resident pieces that are not hot, oldest first
    int32_t held = 0;
    bool resident = false, hot = false;
  };
  double aged(double heat, int64_t since) const;
  double heat_now(const Entry& entry) const { return aged(entry.heat, entry.used); }
  void count(Entry& entry);
  void link_newest(int32_t piece);
  void unlink(int32_t piece);
  bool make_room(int64_t bytes, std::vector<int32_t>& evicted);
  void evict(int32_t piece, std::vector<int32_t>& evicted);
  int32_t coldest() const;
  void consider_hot(int32_t piece);

  std::vector<Entry> entries_;  // [pieces], and one that closes the ring of the list
  int64_t limit_, hot_limit_ = 0, bytes_ = 0, hot_bytes_ = 0;
  int64_t loose_bytes_ = 0;  // in the list and not held: may leave at once
  int64_t held_ = 0;         // pieces
  int64_t clock_ = 0;        // uses so far
  // No hot piece that nobody holds is colder than this, as of `bound_at_`: most uses end without a look at all of them.
  mutable double bound_ = 0;
  mutable int64_t bound_at_ = 0;
};

}  // namespace fathom
