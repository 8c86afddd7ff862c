// fathom/model/engram/engram_hash.h
// The constants of Engram's hash function, and the function. They are not in the checkpoint: they follow from the
// configuration by a search for primes and by numpy's default generator, and one wrong bit makes every lookup wrong.
// Source: spec/model.md 9.2 to 9.4; test vectors 16.1 to 16.3.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace fathom {

struct ModelConfig;

/// Hash constants of one Engram layer. Columns are ordered n-gram size first, head second.
struct EngramHash {
  int layer = 0;
  std::vector<int64_t> multipliers;  // [max n-gram size], odd
  std::vector<int64_t> primes;       // [columns] buckets of a column
  std::vector<int64_t> offsets;      // [columns] first row of a column: the sum of the primes before it
  int64_t rows = 0;                  // of the table: the sum of all primes

  int columns() const { return int(primes.size()); }
  int heads() const { return columns() / (int(multipliers.size()) - 1); }
};

/// A compressed id that stands for "nothing here": a position inside an image span. It and everything older read as
/// pad.
inline constexpr int32_t kDeadId = -1;

/// One entry for each Engram layer, in the order of the configuration.
std::vector<EngramHash> engram_hashes(const ModelConfig& config);

/// Row numbers that position p looks up.
///   recent  compressed ids of positions p, p-1, p-2, ...; shorter than the longest n-gram at the start of a sequence
///   pad     compressed id of engram_pad_token_id
///   rows    [columns] written whole, each in [0, hash.rows)
/// Ids are in [0, compressed vocabulary), or kDeadId. Pure.
void engram_rows(const EngramHash& hash, std::span<const int32_t> recent, int32_t pad, std::span<int64_t> rows);

// ---------------------------------------------------------------- the pieces, for tests
/// The `count` smallest primes that are not below `from` (at most 2^31).
std::vector<int64_t> primes_from(int64_t from, int64_t count);
/// Words 0 to 7 that numpy's SeedSequence(seed) generates.
std::array<uint32_t, 8> seed_sequence(uint64_t seed);
/// numpy's default_rng(seed).
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed);
  uint64_t next();
  /// integers(0, bound) for a bound above 2^32.
  int64_t below(int64_t bound);

 private:
  void step();
  __extension__ typedef unsigned __int128 Word;
  Word state_ = 0, increment_ = 0;
};

}  // namespace fathom
