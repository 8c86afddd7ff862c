#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {

void rms_norm(Queue& queue, const RmsNorm& op) {
  const auto weight = load_row(op.weight, 0);
  for_each_row(queue, op.x.rows, [&](int64_t r) {
    const auto x = load_row(op.x, r);
    double sum = 0;
    for (const float v : x) sum += double(v) * v;
    const double scale = inverse_rms(sum, op.x.cols, op.eps);
    for (size_t i = 0; i < x.size(); ++i) store(op.out.dtype, op.out.row(r), int64_t(i), x[i] * scale * weight[i]);
  });
}

}  // namespace fathom::reference
