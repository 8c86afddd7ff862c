// fathom/backend/cpu/decoded_keys.h
// Cached rows as numbers, kept while neighbouring rows of one sequence need them: they share almost all of their window
// and most of their entries, so each is decoded once. What is kept does not change a value, only who decodes it.
#pragma once
#include <type_traits>
#include <vector>

#include "fathom/backend/cpu/key_tile.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {

/// Of one thread, in the type of a key that the tiles read. Two kinds of keys: 0 window positions, 1 entries.
template <class Tiles>
class DecodedKeys {
 public:
  using Key = typename Tiles::Key;

  /// Starts anew, for `rows` rows of one sequence of which none needs more than `most` keys at a time. Window
  /// positions are not below `origin`.
  void begin(int64_t channels, int64_t most, int64_t rows, int64_t origin) {
    // A core's second-level cache holds what is kept; a row alone keeps nothing.
    constexpr int64_t kKept = 256 * 1024 / int64_t(sizeof(Key));
    lookup_ = rows > 1;
    channels_ = channels;
    stride_ = Tiles::key_elements(channels);
    capacity_ = lookup_ ? std::max(most + most / 4, kKept / stride_) : most;
    origin_[0] = origin;
    memory_ = numbers_.get<Key>(capacity_ * stride_);
    forget();
  }
  void forget() { first_ = next_; }

  /// The numbers of a key, valid until the next `forget` or `begin`; null when there is no room. `bytes()` is where its
  /// encoded row lies.
  template <class Bytes>
  [[gnu::always_inline]] inline const Key* find(int kind, int64_t id, RowFormat format, const Bytes& bytes) {
    int64_t* const at = lookup_ ? &place(kind, id - origin_[kind]) : nullptr;
    if (at != nullptr && *at >= first_) return memory_ + (*at - first_) * stride_;
    if (next_ - first_ == capacity_) return nullptr;
    if (at != nullptr) *at = next_;
    Key* key = memory_ + (next_++ - first_) * stride_;
    if constexpr (std::is_same_v<Key, float>) {
      decode_key<Tiles>(format, bytes(), channels_, key);
    } else {
      Tiles::decode(format, bytes(), channels_, key);
    }
    return key;
  }

 private:
  int64_t& place(int kind, int64_t index) {
    std::vector<int64_t>& places = places_[kind];
    if (index >= int64_t(places.size())) grow(places, index);
    return places[size_t(index)];
  }
  [[gnu::noinline]] static void grow(std::vector<int64_t>& places, int64_t index) {
    places.resize(size_t(index + index / 2 + 64), -1);
  }

  std::vector<int64_t> places_[2];  // by kind and id: when it was decoded, counted over the life of the thread
  int64_t origin_[2] = {0, 0};
  int64_t first_ = 0, next_ = 0;                      // those decoded since `forget`
  int64_t channels_ = 0, stride_ = 0, capacity_ = 0;  // stride: of keys
  bool lookup_ = false;
  Scratch numbers_;
  Key* memory_ = nullptr;
};

}  // namespace fathom::cpu
