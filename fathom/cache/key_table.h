// fathom/cache/key_table.h
// From a prefix key to a number: open addressing, linear probing. Keys are hashes already, so their first bytes are the
// place. Keys are unique.
#pragma once
#include <cstring>
#include <vector>

#include "fathom/cache/prefix_key.h"

namespace fathom {

/// Values are positive; 0 stands for "not there". O(1) each; allocates only when it grows beyond every earlier size.
class KeyTable {
 public:
  explicit KeyTable(int64_t expected = 0);

  int32_t find(const PrefixKey& key) const { return places_[place_of(key)].value; }
  /// The key is not there.
  void insert(const PrefixKey& key, int32_t value);
  /// The key is there.
  void assign(const PrefixKey& key, int32_t value);
  void erase(const PrefixKey& key);
  int64_t size() const { return size_; }

 private:
  struct Place {
    PrefixKey key;
    int32_t value = 0;  // 0: empty
  };
  size_t home_of(const PrefixKey& key) const {
    uint64_t word = 0;
    std::memcpy(&word, key.bytes.data(), sizeof word);
    return size_t(word) & (places_.size() - 1);
  }
  size_t place_of(const PrefixKey& key) const;  // where it is, or the empty place where it would be
  void grow();

  std::vector<Place> places_;  // a power of two, at most half full
  int64_t size_ = 0;
};

}  // namespace fathom
