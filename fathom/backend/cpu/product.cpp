#include "fathom/backend/cpu/product.h"

#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

constexpr int64_t kSegment = 192;  // rows of a piece of work: decoding a panel costs about as much as 4 rows

/// One weight matrix (or a block of its rows) and the rows that meet it.
struct Job {
  const Matrix* weight = nullptr;
  int64_t first = 0, outputs = 0;  // rows of the weight
  int64_t x_column = 0;            // in elements of the decoded x
  int64_t x_first = 0;             // row of x that row 0 is, without x_row
  const int32_t* x_row = nullptr;  // rows of x, or null
  int64_t rows = 0;
  AnyViewMut out;  // [rows, at least first + outputs]
  int64_t panels() const { return (outputs + kPanel - 1) / kPanel; }
};

struct Product {
  const ProductKernels* kernels = nullptr;
  const uint8_t* x = nullptr;  // decoded
  int64_t x_stride = 0;        // bytes
  int64_t columns = 0;         // K of one job
};

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// One panel of a job against rows [begin, end).
void run_panel(const Product& product, const Job& job, int64_t panel_index, int64_t begin, int64_t end) {
  static thread_local Scratch panel_scratch, scale_scratch, sum_scratch;
  const ProductKernels& kernels = *product.kernels;
  const int64_t element = bits_of(kernels.element) / 8;
  void* decoded = panel_scratch.get<float>(kChunk * kPanel);
  float* scales = scale_scratch.get<float>(kChunk / kBlock * kPanel);
  float* sums = sum_scratch.get<float>(kSegment * kPanel);

  const int64_t offset = panel_index * kPanel;
  const Panel panel(*job.weight, job.first + offset, int(std::min<int64_t>(kPanel, job.outputs - offset)));
  Tile tile;
  tile.x_stride = product.x_stride;
  tile.rows = end - begin;
  tile.panel = decoded;
  tile.scales = scales;
  tile.count = panel.count;
  tile.sums = sums;
  if (job.x_row) tile.x_row = job.x_row + begin;
  const uint8_t* x = product.x + job.x_column * element + (job.x_row ? 0 : (job.x_first + begin) * product.x_stride);
  if (tile.rows <= kernels.few_rows) {
    const uint8_t* few[kMostFewRows];
    tile.x = x;
    for (int64_t r = 0; r < tile.rows; ++r) few[r] = tile.row(r);
    kernels.multiply_panel(panel, few, int(tile.rows), product.columns, sums);
  } else {
    for (int64_t k = 0; k < product.columns; k += kChunk) {
      const int64_t count = std::min(kChunk, product.columns - k);
      kernels.decode_panel(panel, k, count, decoded, scales);
      tile.x = x + k * element;
      tile.blocks = (count + kBlock - 1) / kBlock;
      tile.first = k == 0;
      kernels.multiply(tile);
    }
  }
  const int64_t out_offset = (job.first + offset) * bits_of(job.out.dtype) / 8;
  for (int64_t r = begin; r < end; ++r) {
    kernels.store(sums + (r - begin) * kPanel, panel.count, job.out.dtype, job.out.row(r) + out_offset);
  }
}

/// Nanoseconds of one thread, roughly: decoding a weight 0.04, a product 0.009 (bf16, Zen 4).
double estimate(const std::vector<Job>& jobs, int64_t columns) {
  double ns = 0;
  for (const Job& job : jobs) ns += double(job.outputs) * double(columns) * (0.04 + 0.009 * double(job.rows));
  return ns;
}

