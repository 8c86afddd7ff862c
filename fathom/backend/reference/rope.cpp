// Rotary positions. The angle is a float on purpose: at positions near a million its rounding is visible, and the model
// was trained with it (model.md 5.2, vectors in 16.7).
#include <cmath>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {

void rope(Queue& queue, const Rope& op) {
  const int64_t channels = op.x.cols / op.heads, pairs = int64_t(op.frequencies.size());
  for_each_row(queue, op.x.rows, [&](int64_t r) {
    uint8_t* row = op.x.row(r);
    for (int64_t i = 0; i < pairs; ++i) {
      const float angle = float(op.positions[r]) * op.frequencies[size_t(i)];
      const float cos = float(std::cos(double(angle)));
      const float sin = op.inverse ? -float(std::sin(double(angle))) : float(std::sin(double(angle)));
      for (int64_t head = 0; head < op.heads; ++head) {
        const int64_t at = (head + 1) * channels - 2 * pairs + 2 * i;
        const float a = load(op.x.dtype, row, at), b = load(op.x.dtype, row, at + 1);
        store(op.x.dtype, row, at, a * cos - b * sin);
        store(op.x.dtype, row, at + 1, a * sin + b * cos);
      }
    }
  });
}

}  // namespace fathom::reference
