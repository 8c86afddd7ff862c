// The n-gram memory: row numbers, rows, and how they enter the streams.
#include <cmath>
#include <cstring>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {

void engram_hash(Queue& queue, const NgramHash& op) {
  const int64_t orders = int64_t(op.multipliers.size()) - 1, heads = int64_t(op.primes.size()) / orders;
  for_each_row(queue, op.rows.rows(), kMoves, [&](int64_t r) {
    const int64_t sequence = op.rows.sequence[r], begin = op.rows.begin[sequence];
    bool blocked = false;  // once the look-back meets the start or an image, everything older is missing too
    int64_t hash = 0;
    for (int64_t back = 0; back <= orders; ++back) {
      const int64_t at = r - back;
      int32_t id = -1;
      if (at >= begin) {
        id = !op.image.empty() && op.image[at] != 0 ? -1 : op.ids[at];
      } else {
        id = op.history(sequence, begin - at - 1);
      }
      blocked = blocked || id < 0;
      const int64_t token = blocked ? op.pad : op.token_map[size_t(id)];
      hash ^= token * op.multipliers[size_t(back)];
      if (back == 0) continue;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t column = (back - 1) * heads + head;
        op.out(r, column) = op.offsets[size_t(column)] + hash % op.primes[size_t(column)];
      }
    }
  });
}

void engram_gather(Queue& queue, const EngramGather& op) {
  const int64_t channels = op.table.cols(), groups = channels / 32;
  for_each_row(queue, op.index.shape[0], kMoves, [&](int64_t r) {
    for (int64_t column = 0; column < op.index.shape[1]; ++column) {
      const int64_t row = op.index(r, column);
      std::memcpy(op.codes.row(r) + column * channels, op.table.values.row(row), size_t(channels));
      std::memcpy(op.scales.row(r) + column * groups, op.table.scales.row(row), size_t(groups));
    }
  });
}

void engram_mix(Queue& queue, const EngramMix& op) {
  const int64_t streams = op.q_weight.rows, hidden = op.q_weight.cols;
  for_each_row(queue, op.streams.rows, [&](int64_t r) {
    if (!op.image.empty() && op.image[r] != 0) return;
    uint8_t* x_row = op.streams.row(r);
    const auto key_value = load_row(op.key_value, r);
    for (int64_t c = 0; c < streams; ++c) {
      double dot = 0, x_square = 0, key_square = 0;
      for (int64_t h = 0; h < hidden; ++h) {
        const double x = load(op.streams.dtype, x_row, c * hidden + h), key = key_value[size_t(c * hidden + h)];
        const double weight =
            double(load(op.q_weight.dtype, op.q_weight.row(c), h)) * load(op.k_weight.dtype, op.k_weight.row(c), h);
        dot += x * weight * key;
        x_square += x * x;
        key_square += key * key;
      }
      const double d = dot * inverse_rms(x_square, hidden, op.eps) * inverse_rms(key_square, hidden, op.eps) /
                       std::sqrt(double(hidden));
      const double gate = 1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::abs(d), 1e-6)), d)));
      for (int64_t h = 0; h < hidden; ++h) {
        const double x = load(op.streams.dtype, x_row, c * hidden + h);
        store(op.streams.dtype, x_row, c * hidden + h, x + gate * key_value[size_t(streams * hidden + h)]);
      }
    }
  });
}

}  // namespace fathom::reference