void run_jobs(Queue& queue, const Product& product, const std::vector<Job>& jobs) {
  constexpr double kWorthThreads = 20'000;  // ns: a sleeping worker needs several thousand to come
  const bool parallel = queue.pool.threads() > 1 && estimate(jobs, product.columns) > kWorthThreads;
  const int64_t threads = queue.pool.threads();
  int64_t panels = 0, pieces = 0, most_rows = 0;
  for (const Job& job : jobs) {
    panels += job.panels();
    most_rows = std::max(most_rows, job.rows);
  }
  // One matrix and many rows: the threads share the rows, each its own as in the operations around, whose results lie
  // in that core's cache. Few rows, or many matrices: they share the panels.
  const bool by_rows = parallel && jobs.size() == 1 && most_rows >= threads * 24;
  const int64_t share = round_up((most_rows + threads - 1) / threads, 6);
  const int64_t segment = by_rows                            ? std::min(kSegment, share)
                          : parallel && panels < 4 * threads ? kSegment / 4
                                                             : kSegment;
  for (const Job& job : jobs) pieces += job.panels() * ((job.rows + segment - 1) / segment);
  const int64_t grain = parallel ? std::max<int64_t>(1, pieces / (8 * threads)) : pieces;
  queue.pool.run(pieces, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end, int) {
    int64_t at = 0;  // pieces of the jobs before
    for (const Job& job : jobs) {
      const int64_t segments = (job.rows + segment - 1) / segment, job_panels = job.panels();
      const int64_t here = job_panels * segments;
      for (int64_t i = std::max(begin, at); i < std::min(end, at + here); ++i) {
        const int64_t panel = by_rows ? (i - at) % job_panels : (i - at) / segments;
        const int64_t row = (by_rows ? (i - at) / job_panels : (i - at) % segments) * segment;
        run_panel(product, job, panel, row, std::min(row + segment, job.rows));
      }
      at += here;
      if (at >= end) return;
    }
  });
}

/// x as elements that the kernels read: x itself, or a decoded copy that lives until the thread's next product.
Product decoded_x(Queue& queue, const ProductKernels& kernels, const Matrix& x, int64_t columns, int groups) {
  static thread_local Scratch scratch;
  const int64_t element = bits_of(kernels.element) / 8;
  if (x.dtype() == kernels.element && columns % kBlock == 0) {
    return {&kernels, x.values.data, x.values.row_stride * element, columns};
  }
  const int64_t padded = round_up(columns, kBlock), stride = padded * groups * element;
  uint8_t* copy = scratch.get<uint8_t>(x.rows() * stride);
  const auto rows = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int g = 0; g < groups; ++g) {
        kernels.decode_x(x, r, g * columns, columns, copy + r * stride + g * padded * element);
      }
    }
  };
  const bool parallel = x.rows() * stride > 1 << 18;
  queue.pool.run(x.rows(), parallel ? 16 : std::max<int64_t>(1, x.rows()), rows);
  return {&kernels, copy, stride, columns};
}

}  // namespace

void run_linear(Queue& queue, const Linear& op, const ProductVariant& variant) {
  static thread_local std::vector<Job> jobs;
  const int64_t columns = op.weight.cols(), outputs = op.weight.rows() / op.groups;
  check(op.x.cols() == columns * op.groups, "linear: x has groups * K columns");
  check(op.out.rows == op.x.rows() && op.out.cols == op.weight.rows(), "linear: out is [rows, N]");
  if (op.x.rows() == 0) return;
  const ProductKernels& kernels = variant.pick(op.x.dtype(), op.weight.dtype());
  const Product product = decoded_x(queue, kernels, op.x, columns, op.groups);
  const int64_t group_columns = round_up(columns, kBlock);
  jobs.clear();
  for (int g = 0; g < op.groups; ++g) {
    jobs.push_back({&op.weight, g * outputs, outputs, g * group_columns, 0, nullptr, op.x.rows(), op.out});
  }
  run_jobs(queue, product, jobs);
}

void run_grouped_linear(Queue& queue, const GroupedLinear& op, const ProductVariant& variant) {
  static thread_local std::vector<Job> jobs;
  jobs.clear();
  check(op.x_row.empty() || op.x_row.stride[0] == 1, "grouped linear: x_row is dense");
  for (size_t e = 0; e < op.weights.size(); ++e) {
    const int64_t begin = op.begin[int64_t(e)], end = op.begin[int64_t(e) + 1];
    if (begin == end) continue;
    const Matrix& weight = op.weights[e];
    check(weight.cols() == op.x.cols() && weight.rows() == op.out.cols, "grouped linear: weights are [N, K]");
    check(jobs.empty() || weight.dtype() == jobs[0].weight->dtype(), "grouped linear: experts have one format");
    const int32_t* x_row = op.x_row.empty() ? nullptr : op.x_row.data + begin;
    jobs.push_back({&weight, 0, weight.rows(), 0, begin, x_row, end - begin, op.out.slice(begin, end - begin)});
  }
  if (jobs.empty()) return;
  const ProductKernels& kernels = variant.pick(op.x.dtype(), jobs[0].weight->dtype());
  const Product product = decoded_x(queue, kernels, op.x, op.x.cols(), 1);
  run_jobs(queue, product, jobs);
}

}  // namespace fathom::cpu
