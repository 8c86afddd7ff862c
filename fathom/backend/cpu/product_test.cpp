#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/stored_matrix.h"
#include "fathom/backend/tables_under_test.h"

namespace fathom::cpu {
namespace {

Tensor run(const Operations& ops, Queue& queue, const Stored& x, const Stored& w, DType out_dtype, int groups = 1) {
  Tensor out(out_dtype, x.values.rows, w.values.rows);
  Linear op;
  op.x = x;
  op.weight = w;
  op.out = out.out();
  op.groups = groups;
  ops.linear(queue, op);
  return out;
}

const Operations& definition() {
  static const Operations ops = reference_operations();
  return ops;
}

constexpr DType kInputs[] = {DType::f32, DType::bf16, DType::f8_e4m3};
constexpr DType kWeights[] = {DType::f32, DType::bf16, DType::f8_e4m3, DType::f4_e2m1};

class ProductTest : public testing::TestWithParam<size_t> {
 protected:
  Processor processor = runnable_processors()[GetParam()];
  Operations ops = cpu_operations(processor);
  Queue queue{1};

  /// Against the definition, within the rounding of a sum of K products in float (product.h).
  void compare(DType x_dtype, DType w_dtype, int64_t rows, int64_t k, int64_t n, DType out_dtype, int groups = 1) {
    SCOPED_TRACE(testing::Message() << name_of(x_dtype) << " x " << name_of(w_dtype) << " rows " << rows << " K " << k
                                    << " N " << n << " out " << name_of(out_dtype));
    const Stored x = stored(x_dtype, rows, k * groups, 1, uint64_t(rows + k)),
                 w = stored_weight(w_dtype, n, k, uint64_t(n));
    const Tensor got = run(ops, queue, x, w, out_dtype, groups);
    const Tensor want = run(definition(), queue, x, w, DType::f32, groups);
    const Tensor size = run(definition(), queue, x.absolute(), w.absolute(), DType::f32, groups);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const double sum = double(size.at(r, i)) * double(k + k / 32 + 2) * 0x1p-24;
        const double bound = sum + (std::abs(double(want.at(r, i))) + sum) * rounding(out_dtype);
        ASSERT_NEAR(got.at(r, i), want.at(r, i), bound) << "at " << r << ", " << i;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Processors, ProductTest, testing::Range(size_t(0), runnable_processors().size()),
                         [](const auto& info) {
                           const Processor p = runnable_processors()[info.param];
                           return std::string(name_of(p.isa)) + (p.bf16_dot ? "_bf16" : "");
                         });

// 1 to 6: register tiles of every height; 7, 17, 97: a tile of one after full ones.
TEST_P(ProductTest, AgreesWithTheDefinitionForEveryNumberOfRows) {
  for (const DType x : kInputs) {
    for (const DType w : kWeights) {
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 16, 17, 64, 97}) compare(x, w, rows, 96, 33, DType::f32);
    }
  }
}

// 32: one block; 96: half a load of fp4; 288: a chunk of 256 and a rest of one block.
TEST_P(ProductTest, AgreesWithTheDefinitionForEveryDepth) {
  for (const DType x : kInputs) {
    for (const DType w : kWeights) {
      for (const int64_t k : {32, 64, 96, 128, 160, 256, 288, 1280, 5120}) compare(x, w, 3, k, 17, DType::f32);
    }
  }
}

TEST_P(ProductTest, AgreesWithTheDefinitionForEveryNumberOfOutputs) {
  for (const DType x : kInputs) {
    for (const DType w : kWeights) {
      for (const int64_t n : {1, 3, 15, 16, 17, 31, 32, 33, 96, 512}) compare(x, w, 7, 64, n, DType::bf16);
    }
  }
  compare(DType::bf16, DType::bf16, 2, 256, 2880, DType::f32);
  compare(DType::f8_e4m3, DType::f4_e2m1, 17, 256, 96, DType::bf16);
}

// Formats without blocks may have any number of columns: what lies past them must not be read.
TEST_P(ProductTest, DenseFormatsMayHaveAnyNumberOfColumns) {
  for (const DType x : {DType::f32, DType::bf16}) {
    for (const DType w : {DType::f32, DType::bf16}) {
      for (const int64_t k : {1, 7, 31, 33, 100, 257}) {
        compare(x, w, 7, k, 5, DType::f32);
        compare(x, w, 3, k, 12, DType::f32, 3);
      }
    }
  }
}

TEST_P(ProductTest, GroupsMeetTheirOwnColumnsOnly) {
  for (const DType x : kInputs) {
    for (const DType w : kWeights) compare(x, w, 7, 64, 4 * 64, DType::bf16, 4);
  }
}

TEST_P(ProductTest, EveryCodeOfAWeightIsDecodedExactly) {
  // Row n of the weight is code n everywhere in column c; x picks one column, so the output is the value itself.
  for (const DType dtype : {DType::f8_e4m3, DType::f4_e2m1}) {
    const int64_t n = dtype == DType::f8_e4m3 ? 256 : 16;
    Stored w = stored_weight(dtype, n, 160, 1);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t b = 0; b < bytes_of(dtype, 160); ++b) {
        w.values.bytes[size_t(r * bytes_of(dtype, 160) + b)] = uint8_t(dtype == DType::f8_e4m3 ? r : r * 17);
      }
    }
    const auto& scales = w.scales;
    for (const DType x_dtype : {DType::f32, DType::bf16}) {
      for (const int64_t column : {0, 1, 31, 32, 63, 64, 127, 130, 159}) {
        Stored x;
        x.values = Tensor(x_dtype, 1, 160);
        std::vector<float> picked(160, 0.0f);
        picked[size_t(column)] = 1;
        x.values = Tensor(x_dtype, 1, 160, picked);
        const Tensor got = run(ops, queue, x, w, DType::f32);
        for (int64_t r = 0; r < n; ++r) {
          const float value = dtype == DType::f8_e4m3 ? e4m3_to_float(uint8_t(r)) : e2m1_to_float(uint8_t(r));
          const float scale = e8m0_to_float(scales.bytes[size_t(r / w.scale_rows * 5 + column / 32)]);
          if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(got.at(0, r))) << r;
          } else {
            EXPECT_EQ(got.at(0, r), value * scale) << "code " << r << " column " << column;
          }
        }
      }
    }
  }
}

