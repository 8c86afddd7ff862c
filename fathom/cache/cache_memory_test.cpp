// The bytes: where blocks and slots lie, and the property that makes rejected drafts cheap.
#include "fathom/cache/cache_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "fathom/cache/replay.h"

namespace fathom {
namespace {

std::vector<PageSpec> specs(int ring) {
  return {{"latent.0", 36, 2, {}}, {"index_keys.0", 8, 1, {}}, {"ring.0", 8, 1, ring}, {"ring.1", 24, 1, ring}};
}

CacheMemory memory_of(int ring, int32_t blocks, int32_t slots) {
  auto memory = CacheMemory::allocate(reference_backend().memory, lay_out(specs(ring)), blocks, slots);
  EXPECT_TRUE(memory.ok());
  return std::move(*memory);
}

TEST(CacheMemory, EveryEntryHasItsOwnBytes) {
  CacheMemory memory = memory_of(5, 3, 2);
  std::vector<int32_t> table = {1, 2, 3};
  const View<const int32_t, 2> blocks(table.data(), {1, 3});
  std::vector<int32_t> slots = {1, 2};
  const View<const int32_t, 1> slot_view(slots.data(), {2});
  std::vector<std::pair<uint8_t*, int>> places;  // start, length
  for (size_t spec = 0; spec < 2; ++spec) {
    const PagedRegion region = memory.paged(spec, blocks);
    EXPECT_EQ(region.entries_per_block, kBlockTokens / specs(5)[spec].tokens_per_entry);
    for (int64_t e = 0; e < 3 * region.entries_per_block; ++e)
      places.push_back({region.entry(0, e), region.entry_bytes});
  }
  for (size_t spec = 2; spec < 4; ++spec) {
    const RingRegion region = memory.ring(spec, slot_view);
    for (int64_t s = 0; s < 2; ++s) {
      for (int64_t p = 0; p < 5; ++p) places.push_back({region.entry(s, p), region.entry_bytes});
      EXPECT_EQ(region.entry(s, 7), region.entry(s, 2));  // position modulo capacity
    }
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i) ASSERT_GE(places[i].first, places[i - 1].first + places[i - 1].second);
}

TEST(CacheMemory, FreshMemoryIsZeroAndCopiesAreWhole) {
  CacheMemory memory = memory_of(5, 2, 2);
  std::vector<int32_t> one = {1}, two = {2};
  const View<const int32_t, 2> from(one.data(), {1, 1}), to(two.data(), {1, 1});
  const View<const int32_t, 1> slot_from(one.data(), {1}), slot_to(two.data(), {1});
  for (int64_t e = 0; e < 128; ++e) {
    EXPECT_EQ(memory.paged(1, from).entry(0, e)[7], 0);
    memory.paged(1, from).entry(0, e)[7] = uint8_t(e + 1);
  }
  memory.ring(3, slot_from).entry(0, 4)[23] = 9;
  memory.copy_block(1, 2);
  memory.copy_slot(1, 2);
  for (int64_t e = 0; e < 128; ++e) EXPECT_EQ(memory.paged(1, to).entry(0, e)[7], uint8_t(e + 1));
  EXPECT_EQ(memory.ring(3, slot_to).entry(0, 4)[23], 9);
}

TEST(CacheMemory, ASizeThatNoMachineHasIsRefusedWithItsBytes) {
  CacheLayout layout = lay_out(specs(5));
  layout.block_bytes = int64_t(1) << 50;
  const auto memory = CacheMemory::allocate(reference_backend().memory, layout, 1 << 10, 1);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::out_of_memory);
}

// W + B places hold the last W positions after any k <= B rows have been taken back, however the rows came:
// prompt chunks of any length, decode rounds of up to B rows, rollbacks after each of them. Rows are written by the
// operation.
TEST(CacheMemory, ARingStillHoldsItsWindowAfterRejectedTokens) {
  const Operations ops = reference_operations();
  const auto queue = reference_backend().open_queue(1);
  ASSERT_TRUE(queue.ok());
  std::mt19937 random(3);
  for (int trial = 0; trial < 600; ++trial) {
    const int window = int(random() % 12) + 1, backtrack = int(random() % 7) + 1;
    CacheMemory memory = memory_of(window + backtrack, 1, 1);
    std::vector<int32_t> slot = {1};
    const RingRegion ring = memory.ring(2, View<const int32_t, 1>(slot.data(), {1}));
    std::vector<uint64_t> truth;  // value of each position; a position that is run again gets a new one
    uint64_t next_value = 1;
    for (int round = 0; round < 30; ++round) {
      const bool prompt = round < 3;
      const int64_t rows = int64_t(random() % uint32_t(prompt ? 3 * window + 9 : backtrack)) + 1;
      const int64_t first = int64_t(truth.size());
      std::vector<int64_t> positions;
      std::vector<uint64_t> entries;
      for (int64_t i = 0; i < rows; ++i) {
        positions.push_back(first + i);
        truth.push_back(next_value);
        entries.push_back(next_value++);
      }
      std::vector<int32_t> sequence(size_t(rows), 0), begin = {0, int32_t(rows)};
      StoreRing op;
      op.rows = {View<const int64_t, 1>(positions.data(), {rows}), View<const int32_t, 1>(sequence.data(), {rows}),
                 View<const int32_t, 1>(begin.data(), {2})};
      op.entries = View<const uint8_t, 2>(reinterpret_cast<const uint8_t*>(entries.data()), {rows, 8});
      op.ring = ring;
      ops.store_ring(**queue, op);
      // A round takes back drafts, never its first row; a prompt piece may lose its last B rows. So the length never
      // falls more than B below the furthest position that was written.
      const int64_t most = prompt ? std::min<int64_t>(backtrack, rows) : rows - 1;
      truth.resize(truth.size() - size_t(random() % uint32_t(most + 1)));
      const int64_t length = int64_t(truth.size());
      for (int64_t p = std::max<int64_t>(0, length - window); p < length; ++p) {
        uint64_t held = 0;
        std::memcpy(&held, ring.entry(0, p), 8);
        ASSERT_EQ(held, truth[size_t(p)])
            << "W " << window << " B " << backtrack << " position " << p << " of " << length;
      }
    }
  }
}

// a snapshot at p is taken after any number of rows up to p + B and put into a slot whose rings are full of
// another sequence; then the window before p is there, whatever W, B and the phase of the rings.
TEST(CacheMemory, ASnapshotIsTheWindowBeforeItsPosition) {
  std::mt19937 random(6);
  for (int trial = 0; trial < 400; ++trial) {
    const int window = int(random() % 40) + 1, backtrack = int(random() % 7);
    const ReplayShape shape{window, backtrack, 2, 2};
    CacheMemory memory = memory_of(ring_capacity(shape), 1, 2);
    const std::vector<size_t> rings = {2, 3};  // entries of 8 and of 24 bytes
    const int64_t position = (int64_t(random() % 5) + 1) * 128;
    const int64_t written = position + int64_t(random() % uint32_t(backtrack + 1));
    ASSERT_TRUE(ring_holds(shape, position, written));
    ASSERT_FALSE(ring_holds(shape, position, position + backtrack + 1));
    std::vector<int32_t> slots = {1, 2};
    const View<const int32_t, 1> slot_view(slots.data(), {2});
    const auto value = [](int64_t p, size_t ring) { return uint64_t(p) * 16 + ring; };
    for (const size_t ring : rings) {
      for (int64_t p = 0; p < written; ++p) {
        const uint64_t mine = value(p, ring), others = ~uint64_t(p);
        std::memcpy(memory.ring(ring, slot_view).entry(0, p), &mine, 8);
        std::memcpy(memory.ring(ring, slot_view).entry(1, p + 3), &others, 8);
      }
    }
    std::vector<uint8_t> snapshot(size_t(memory.window_bytes(rings, window)));
    ASSERT_EQ(snapshot.size(), size_t(window) * (8 + 24));
    memory.save_windows(rings, window, 1, position, snapshot);
    memory.restore_windows(rings, window, 2, position, snapshot);
    for (const size_t ring : rings) {
      for (int64_t p = position - window; p < position; ++p) {
        uint64_t held = 0;
        std::memcpy(&held, memory.ring(ring, slot_view).entry(1, p), 8);
        ASSERT_EQ(held, value(p, ring)) << "W " << window << " B " << backtrack << " position " << p;
      }
    }
    // One row more may have overwritten the oldest entry: this is why ring_holds refuses it.
    const uint64_t late = 0;
    std::memcpy(memory.ring(2, slot_view).entry(0, position + backtrack), &late, 8);
    uint64_t oldest = 1;
    std::memcpy(&oldest, memory.ring(2, slot_view).entry(0, position - window), 8);
    EXPECT_EQ(oldest, late);
  }
}

// 20 x 128 x 528 bytes for V4.1 Flash.
TEST(CacheMemory, ASnapshotOfFlashHasTheBytesOfTheSpecification) {
  std::vector<PageSpec> pages = {{"latent.2", 288, 2, {}}};
  for (int layer = 0; layer < 43; ++layer) pages.push_back({"ring." + std::to_string(layer), 528, 1, 134});
  auto memory = CacheMemory::allocate(reference_backend().memory, lay_out(pages), 1, 1);
  ASSERT_TRUE(memory.ok());
  const auto rings = encoder_rings(memory->layout(), 20);
  ASSERT_EQ(rings.size(), 20u);
  EXPECT_EQ(memory->layout().specs[rings[19]].name, "ring.19");
  EXPECT_EQ(memory->window_bytes(rings, 128), 1'351'680);
}

}  // namespace
}  // namespace fathom
