// Hyper-connections: the weights with which a sub-layer reads and writes the residual streams, and their use.
#include <cmath>
#include <vector>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// m [C, C], row j column k. Rows become a softmax; then columns and rows are brought to sum 1 in turn, columns last.
// The rows' sums stay a little off: that is the model.
void sinkhorn(std::vector<double>& m, size_t count, int iterations, double eps) {
  for (size_t j = 0; j < count; ++j) {
    double* row = m.data() + j * count;
    const double best = *std::max_element(row, row + count);
    double sum = 0;
    for (size_t k = 0; k < count; ++k) sum += row[k] = std::exp(row[k] - best);
    for (size_t k = 0; k < count; ++k) row[k] = row[k] / sum + eps;
  }
  const auto normalize = [&](size_t line_step, size_t step) {
    for (size_t line = 0; line < count; ++line) {
      double sum = eps;
      for (size_t i = 0; i < count; ++i) sum += m[line * line_step + i * step];
      for (size_t i = 0; i < count; ++i) m[line * line_step + i * step] /= sum;
    }
  };
  normalize(1, count);  // columns
  for (int i = 1; i < iterations; ++i) {
    normalize(count, 1);
    normalize(1, count);
  }
}

}  // namespace

void stream_mixes(Queue& queue, const StreamMixes& op) {
  const int64_t streams = op.pre.shape[1], outputs = (2 + streams) * streams;
  for_each_row(queue, op.streams.rows, [&](int64_t r) {
    const auto x = load_row(op.streams, r);
    double squares = 0;
    for (const float v : x) squares += double(v) * v;
    const double scale = inverse_rms(squares, op.streams.cols, op.norm_eps);
    std::vector<double> mix(size_t(outputs), 0.0);  // pre, post, comb, each with its own scale
    for (int64_t o = 0; o < outputs; ++o) {
      double dot = 0;
      for (int64_t i = 0; i < op.streams.cols; ++i) dot += double(x[size_t(i)]) * load(op.fn.dtype, op.fn.row(o), i);
      mix[size_t(o)] = dot * scale * op.scale[std::min<int64_t>(o / streams, 2)] + op.base[o];
    }
    for (int64_t c = 0; c < streams; ++c) {
      op.pre(r, c) = float(sigmoid(mix[size_t(c)]) + op.sinkhorn_eps);
      op.post(r, c) = float(2 * sigmoid(mix[size_t(streams + c)]));
    }
    std::vector<double> comb(mix.begin() + 2 * streams, mix.end());
    sinkhorn(comb, size_t(streams), op.iterations, op.sinkhorn_eps);
    for (int64_t i = 0; i < streams * streams; ++i) op.comb(r, i) = float(comb[size_t(i)]);
  });
}

void collapse_row(const AnyView& streams, View<const float, 2> pre, int64_t r, std::span<float> out) {
  const int64_t hidden = int64_t(out.size());
  for (int64_t h = 0; h < hidden; ++h) {
    double sum = 0;
    for (int64_t c = 0; c < pre.shape[1]; ++c) {
      sum += double(pre(r, c)) * load(streams.dtype, streams.row(r), c * hidden + h);
    }
    out[size_t(h)] = rounded(streams.dtype, sum);
  }
}

void stream_collapse(Queue& queue, const StreamCollapse& op) {
  const int64_t hidden = op.streams.cols / op.pre.shape[1];
  const auto weight = op.norm.wanted() ? load_row(op.norm.weight, 0) : std::vector<float>();
  for_each_row(queue, op.streams.rows, [&](int64_t r) {
    std::vector<float> row(size_t(hidden), 0.0f);
    collapse_row(op.streams, op.pre, r, row);
    if (op.norm.wanted()) norm_row(op.streams.dtype, row, weight, op.norm.eps);
    put_row(op.out, op.q8, r, row);
  });
}

void spread_row(const StreamSpread& op, int64_t r, std::span<const float> y) {
  const int64_t hidden = op.y.cols, streams = op.post.shape[1];
  const auto old = load_row(op.streams, r);
  for (int64_t k = 0; k < streams; ++k) {
    for (int64_t h = 0; h < hidden; ++h) {
      double sum = double(op.post(r, k)) * y[size_t(h)];
      for (int64_t j = 0; j < streams; ++j) sum += double(op.comb(r, j * streams + k)) * old[size_t(j * hidden + h)];
      store(op.streams.dtype, op.streams.row(r), k * hidden + h, sum);
    }
  }
}

void stream_spread(Queue& queue, const StreamSpread& op) {
  for_each_row(queue, op.y.rows, [&](int64_t r) {
    auto y = load_row(op.y, r);
    if (!op.routed.empty()) combine_row(op.routed, op.place, op.y, r, y);
    spread_row(op, r, y);
  });
  if (op.next.pre.empty()) return;
  StreamCollapse next = op.next;
  next.streams = op.streams;
  stream_collapse(queue, next);
}

void stream_mean(Queue& queue, const StreamMean& op) {
  const int64_t hidden = op.out.cols;
  for_each_row(queue, op.streams.rows, [&](int64_t r) {
    for (int64_t h = 0; h < hidden; ++h) {
      double sum = 0;
      for (int64_t c = 0; c < op.count; ++c) sum += load(op.streams.dtype, op.streams.row(r), c * hidden + h);
      store(op.out.dtype, op.out.row(r), h, sum / op.count);
    }
  });
}

}  // namespace fathom::reference
