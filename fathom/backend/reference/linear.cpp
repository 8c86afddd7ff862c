// Matrix products. Each output is one sum over K in rising order, in double, so it does not depend on its neighbours.
// The only cleverness: a weight row is decoded once for all rows of the call, and eight rows of x are multiplied side
// by side (their elements lie together), so that eight independent sums keep the processor busy.
#include <vector>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {
namespace {

constexpr int64_t kLanes = 8;

// Columns [begin, begin + K) of some rows of x, eight rows interleaved: element (i, k) at [(i / 8 * K + k) * 8 + i %
// 8].
struct Interleaved {
  int64_t rows, columns;
  std::vector<double> values;
};

template <class RowOf>
Interleaved interleave(const Matrix& x, int64_t rows, int64_t begin, int64_t columns, const RowOf& row_of) {
  Interleaved out{rows, columns, std::vector<double>(size_t((rows + kLanes - 1) / kLanes * kLanes * columns))};
  std::vector<float> row(size_t(columns), 0.0f);
  for (int64_t i = 0; i < rows; ++i) {
    decode_matrix_row(x, row_of(i), begin, row);
    double* to = out.values.data() + i / kLanes * columns * kLanes + i % kLanes;
    for (int64_t k = 0; k < columns; ++k) to[k * kLanes] = row[size_t(k)];
  }
  return out;
}

// out[first + i, n] = x[i] . weight[n] for the weight rows n in [n_begin, n_end).
void multiply(Queue& queue, const Interleaved& x, const Matrix& weight, int64_t n_begin, int64_t n_end,
              const AnyViewMut& out, int64_t first) {
  const int64_t columns = x.columns;
  queue.pool.run(n_end - n_begin, 16, [&](int64_t begin, int64_t end, int) {
    std::vector<float> w(size_t(columns), 0.0f);
    for (int64_t n = n_begin + begin; n < n_begin + end; ++n) {
      decode_matrix_row(weight, n, 0, w);
      for (int64_t block = 0; block < x.rows; block += kLanes) {
        const double* in = x.values.data() + block * columns;
        double sum[kLanes] = {};
        for (int64_t k = 0; k < columns; ++k) {
          for (int64_t lane = 0; lane < kLanes; ++lane) sum[lane] += in[k * kLanes + lane] * double(w[size_t(k)]);
        }
        for (int64_t lane = 0; lane < kLanes && block + lane < x.rows; ++lane) {
          store(out.dtype, out.row(first + block + lane), n, sum[lane]);
        }
      }
    }
  });
}

}  // namespace

void linear(Queue& queue, const Linear& op) {
  const int64_t columns = op.weight.cols(), per_group = op.weight.rows() / op.groups;
  check(op.x.cols() == columns * op.groups, "the inputs of a product have the same columns");
  for (int64_t g = 0; g < op.groups; ++g) {
    const auto x = interleave(op.x, op.x.rows(), g * columns, columns, [](int64_t i) { return i; });
    multiply(queue, x, op.weight, g * per_group, (g + 1) * per_group, op.out, 0);
  }
}

void grouped_linear(Queue& queue, const GroupedLinear& op) {
  for (size_t e = 0; e < op.weights.size(); ++e) {
    const int64_t begin = op.begin[int64_t(e)], count = op.begin[int64_t(e) + 1] - begin;
    if (count == 0) continue;
    const auto row_of = [&](int64_t i) { return op.x_row.empty() ? begin + i : op.x_row[begin + i]; };
    const auto x = interleave(op.x, count, 0, op.x.cols(), row_of);
    multiply(queue, x, op.weights[e], 0, op.weights[e].rows(), op.out, begin);
  }
}

}  // namespace fathom::reference
