#include "fathom/cache/key_table.h"

#include <algorithm>
#include <bit>

#include "fathom/base/check.h"

namespace fathom {

KeyTable::KeyTable(int64_t expected) : places_(std::bit_ceil(size_t(std::max<int64_t>(8, 2 * expected)))) {}

size_t KeyTable::place_of(const PrefixKey& key) const {
  size_t at = home_of(key);
  while (places_[at].value != 0 && places_[at].key != key) at = (at + 1) & (places_.size() - 1);
  return at;
}

void KeyTable::grow() {
  std::vector<Place> old(2 * places_.size());
  old.swap(places_);
  for (const Place& place : old) {
    if (place.value != 0) places_[place_of(place.key)] = place;
  }
}

void KeyTable::insert(const PrefixKey& key, int32_t value) {
  check(value > 0, "a key names something");
  if (2 * (size_ + 1) > int64_t(places_.size())) grow();
  Place& place = places_[place_of(key)];
  check(place.value == 0, "a key is inserted once");
  place = {key, value};
  ++size_;
}

void KeyTable::assign(const PrefixKey& key, int32_t value) {
  Place& place = places_[place_of(key)];
  check(place.value != 0 && value > 0, "only a key that is there gets another value");
  place.value = value;
}

// Closes the gap: whatever lies behind it in the same run and would no longer be found moves into it.
void KeyTable::erase(const PrefixKey& key) {
  const size_t mask = places_.size() - 1;
  size_t gap = place_of(key);
  check(places_[gap].value != 0, "only a key that is there is erased");
  for (size_t at = (gap + 1) & mask; places_[at].value != 0; at = (at + 1) & mask) {
    const size_t home = home_of(places_[at].key);
    if (((at - home) & mask) < ((at - gap) & mask)) continue;  // its home lies behind the gap
    places_[gap] = places_[at];
    gap = at;
  }
  places_[gap].value = 0;
  --size_;
}

}  // namespace fathom