TEST_P(ProductTest, EveryCodeOfAnActivationIsDecodedExactly) {
  Stored x = stored(DType::f8_e4m3, 256, 32, 1, 1);
  for (int64_t r = 0; r < 256; ++r) {
    for (int64_t c = 0; c < 32; ++c) x.values.bytes[size_t(r * 32 + c)] = c == r % 32 ? uint8_t(r) : 0;
    // From 2^-117 on the product of scale and smallest code is a normal float; 2^118 * 448 is the largest.
    x.scales.bytes[size_t(r)] = uint8_t(10 + r % 236);
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Stored one;
    one.values = Tensor(dtype, 1, 32, std::vector<float>(32, 1.0f));
    const Tensor got = run(ops, queue, x, one, DType::f32);
    for (int64_t r = 0; r < 256; ++r) {
      const float want = e4m3_to_float(uint8_t(r)) * e8m0_to_float(x.scales.bytes[size_t(r)]);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got.at(r, 0))) << r;
      } else {
        EXPECT_EQ(got.at(r, 0), want) << r;
      }
    }
  }
}

TEST_P(ProductTest, EveryScaleOfAWeightIsExactAndItsNanIsNotLost) {
  for (const DType dtype : {DType::f8_e4m3, DType::f4_e2m1}) {
    const int scale_rows = dtype == DType::f8_e4m3 ? 32 : 1;
    Stored w = stored_weight(dtype, 256 * scale_rows, 32, 1);
    for (auto& byte : w.values.bytes) byte = dtype == DType::f8_e4m3 ? 0x38 : 0x22;  // 1.0
    for (size_t i = 0; i < 256; ++i) w.scales.bytes[i] = uint8_t(i);
    Stored x;
    std::vector<float> picked(32, 0.0f);
    picked[0] = 0.5f;
    x.values = Tensor(DType::bf16, 1, 32, picked);
    const Tensor got = run(ops, queue, x, w, DType::f32);
    for (int64_t i = 0; i < 255; ++i) EXPECT_EQ(got.at(0, i * scale_rows), 0.5f * e8m0_to_float(uint8_t(i))) << i;
    EXPECT_TRUE(std::isnan(got.at(0, 255 * scale_rows)));
  }
}

