#include "fathom/cache/key_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace fathom {
namespace {

// Keys of few different first bytes, so that runs are long, wrap around, and lose members in their middle.
TEST(KeyTable, IsAMapWhateverIsInsertedAndErased) {
  std::mt19937 random(4);
  KeyTable table;
  std::map<std::array<uint8_t, 16>, int32_t> truth;
  for (int step = 0; step < 100'000; ++step) {
    PrefixKey key;
    key.bytes[0] = uint8_t(250 + random() % 6);
    key.bytes[1] = 255;
    key.bytes[15] = uint8_t(random() % 40);
    const auto at = truth.find(key.bytes);
    ASSERT_EQ(table.find(key), at == truth.end() ? 0 : at->second) << step;
    if (at == truth.end()) {
      truth[key.bytes] = step + 1;
      table.insert(key, step + 1);
    } else if (random() % 3 == 0) {
      at->second = step + 1;
      table.assign(key, step + 1);
    } else {
      truth.erase(at);
      table.erase(key);
    }
    ASSERT_EQ(table.size(), int64_t(truth.size()));
  }
  for (const auto& [bytes, value] : truth) EXPECT_EQ(table.find({bytes}), value);
}

}  // namespace
}  // namespace fathom
