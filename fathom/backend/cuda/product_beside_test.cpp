// Products beside the one queued just ahead (ops.h): the same bits as one after the other, for all who read both
// results. Everything lies in the device's memory, so that nothing but the queue orders them.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "fathom/backend/backend.h"
#include "fathom/backend/stored_matrix.h"

namespace fathom {
namespace {

constexpr DType kFp8 = DType::f8_e4m3, kFp4 = DType::f4_e2m1, kBf16 = DType::bf16;

class ProductBesideTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
    queue = std::move(*backend->open_queue(1));
    queue->batch_invariant = false;
  }
  uint8_t* room(int64_t bytes) {
    memory.push_back(*backend->memory.allocate(bytes));
    return memory.back().data();
  }
  template <class T>
  const T* upload(const std::vector<T>& values) {
    uint8_t* at = room(int64_t(values.size() * sizeof(T)));
    backend->memory.copy(at, values.data(), int64_t(values.size() * sizeof(T)));
    return reinterpret_cast<const T*>(at);
  }
  Matrix upload(const Stored& of) {
    const Tensor &v = of.values, &s = of.scales;
    const AnyView values(upload(v.bytes), v.dtype, v.rows, v.cols);
    if (s.bytes.empty()) return Matrix(values);
    return Matrix(values, AnyView(upload(s.bytes), s.dtype, s.rows, s.cols), of.scale_rows);
  }
  std::vector<uint8_t> download(const AnyView& view) {
    queue->wait();
    std::vector<uint8_t> out(size_t(bytes_of(view.dtype, view.rows * view.cols)));
    backend->memory.copy(out.data(), view.data, int64_t(out.size()));
    return out;
  }
  AnyViewMut result(int64_t rows, int64_t cols) { return {room(rows * cols * 2), kBf16, rows, cols}; }

  Result<Backend> backend = cuda_backend();
  std::unique_ptr<Queue> queue;
  std::vector<Buffer> memory;
};

struct Pair {
  int64_t rows, first, second, k;
};

// As gate and up, wkv and wq_a, and with one product that fills the device by itself; by kernels for few rows, for
// pairs of blocks and for thousands. The third one reads both.
TEST_F(ProductBesideTest, PlainProductsHaveTheSameBits) {
  for (const DType type : {kFp8, kFp4, kBf16}) {
    for (const Pair& p : {Pair{8, 2304, 2304, 1280},
                          {65, 2304, 2304, 5120},
                          {256, 2304, 2304, 5120},
                          {256, 512, 1280, 5120},
                          {200, 1280, 512, 2304},
                          {256, 40960, 40960, 256},
                          {300, 2304, 2304, 1280},
                          {2100, 11520, 11520, 256}}) {
      SCOPED_TRACE(testing::Message() << name_of(type) << ' ' << p.rows << " x " << p.first << ", " << p.second << " x "
                                      << p.k);
      const Matrix x = upload(stored(type == kBf16 ? kBf16 : kFp8, p.rows, p.k, 1, 3));
      const Matrix a = upload(stored_weight(type, p.first, p.k, 4)), b = upload(stored_weight(type, p.second, p.k, 5));
      const AnyViewMut alone[] = {result(p.rows, p.first), result(p.rows, p.second)};
      backend->ops.linear(*queue, {x, a, alone[0], 1});
      backend->ops.linear(*queue, {x, b, alone[1], 1});
      const AnyViewMut beside[] = {result(p.rows, p.first), result(p.rows, p.second)};
      const int64_t common = std::min(p.first, p.second);
      const AnyViewMut both = result(p.rows, common), wanted = result(p.rows, common);
      const auto swiglu = [&](const AnyViewMut(&of)[2], const AnyViewMut& out) {
        SwiGlu op;
        op.gate = AnyView(of[0]).columns(0, common);
        op.up = AnyView(of[1]).columns(0, common);
        op.limit = 10;
        op.out = out;
        backend->ops.swiglu(*queue, op);
      };
      swiglu(alone, wanted);
      const auto first = download(alone[0]), second = download(alone[1]), third = download(wanted);
      for (int i = 0; i < 10; ++i) {
        backend->ops.linear(*queue, {x, a, beside[0], 1});
        backend->ops.linear(*queue, {x, b, beside[1], 1, true});
        swiglu(beside, both);
        ASSERT_EQ(download(both), third) << i;
        ASSERT_EQ(download(beside[0]), first) << i;
        ASSERT_EQ(download(beside[1]), second) << i;
      }
      memory.clear();
    }
  }
}

