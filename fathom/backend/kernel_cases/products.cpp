// Linear. Products with FP8 and MXFP4 weights count as bf16: their codes, and those of Q8 rows, are exact in it.
#include "fathom/backend/kernel_cases/case_memory.h"

namespace fathom {
namespace {

struct Shape {
  const char* model;
  const char* place;
  DType x, weight;
  int64_t n, k;
  int groups = 1;
  int64_t most_rows = 8192;
};

constexpr DType kBf16 = DType::bf16, kFp8 = DType::f8_e4m3, kFp4 = DType::f4_e2m1;
// FP8 and MXFP4 weights meet Q8 rows (model.md 14, row 1), but for wo_a (row 6). A format without a place is not the
// model's: it shows what the formats cost at one shape.
constexpr Shape kShapes[] = {
    {"flash", "expert w1, w3", kFp8, kFp4, 2304, 5120},
    {"flash", "shared w1, w3", kFp8, kFp8, 2304, 5120},
    {"flash", "", kBf16, kBf16, 2304, 5120},
    {"flash", "expert w2", kFp8, kFp4, 5120, 2304},
    {"flash", "shared w2", kFp8, kFp8, 5120, 2304},
    {"flash", "", kBf16, kBf16, 5120, 2304},
    {"flash", "", kFp8, kFp4, 32768, 1280},
    {"flash", "wq_b", kFp8, kFp8, 32768, 1280},
    {"flash", "", kBf16, kBf16, 32768, 1280},
    {"flash", "wq_a", kFp8, kFp8, 1280, 5120},
    {"flash", "wkv", kFp8, kFp8, 512, 5120},
    {"flash", "wo_a", kBf16, kFp8, 8192, 4096, 8},
    {"flash", "wo_b", kFp8, kFp8, 5120, 8192},
    {"flash", "compressor", kBf16, kBf16, 1024, 5120},
    {"flash", "head", kBf16, kBf16, 129280, 5120, 1, 64},
    {"miniature", "wq_a", kFp8, kFp8, 128, 256},
    {"miniature", "wq_b", kFp8, kFp8, 512, 128},
    {"miniature", "wo_a", kBf16, kFp8, 256, 128, 4},
    {"miniature", "expert w1, w3", kFp8, kFp4, 96, 256},
    {"miniature", "expert w2", kFp8, kFp4, 256, 96},
    {"miniature", "head", kBf16, kBf16, 2880, 256},
};

Result<KernelRun> linear_rows(CaseSpace space, const Shape& shape, const std::shared_ptr<WeightCopies>& weights,
                              bool cold, bool large_pages, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  memory->keep(weights);
  Linear op;
  op.x = memory->rows(shape.x, rows, shape.k * shape.groups);
  op.out = memory->tensor(DType::bf16, rows, shape.n);
  op.groups = shape.groups;
  op.weight = weights->at(0);
  const KernelWork work = work_of(op, cold ? 0 : weights->all_bytes(), large_pages);
  return repeats<&Operations::linear>(memory, work, op,
                                      [weights](Linear& call, int64_t i) { call.weight = weights->at(i); });
}

KernelCase linear_case(const Shape& shape, const CaseSizes& sizes) {
  KernelCase c{"linear", weights_name(shape.weight), size_name(shape.n, shape.k), shape.model, shape.place};
  c.most_rows = shape.most_rows;
  if (shape.groups == 1) c.sizes = {{"n", shape.n}, {"k", shape.k}};
  if (shape.groups > 1) c.shape += "/" + std::to_string(shape.groups);
  const bool cold = c.model == "flash";
  const int64_t all = cold ? sizes.cold_bytes : sizes.warm_bytes;
  c.open = [shape, cold, all, space = sizes.space, large = sizes.large_pages]() -> Result<MakeRows> {
    const auto weights = WeightCopies::make(space, shape.weight, shape.n, shape.k, all, large);
    if (!weights) return weights.error();
    return MakeRows([shape, cold, large, space, weights = *weights](int64_t rows) {
      return linear_rows(space, shape, weights, cold, large, rows);
    });
  };
  return c;
}

}  // namespace

void add_product_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes) {
  for (const Shape& shape : kShapes) cases.push_back(linear_case(shape, sizes));
}

}  // namespace fathom
