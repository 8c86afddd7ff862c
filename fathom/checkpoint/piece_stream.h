// fathom/checkpoint/piece_stream.h
// Pieces of mapped files that do not all fit in memory, brought there before they are read. The pages are those of the
// page cache: this class decides which of them stay mapped (resident_set.h), has the others read as soon as they are
// wanted, by threads of its own, and gives back what leaves. The reader works on one piece while the disk reads the
// next ones. Pieces of 8 MiB or more lie in huge pages where the kernel has them.
//
//   stream.want(pieces);                                     the disk begins
//   ...                                                      work that needs none of them
//   while ((p = stream.next()) >= 0) { read p; stream.release(p); }
//
// Whether a page is there never changes what is read, only how long it takes.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fathom/base/mapped_file.h"

namespace fathom {

/// A part of a mapping; a piece is a list of them.
struct MappedRange {
  const MappedFile* file = nullptr;
  std::span<const uint8_t> bytes;
};

/// Pages that a piece takes: the whole ones that its ranges touch, huge ones for a piece of 8 MiB or more. A page that
/// two pieces share counts for both, so a limit is kept and not quite used.
int64_t piece_page_bytes(std::span<const MappedRange> piece);

struct StreamOptions {
  int64_t limit_bytes = 0;  // of pieces that stay mapped; at least the largest piece
  bool drop_behind =
      false;  // what leaves also leaves the page cache: for measurements, and where others need the memory
};

/// Since the start, but for resident_bytes. Any of them may be a step old.
struct StreamStatistics {
  int64_t uses = 0;          // pieces handed out by next()
  int64_t hits = 0;          // of them, resident when they were wanted
  int64_t loaded_bytes = 0;  // of the others
  int64_t disk_bytes = 0;    // of those, not in the page cache: what the disk read; all where the kernel does not say
  int64_t evictions = 0;     // pieces
  int64_t waits = 0;         // calls of next() that had to wait
  double wait_seconds = 0;   // in them
  // Of experts in host memory (model/moe/expert_slots.h). Nobody counts the seconds that a device waits for copies.
  bool over_bus = false;  // copied into a device's memory instead of mapped; then `waits` counts products behind copies
  int64_t guesses = 0;    // copies that began before a gate had chosen
  int64_t guesses_used = 0;    // of them, wanted then
  int64_t resident_bytes = 0;  // now
  int64_t limit_bytes = 0;
};

/// One caller; statistics() from any thread. The mappings must outlive it.
class PieceStream {
 public:
  static constexpr int64_t kHugePieceBytes = int64_t(8) << 20;  // from here on a piece lies in huge pages

  /// `pieces` [n], each at least one range. Starts its threads. Reads nothing yet.
  PieceStream(std::vector<std::vector<MappedRange>> pieces, const StreamOptions& options);
  ~PieceStream();
  PieceStream(const PieceStream&) = delete;
  PieceStream& operator=(const PieceStream&) = delete;

  /// Pieces that a later want() will probably name, in the order in which it will: read as far as there is room, while
  /// nothing is wanted. Replaces an earlier guess.
  void expect(std::span<const int32_t> pieces);
  /// Distinct pieces, each of which next() will hand out once. Everything wanted before has been handed out and
  /// released.
  void want(std::span<const int32_t> pieces);
  /// A wanted piece whose pages are mapped: those that were resident first, then as they come from the disk. Waits when
  /// none is ready. -1: all have been handed out. A piece beyond what fits at once is read after a release.
  int32_t next();
  void release(int32_t piece);

  StreamStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom
