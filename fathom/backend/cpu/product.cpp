#include "fathom/backend/cpu/product.h"

#include <atomic>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/backend/cpu/calls.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

constexpr int64_t kSegment = 264;  // rows of a piece of work: decoding a panel costs about as much as 4 rows

/// One weight matrix (or a block of its rows) and the rows that meet it.
struct Job {
  const Matrix* weight = nullptr;
  int64_t first = 0, outputs = 0;  // rows of the weight
  int64_t x_column = 0;            // of x
  int64_t x_first = 0;             // row of x that row 0 is, without x_row
  const int32_t* x_row = nullptr;  // rows of x, or null
  int64_t rows = 0;
  AnyViewMut out;  // [rows, at least first + outputs]
  int64_t panels() const { return (outputs + kPanel - 1) / kPanel; }
};

struct Product {
  const ProductKernels* kernels = nullptr;
  const ProductKernels* fallback = nullptr;  // for panels that `kernels` does not take
  const Matrix* x = nullptr;
  int64_t columns = 0;  // K of one job
  uint64_t number = 0;  // of this product among all
};

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// Points the tile to rows [begin, end) of a job as elements that the kernels read: to x itself, or to a copy that this
/// thread decodes when it comes to these rows and keeps for all their panels. So the copy lies in its own cache, and
/// nobody waits for it.
void set_rows(const Product& product, const ProductKernels& kernels, const Job& job, int64_t begin, int64_t end,
              Tile& tile) {
  const Matrix& x = *product.x;
  const int64_t element = bits_of(kernels.element) / 8;
  tile.rows = end - begin;
  const DType weight = job.weight->dtype();
  if (kernels.reads_x(x.dtype(), weight, product.columns)) {
    tile.x_stride = x.values.row_stride * element;
    tile.x_row = job.x_row ? job.x_row + begin : nullptr;
    tile.x = x.values.data + job.x_column * element + (job.x_row ? 0 : (job.x_first + begin) * tile.x_stride);
    return;
  }
  struct Decoded {
    uint64_t product = 0;
    const ProductKernels* kernels = nullptr;
    const Job* job = nullptr;
    int64_t begin = 0;
    uint8_t* rows = nullptr;
  };
  static thread_local Scratch scratch;
  static thread_local Decoded decoded;
  tile.x_stride = round_up(product.columns, kBlock) * element;
  if (decoded.product != product.number || decoded.kernels != &kernels || decoded.job != &job ||
      decoded.begin != begin) {
    decoded = {product.number, &kernels, &job, begin, scratch.get<uint8_t>(tile.rows * tile.x_stride)};
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = job.x_row ? int64_t(job.x_row[r]) : job.x_first + r;
      kernels.decode_x(x, row, job.x_column, product.columns, weight, decoded.rows + (r - begin) * tile.x_stride);
    }
  }
  tile.x = decoded.rows;
}

/// One panel of a job against rows [begin, end).
void run_panel(const Product& product, const Job& job, int64_t panel_index, int64_t begin, int64_t end) {
  static thread_local Scratch panel_scratch, scale_scratch, sum_scratch;
  const int64_t offset = panel_index * kPanel, out_element = bits_of(job.out.dtype) / 8;
  const Panel panel(*job.weight, job.first + offset, int(std::min<int64_t>(kPanel, job.outputs - offset)));
  const bool taken = product.kernels->takes == nullptr || product.kernels->takes(panel, product.columns);
  const ProductKernels& kernels = taken ? *product.kernels : *product.fallback;
  const int64_t element = bits_of(kernels.element) / 8;

  Tile tile;
  set_rows(product, kernels, job, begin, end, tile);
  tile.count = panel.count;
  tile.sums = sum_scratch.get<float>(kSegment * kPanel);
  tile.panel = panel_scratch.get<uint8_t>(kernels.chunk * kPanel * element);
  tile.scales = scale_scratch.get<float>(kernels.chunk / kBlock * kPanel);
  tile.out_bytes = job.out.row_stride * out_element;
  tile.out_dtype = job.out.dtype;
  uint8_t* const out = job.out.row(begin) + (job.first + offset) * out_element;
  tile.out = out;
  if (tile.rows <= kernels.few_rows && kernels.multiply_few(panel, tile, product.columns)) return;
  const uint8_t* const x = tile.x;
  for (int64_t k = 0; k < product.columns; k += kernels.chunk) {
    const int64_t count = std::min(kernels.chunk, product.columns - k);
    kernels.decode_panel(panel, k, count, tile);
    tile.x = x + k * element;
    tile.blocks = (count + kBlock - 1) / kBlock;
    tile.first = k == 0;
    tile.out = k + count == product.columns ? out : nullptr;
    kernels.multiply(tile);
  }
}

/// Nanoseconds of one thread, roughly: decoding a weight 0.04, a product 0.009 (bf16, Zen 4).
double estimate(const std::vector<Job>& jobs, int64_t columns) {
  double ns = 0;
  for (const Job& job : jobs) ns += double(job.outputs) * double(columns) * (0.04 + 0.009 * double(job.rows));
  return ns;
}

/// `same_rows`: all jobs have the same ones.
void run_jobs(Queue& queue, const Product& product, const std::vector<Job>& jobs, bool same_rows) {
  constexpr int64_t kManyRows = 24;  // of a thread
  const int64_t threads = queue.pool.threads();
  int64_t panels = 0, most_rows = 0;
  for (const Job& job : jobs) {
    panels += job.panels();
    most_rows = std::max(most_rows, job.rows);
  }
  // Many rows that meet all panels: the threads share the rows, each its own as in the operations around, whose results
  // lie in that core's cache (always: one thread that reads all rows makes the others' next writes to them wait), and a
  // thread takes all panels of some rows before it comes to the next rows. Few rows, or rows of their own for each
  // matrix: they share the panels.
  const bool by_rows = same_rows && threads > 1 && most_rows >= threads * kManyRows;
  const bool parallel = by_rows || worth_threads(queue.pool, estimate(jobs, product.columns));
  const int64_t share = (most_rows + threads - 1) / threads, cuts = (share + kSegment - 1) / kSegment;
  const int64_t segment = by_rows                            ? (share + cuts - 1) / cuts
                          : parallel && panels < 4 * threads ? kSegment / 4
                                                             : kSegment;
  // Pieces are panels of segments: by rows all panels of a segment, otherwise all segments of a matrix, come together.
  const int64_t all_panels = panels, of_job = jobs[0].panels();
  int64_t pieces = 0;
  for (const Job& job : jobs) pieces += job.panels() * ((job.rows + segment - 1) / segment);
  const auto run = [&](const Job& job, int64_t panel, int64_t row) {
    run_panel(product, job, panel, row, std::min(row + segment, job.rows));
  };
  const auto some = [&](int64_t begin, int64_t end) {
    if (same_rows) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = i % all_panels;
        run(jobs[size_t(panel / of_job)], panel % of_job, i / all_panels * segment);
      }
      return;
    }
    int64_t at = 0;  // pieces of the jobs before
    for (const Job& job : jobs) {
      const int64_t job_panels = job.panels(), here = job_panels * ((job.rows + segment - 1) / segment);
      for (int64_t i = std::max(begin, at); i < std::min(end, at + here); ++i) {
        run(job, (i - at) % job_panels, (i - at) / job_panels * segment);
      }
      at += here;
      if (at >= end) return;
    }
  };
  if (!parallel) return some(0, pieces);
  call_threads(queue.pool, pieces, std::max<int64_t>(1, pieces / (8 * threads)), some);
}

}  // namespace

void run_linear(Queue& queue, const Linear& op, const ProductVariant& variant) {
  static thread_local std::vector<Job> jobs;
  const int64_t columns = op.weight.cols(), outputs = op.weight.rows() / op.groups;
  check(op.x.cols() == columns * op.groups, "linear: x has groups * K columns");
  check(op.out.rows == op.x.rows() && op.out.cols == op.weight.rows(), "linear: out is [rows, N]");
  if (op.x.rows() == 0) return;
  const ProductKernels& kernels = variant.pick(op.x.dtype(), op.weight.dtype(), op.out.dtype);
  jobs.clear();
  for (int g = 0; g < op.groups; ++g) {
    jobs.push_back({&op.weight, g * outputs, outputs, g * columns, 0, nullptr, op.x.rows(), op.out});
  }
  run_jobs(queue, {&kernels, variant.f32, &op.x, columns, next_number()}, jobs, true);
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
  const ProductKernels& kernels = variant.pick(op.x.dtype(), jobs[0].weight->dtype(), op.out.dtype);
  run_jobs(queue, {&kernels, variant.f32, &op.x, op.x.cols(), next_number()}, jobs, false);
}

}  // namespace fathom::cpu
