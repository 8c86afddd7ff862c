// Rotary positions. The angle is a float on purpose: at positions near a million its rounding is visible, and the model
// was trained with it (model.md 5.2, vectors in 16.7).
#include <cmath>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {

void turn_row(DType a, std::span<float> row, int heads, const Turn& turn, int64_t r) {
  const size_t channels = row.size() / size_t(heads), pairs = turn.frequencies.size();
  for (size_t i = 0; i < pairs; ++i) {
    const float angle = float(turn.positions[r]) * turn.frequencies[i];
    const float cos = float(std::cos(double(angle)));
    const float sin = turn.inverse ? -float(std::sin(double(angle))) : float(std::sin(double(angle)));
    for (size_t head = 1; head <= size_t(heads); ++head) {
      float* pair = row.data() + head * channels - 2 * pairs + 2 * i;
      const float x = pair[0], y = pair[1];
      pair[0] = rounded(a, x * cos - y * sin);
      pair[1] = rounded(a, x * sin + y * cos);
    }
  }
}

void rope(Queue& queue, const Rope& op) {
  for_each_row(queue, op.x.rows, [&](int64_t r) {
    auto row = load_row(op.x, r);
    turn_row(op.x.dtype, row, op.heads, {op.positions, op.frequencies, op.inverse}, r);
    put_row(op.x, {}, r, row);
  });
}

}  // namespace fathom::reference