TEST_P(ProductTest, ANanInARowStaysInThatRow) {
  for (const DType x_dtype : kInputs) {
    for (const DType w_dtype : kWeights) {
      Stored x = stored(x_dtype, 9, 64, 1, 5);
      const Stored w = stored_weight(w_dtype, 40, 64, 6);
      const Tensor clean = run(ops, queue, x, w, DType::f32);
      if (x_dtype == DType::f8_e4m3) {
        x.values.bytes[4 * 64 + 40] = 0xff;
      } else {
        store(x_dtype, x.values.bytes.data(), 4 * 64 + 40, std::nan(""));
      }
      const Tensor got = run(ops, queue, x, w, DType::f32);
      for (int64_t r = 0; r < 9; ++r) {
        if (r != 4) {
          EXPECT_EQ(got.row(r), clean.row(r));
          continue;
        }
        for (int64_t n = 0; n < 40; ++n) EXPECT_TRUE(std::isnan(got.at(r, n)));
      }
    }
  }
}

/// Rows of `x` alone, in small batches at several places, and all at once with one, two and five threads. A NaN is a
/// NaN: which of two an addition gives is the compiler's choice.
void expect_the_same_bits(const Operations& ops, const Stored& x, const Stored& w) {
  Queue one{1}, two{2}, five{5};
  const int64_t rows = x.values.rows, n = w.values.rows;
  const Tensor all = run(ops, one, x, w, DType::f32);
  EXPECT_EQ(all.bytes, run(ops, two, x, w, DType::f32).bytes);
  EXPECT_EQ(all.bytes, run(ops, five, x, w, DType::f32).bytes);
  for (const int64_t begin : {int64_t(0), int64_t(1), int64_t(5), rows / 2, rows - 12, rows - 1}) {
    for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13}) {
      if (begin < 0 || begin + count > rows) continue;
      Tensor out(DType::f32, count, n);
      Linear op;
      op.x = Matrix(x).slice(begin, count);
      op.weight = w;
      op.out = out.out();
      ops.linear(one, op);
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t i = 0; i < n; ++i) {
          const float got = out.at(r, i), want = all.at(begin + r, i);
          ASSERT_TRUE(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want) ||
                      (std::isnan(got) && std::isnan(want)))
              << begin << " + " << r << " of " << count << ", output " << i << ": " << got << ", " << want;
        }
      }
    }
  }
}

// 203 rows: two segments. 288: a chunk of 256 columns and a rest, or less than one; 1120: several of each, and a rest.
// 100 outputs: a panel that is not full, in eights neither; 64: full ones.
TEST_P(ProductTest, ARowHasTheSameBitsAloneAndInAnyBatchAndWithAnyThreads) {
  for (const DType x_dtype : kInputs) {
    for (const DType w_dtype : kWeights) {
      for (const auto& [rows, k, n] : {std::array<int64_t, 3>{203, 288, 100}, {203, 96, 64}, {30, 1120, 64}}) {
        SCOPED_TRACE(testing::Message() << name_of(x_dtype) << " x " << name_of(w_dtype) << " K " << k);
        expect_the_same_bits(ops, stored(x_dtype, rows, k, 1, 7), stored_weight(w_dtype, n, k, 8));
      }
    }
  }
}