TEST_F(ProductBesideTest, ExpertsHaveTheSameBits) {
  const int64_t n = 2304, k = 1280;
  for (const std::vector<int32_t>& counts :
       {std::vector<int32_t>{250, 260, 0, 240, 256, 300}, {17, 40, 3, 0, 1, 30}, std::vector<int32_t>(24, 200)}) {
    std::vector<int32_t> begin{0}, x_row;
    for (const int32_t c : counts) begin.push_back(begin.back() + c);
    const int64_t all = begin.back(), x_rows = 256;
    for (int64_t i = 0; i < all; ++i) x_row.push_back(int32_t(i * 89 % x_rows));
    std::vector<Matrix> a, b;
    for (size_t e = 0; e < counts.size(); ++e) {
      a.push_back(upload(stored_weight(kFp4, n, k, 20 + e)));
      b.push_back(upload(stored_weight(kFp4, n, k, 60 + e)));
    }
    GroupedLinear op;
    op.x = upload(stored(kFp8, x_rows, k, 1, 7));
    op.x_row = View<const int32_t, 1>(upload(x_row), {all});
    op.begin = View<const int32_t, 1>(upload(begin), {int64_t(begin.size())});
    const auto run = [&](const AnyViewMut& first, const AnyViewMut& second, bool beside) {
      op.weights = a, op.out = first, op.beside = false;
      backend->ops.grouped_linear(*queue, op);
      op.weights = b, op.out = second, op.beside = beside;
      backend->ops.grouped_linear(*queue, op);
    };
    const AnyViewMut alone[] = {result(all, n), result(all, n)}, beside[] = {result(all, n), result(all, n)};
    run(alone[0], alone[1], false);
    const auto first = download(alone[0]), second = download(alone[1]);
    for (int i = 0; i < 10; ++i) {
      run(beside[0], beside[1], true);
      ASSERT_EQ(download(beside[1]), second) << counts.size() << " experts";
      ASSERT_EQ(download(beside[0]), first) << counts.size() << " experts";
    }
    memory.clear();
  }
}

// What lies ahead is not what was said, is not just ahead, or is another queue's: x is arranged anew.
TEST_F(ProductBesideTest, AnotherXIsArrangedAnew) {
  const Matrix x = upload(stored(kFp8, 100, 1280, 1, 3)), y = upload(stored(kFp8, 100, 1280, 1, 4));
  const Matrix w = upload(stored_weight(kFp8, 2304, 1280, 5));
  const AnyViewMut wanted = result(100, 2304), got = result(100, 2304), other = result(100, 2304);
  backend->ops.linear(*queue, {y, w, wanted, 1});
  const auto bits = download(wanted);
  backend->ops.linear(*queue, {x, w, other, 1});
  backend->ops.linear(*queue, {y, w, got, 1, true});
  EXPECT_EQ(download(got), bits);
  backend->ops.linear(*queue, {y, w, other, 1});
  backend->ops.quantize_rows(*queue,
                             {other, {room(100 * 2304), kFp8, 100, 2304}, {room(100 * 72), DType::f8_e8m0, 100, 72}});
  backend->ops.linear(*queue, {y, w, got, 1, true});
  EXPECT_EQ(download(got), bits);
  const auto second = std::move(*backend->open_queue(1));
  second->batch_invariant = false;
  backend->ops.linear(*second, {y, w, other, 1});
  second->wait();
  backend->ops.linear(*queue, {x, w, other, 1});
  backend->ops.linear(*second, {x, w, other, 1, true});
  second->wait();
  backend->ops.linear(*queue, {y, w, got, 1, true});
  EXPECT_EQ(download(got), bits);
}

}  // namespace
}  // namespace fathom
