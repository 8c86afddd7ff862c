#include "fathom/backend/instruments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace fathom {
namespace {

// 2 of each format: sizes that do not fill a block of threads, and of FP8 tiles more than one across and down.
std::vector<RandomWeights> all_formats() {
  std::vector<RandomWeights> all;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3, DType::f4_e2m1}) {
    for (const int scale_rows : {1, 32}) {
      if (scale_rows == 32 && dtype != DType::f8_e4m3) continue;
      for (const auto part : {RandomWeights::Part::values, RandomWeights::Part::scales}) {
        RandomWeights w;
        w.dtype = dtype;
        w.scale_rows = scale_rows;
        w.part = part;
        w.rows = 96;
        w.cols = 160;
        w.seed = 0x123456789abcdefu;
        w.name = 0xfedcba9876543210u;
        w.factor = random_weight_factor(0.05);
        if (part == RandomWeights::Part::values || w.paired()) all.push_back(w);
      }
    }
  }
  return all;
}

TEST(InstrumentsTest, WhatADeviceDrawsIsWhatTheDefinitionWrites) {
  const auto backend = cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  const Instruments instruments = instruments_of(*backend);
  for (RandomWeights w : all_formats()) {
    SCOPED_TRACE(std::string(name_of(w.dtype)) + " " + std::to_string(w.scale_rows) +
                 (w.part == RandomWeights::Part::scales ? " scales" : " values"));
    std::vector<uint8_t> want(size_t(w.stored_rows() * w.row_bytes())), got(want.size());
    write_random_weights(w, 0, w.stored_rows(), want);
    const auto memory = backend->memory.allocate(int64_t(want.size()));
    ASSERT_TRUE(memory.ok());
    instruments.draw(w, memory->data());
    backend->memory.copy(got.data(), memory->data(), int64_t(got.size()));
    EXPECT_EQ(got, want);
  }
}

// The pieces in which files are filled: rows [32, 64) of a tile's rows, and of the scales its second row.
TEST(InstrumentsTest, APieceOfATensorIsThatPartOfTheWhole) {
  for (const RandomWeights& w : all_formats()) {
    std::vector<uint8_t> whole(size_t(w.stored_rows() * w.row_bytes()));
    write_random_weights(w, 0, w.stored_rows(), whole);
    const bool tiles = w.part == RandomWeights::Part::scales && w.scale_rows == 32;
    const int64_t first = tiles ? 1 : 32, count = tiles ? 1 : 32;
    std::vector<uint8_t> piece(size_t(count * w.row_bytes()));
    write_random_weights(w, first, count, piece);
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + first * w.row_bytes())) << name_of(w.dtype);
  }
}

// A sum of four bytes has the standard deviation sqrt(21845): of 15,360 values the mean square is within 4 % of that.
TEST(InstrumentsTest, ValuesHaveTheDeviationThatIsAskedFor) {
  const RandomWeights w = all_formats()[0];
  std::vector<float> values(size_t(w.rows * w.cols));
  write_random_weights(w, 0, w.rows, {reinterpret_cast<uint8_t*>(values.data()), values.size() * 4});
  double squares = 0;
  for (const float v : values) squares += double(v) * v;
  EXPECT_NEAR(std::sqrt(squares / double(values.size())), 0.05, 0.002);
}

TEST(InstrumentsTest, AClockSeesTheWorkBetweenItsMarks) {
  for (const std::string& name : present_backends()) {
    if (name == "reference") continue;
    SCOPED_TRACE(name);
    const auto backend = open_backend(name);
    ASSERT_TRUE(backend.ok());
    const auto queue = backend->open_queue(1);
    ASSERT_TRUE(queue.ok());
    const auto clock = instruments_of(*backend).open_clock(**queue);
    const int64_t rows = 4096;
    const auto memory = backend->memory.allocate(3 * rows * 1024 * 4);
    ASSERT_TRUE(memory.ok());
    auto* floats = reinterpret_cast<float*>(memory->data());
    const View<float, 2> a(floats, {rows, 1024}), b(floats + rows * 1024, {rows, 1024}),
        out(floats + 2 * rows * 1024, {rows, 1024});
    backend->ops.add_rows(**queue, {a, b, out});  // the first call of a device loads its code
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(clock->mark(), 0);
      backend->ops.add_rows(**queue, {a, b, out});
      EXPECT_EQ(clock->mark(), 1);
      // 48 MB cannot be moved at 10 TB/s, and take less than a second everywhere.
      EXPECT_GT(clock->seconds(0, 1), 4.8e-6);
      EXPECT_LT(clock->seconds(0, 1), 1.0);
      clock->restart();
    }
  }
}

TEST(InstrumentsTest, ADeviceSaysWhatItCanDo) {
  const auto backend = cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  const auto queue = backend->open_queue(1);
  ASSERT_TRUE(queue.ok());
  const auto peaks = instruments_of(*backend).peaks(**queue);
  ASSERT_TRUE(peaks.ok());
  // Datasheets of H100 PCIe (2.0 TB/s, 51 and 756 TFLOP/s) and H200 (4.8; 67, 990), dense.
  EXPECT_GT(peaks->memory, 1.2e12);
  EXPECT_LT(peaks->memory, 4.8e12);
  EXPECT_GT(peaks->l3, peaks->memory);
  EXPECT_GT(peaks->f32, 2e13);
  EXPECT_LT(peaks->f32, 6.8e13);
  EXPECT_GT(peaks->bf16, 3e14);
  EXPECT_LT(peaks->bf16, 1e15);
  EXPECT_GT(peaks->int8, 1.5 * peaks->bf16);
  EXPECT_GT(instruments_of(*backend).free_bytes(), 0);
}

}  // namespace
}  // namespace fathom