// Variants that put a scale into an operand must not do it where a number has no room for it.
TEST_P(ProductTest, NumbersOfAnySizeHaveTheSameBitsAloneAndInAnyBatch) {
  for (const DType w_dtype : kWeights) {
    Stored x = stored(DType::bf16, 30, 96, 1, 7);
    for (int64_t r = 0; r < 30; ++r) {
      for (int64_t c = r % 3; c < 96 && r > 3; c += 1 + r) {
        // Below the normal numbers, 0, about 1, near the largest, infinity, NaN.
        const float odd[] = {0x1p-130f, -0x1p-100f, 0x1p-61f, 0.0f, 1.5f, 0x1p62f, -0x1p120f, INFINITY, NAN};
        store(DType::bf16, x.values.bytes.data(), r * 96 + c, odd[size_t(r + c) % 9]);
      }
    }
    expect_the_same_bits(ops, x, stored_weight(w_dtype, 64, 96, 8));
  }
}

TEST_P(ProductTest, ScalesOfAnySizeAgreeWithTheDefinitionAndHaveTheSameBitsInAnyBatch) {
  for (const DType w_dtype : {DType::f8_e4m3, DType::f4_e2m1}) {
    for (const DType x_dtype : {DType::bf16, DType::f8_e4m3}) {
      Stored w = stored_weight(w_dtype, 128, 96, 8);
      uint32_t i = 0;
      for (auto& scale : w.scales.bytes) {
        // A first panel with usual scales, others with some far from 1.
        const uint32_t random = philox(3, {i, 0, 0, 3})[0];
        if (i++ >= w.scales.bytes.size() / 4 && random % 5 == 0) scale = uint8_t(random % 2 == 0 ? 127 - 80 : 127 + 80);
      }
      const Stored x = stored(x_dtype, 13, 96, 1, 7);
      expect_the_same_bits(ops, x, w);
      const Tensor got = run(ops, queue, x, w, DType::f32), want = run(definition(), queue, x, w, DType::f32);
      const Tensor size = run(definition(), queue, x.absolute(), w.absolute(), DType::f32);
      for (int64_t r = 0; r < 13; ++r) {
        for (int64_t n = 0; n < 128; ++n) {
          ASSERT_NEAR(got.at(r, n), want.at(r, n), double(size.at(r, n)) * (96 + 3 + 2) * 0x1p-24) << r << ", " << n;
        }
      }
    }
  }
}

TEST_P(ProductTest, OutputRowsAndInputRowsMayLieApart) {
  for (const DType w_dtype : kWeights) {
    const Stored w = stored_weight(w_dtype, 40, 64, 1);
    const Tensor wide = noise(DType::bf16, 5, 100, 2);
    Tensor out(DType::bf16, 5, 64);
    std::fill(out.bytes.begin(), out.bytes.end(), uint8_t(0xee));
    Linear op;
    op.x = Matrix(AnyView(wide).columns(3, 64));
    op.weight = w;
    op.out = out.out().columns(8, 40);
    ops.linear(queue, op);
    Stored x;
    x.values = Tensor(DType::bf16, 5, 64);
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t c = 0; c < 64; ++c) store(DType::bf16, x.values.bytes.data(), r * 64 + c, wide.at(r, c + 3));
    }
    const Tensor want = run(ops, queue, x, w, DType::bf16);
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t c = 0; c < 40; ++c) EXPECT_EQ(out.at(r, c + 8), want.at(r, c));
      for (const int64_t c : {0, 7, 48, 63}) EXPECT_EQ(out.bytes[size_t(r * 64 + c) * 2], 0xee);
    }
  }
}

