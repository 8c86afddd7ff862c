#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {

void norm_row(DType a, std::span<float> row, std::span<const float> weight, double eps) {
  double sum = 0;
  for (const float v : row) sum += double(v) * v;
  const double scale = inverse_rms(sum, int64_t(row.size()), eps);
  for (size_t i = 0; i < row.size(); ++i) row[i] = rounded(a, row[i] * scale * weight[i]);
}

void rms_norm(Queue& queue, const RmsNorm& op) {
  const auto weight = load_row(op.weight, 0);
  for_each_row(queue, op.x.rows, [&](int64_t r) {
    auto row = load_row(op.x, r);
    norm_row(op.x.dtype, row, weight, op.eps);
    put_row(op.out, op.q8, r, row);
  });
}

}  // namespace fathom::reference
