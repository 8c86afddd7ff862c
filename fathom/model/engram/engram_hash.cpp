#include "fathom/model/engram/engram_hash.h"

#include <algorithm>
#include <bit>

#include "fathom/base/check.h"
#include "fathom/model/config.h"

namespace fathom {
namespace {

__extension__ typedef unsigned __int128 Wide;

uint64_t power_mod(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t result = 1;
  for (base %= modulus; exponent != 0; exponent >>= 1, base = base * base % modulus) {
    if (exponent & 1) result = result * base % modulus;
  }
  return result;
}

// Miller-Rabin; the bases 2, 3, 5 and 7 leave no liar below 3,215,031,751.
bool is_prime(uint64_t n) {
  for (const uint64_t small : {2u, 3u, 5u, 7u}) {
    if (n % small == 0) return n == small;
  }
  if (n < 2) return false;
  const int twos = std::countr_zero(n - 1);
  for (const uint64_t base : {2u, 3u, 5u, 7u}) {
    uint64_t x = power_mod(base, (n - 1) >> twos, n);
    bool composite = x != 1;
    for (int i = 0; i < twos && composite; ++i, x = x * x % n) composite = x != n - 1;
    if (composite) return false;
  }
  return true;
}

// numpy's hash of one word; the constant moves on with each call.
struct HashMix {
  uint32_t constant, factor;
  uint32_t operator()(uint32_t value) {
    value ^= constant;
    constant *= factor;
    value *= constant;
    return value ^ (value >> 16);
  }
};

}  // namespace

std::vector<int64_t> primes_from(int64_t from, int64_t count) {
  std::vector<int64_t> primes;
  primes.reserve(size_t(count));
  for (int64_t n = std::max<int64_t>(from, 2); int64_t(primes.size()) < count; ++n) {
    if (is_prime(uint64_t(n))) primes.push_back(n);
  }
  return primes;
}

std::array<uint32_t, 8> seed_sequence(uint64_t seed) {
  std::array<uint32_t, 4> pool = {};
  HashMix in{0x43b0d7e5u, 0x931e8875u};
  pool[0] = in(uint32_t(seed));
  pool[1] = in(uint32_t(seed >> 32));
  pool[2] = in(0);
  pool[3] = in(0);
  for (size_t source = 0; source < 4; ++source) {
    for (size_t target = 0; target < 4; ++target) {
      if (source == target) continue;
      const uint32_t mixed = 0xca01f9ddu * pool[target] - 0x4973f715u * in(pool[source]);
      pool[target] = mixed ^ (mixed >> 16);
    }
  }
  std::array<uint32_t, 8> words = {};
  HashMix out{0x8b51f9ddu, 0x58f38dedu};
  for (size_t i = 0; i < words.size(); ++i) words[i] = out(pool[i % 4]);
  return words;
}

Pcg64::Pcg64(uint64_t seed) {
  const auto words = seed_sequence(seed);
  std::array<uint64_t, 4> q = {};
  for (size_t i = 0; i < 4; ++i) q[i] = uint64_t(words[2 * i + 1]) << 32 | words[2 * i];
  const Word start = Word(q[0]) << 64 | q[1];
  const Word stream = Word(q[2]) << 64 | q[3];
  increment_ = stream << 1 | 1;
  step();
  state_ += start;
  step();
}

void Pcg64::step() {
  constexpr Word kMultiplier = Word(0x2360ED051FC65DA4u) << 64 | 0x4385DF649FCCF645u;
  state_ = state_ * kMultiplier + increment_;
}

uint64_t Pcg64::next() {
  step();
  return std::rotr(uint64_t(state_ >> 64) ^ uint64_t(state_), int(state_ >> 122));
}

int64_t Pcg64::below(int64_t bound) {
  const uint64_t n = uint64_t(bound);
  Wide product = Wide(next()) * n;
  if (uint64_t(product) < n) {
    const uint64_t threshold = (0 - n) % n;
    while (uint64_t(product) < threshold) product = Wide(next()) * n;
  }
  return int64_t(uint64_t(product >> 64));
}

std::vector<EngramHash> engram_hashes(const ModelConfig& config) {
  const size_t columns = size_t(engram_lookups(config));
  // The search restarts from the same number for every n-gram size and skips the primes that are taken, and they are
  // taken in order: what each column gets is simply the next prime.
  const auto primes = primes_from(config.engram_vocab_size, int64_t(columns * config.engram_layer_ids.size()));
  const int64_t bound = INT64_MAX / config.engram_compressed_vocab_size / 2;
  std::vector<EngramHash> hashes;
  for (const int layer : config.engram_layer_ids) {
    EngramHash hash;
    hash.layer = layer;
    const auto first = primes.begin() + int64_t(hashes.size() * columns);
    hash.primes.assign(first, first + int64_t(columns));
    for (const int64_t prime : hash.primes) {
      hash.offsets.push_back(hash.rows);
      hash.rows += prime;
    }
    Pcg64 random(10007 * uint64_t(layer));
    for (int i = 0; i < config.engram_max_ngram_size; ++i) hash.multipliers.push_back(2 * random.below(bound) + 1);
    hashes.push_back(std::move(hash));
  }
  return hashes;
}

void engram_rows(const EngramHash& hash, std::span<const int32_t> recent, int32_t pad, std::span<int64_t> rows) {
  check(int(rows.size()) == hash.columns(), "engram_rows writes one row number a column");
  const int heads = hash.heads();
  int64_t mixed = 0;
  bool dead = false;  // sticky: a gap hides everything older than it
  size_t column = 0;
  for (size_t i = 0; i < hash.multipliers.size(); ++i) {
    dead = dead || i >= recent.size() || recent[i] < 0;
    mixed ^= int64_t(dead ? pad : recent[i]) * hash.multipliers[i];
    if (i == 0) continue;  // there is no 1-gram
    for (int head = 0; head < heads; ++head, ++column) {
      rows[column] = hash.offsets[column] + mixed % hash.primes[column];
    }
  }
}

}  // namespace fathom