/// Bytes whose last one is the last of a page, with no page behind.
class PageEnd {
 public:
  explicit PageEnd(const std::vector<uint8_t>& bytes) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    size_ = (bytes.size() + page - 1) / page * page + page;
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(memory_ != MAP_FAILED, "a test's pages fit");
    mprotect(static_cast<uint8_t*>(memory_) + size_ - page, page, PROT_NONE);
    data_ = static_cast<uint8_t*>(memory_) + size_ - page - bytes.size();
    if (!bytes.empty()) std::memcpy(data_, bytes.data(), bytes.size());
  }
  ~PageEnd() { munmap(memory_, size_); }
  PageEnd(const PageEnd&) = delete;
  PageEnd& operator=(const PageEnd&) = delete;
  uint8_t* data() const { return data_; }

 private:
  void* memory_;
  size_t size_;
  uint8_t* data_;
};

// Weights lie in mapped files: the bytes after a tensor may be the end of the file.
TEST_P(ProductTest, NothingPastAMatrixIsReadOrWritten) {
  for (const DType x_dtype : kInputs) {
    for (const DType w_dtype : kWeights) {
      for (const int64_t k : {32, 64, 96, 160, 224, 288}) {
        for (const int64_t n : {1, 17, 33}) {
          const Stored x = stored(x_dtype, 3, k, 1, 1), w = stored_weight(w_dtype, n, k, 2);
          const PageEnd xv(x.values.bytes), xs(x.scales.bytes), wv(w.values.bytes), ws(w.scales.bytes);
          for (const int64_t rows : {1, 2, 3}) {
            const Tensor want = run(ops, queue, x, w, DType::bf16);
            const PageEnd out(std::vector<uint8_t>(size_t(rows * n * 2)));
            Linear op;
            op.x = Matrix(AnyView(xv.data() + (3 - rows) * bytes_of(x_dtype, k), x_dtype, rows, k));
            if (x_dtype == DType::f8_e4m3) {
              op.x.scales = AnyView(xs.data() + (3 - rows) * k / 32, DType::f8_e8m0, rows, k / 32);
            }
            op.weight = Matrix(AnyView(wv.data(), w_dtype, n, k));
            if (!w.scales.bytes.empty()) {
              op.weight.scales = AnyView(ws.data(), DType::f8_e8m0, w.scales.rows, k / 32);
              op.weight.scale_rows = w.scale_rows;
            }
            op.out = {out.data(), DType::bf16, rows, n};
            ops.linear(queue, op);
            EXPECT_EQ(std::memcmp(out.data(), want.bytes.data() + (3 - rows) * n * 2, size_t(rows * n * 2)), 0);
          }
        }
      }
    }
  }
}

TEST_P(ProductTest, AnExpertsRowsAreThoseOfALinearOfItsWeight) {
  const int64_t rows = 23, k = 96, n = 96;
  Queue two{2};
  for (const DType w_dtype : kWeights) {
    for (const bool gathered : {true, false}) {
      std::vector<Stored> experts;
      std::vector<Matrix> weights;
      for (uint64_t e = 0; e < 5; ++e) experts.push_back(stored_weight(w_dtype, n, k, e));
      for (const Stored& e : experts) weights.push_back(e);
      // Expert 1 has no row, expert 3 more than a register tile.
      const std::vector<int32_t> begin{0, 4, 4, 5, 20, 23};
      std::vector<int32_t> x_row;
      for (int32_t a = 0; a < 23; ++a) x_row.push_back(gathered ? a * 7 % 23 : a);
      const Stored x = stored(DType::f8_e4m3, rows, k, 1, 9);
      Tensor out(DType::bf16, 23, n);
      GroupedLinear op;
      op.x = x;
      if (gathered) op.x_row = view(std::as_const(x_row));
      op.begin = view(begin);
      op.weights = weights;
      op.out = out.out();
      ops.grouped_linear(two, op);
      for (size_t e = 0; e < 5; ++e) {
        const Tensor want = run(ops, queue, x, experts[e], DType::bf16);
        for (int32_t a = begin[e]; a < begin[e + 1]; ++a) EXPECT_EQ(out.row(a), want.row(x_row[size_t(a)])) << a;
      }
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
