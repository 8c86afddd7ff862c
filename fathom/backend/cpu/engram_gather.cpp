// Rows of the n-gram tables: 32 bytes and a scale at places that nothing foresees, in a table that no cache holds.
// Those of the rows behind are called for while one is copied; a table that is a mapped file is read from its page
// cache.
#include <cstring>

#include "fathom/backend/cpu/row_operations.h"

namespace fathom::cpu {
namespace {

void call_for_row(const EngramGather& op, int64_t r) {
  const int64_t channels = op.table.cols();
  for (int64_t column = 0; column < op.index.shape[1]; ++column) {
    const int64_t row = op.index(r, column);
    const uint8_t* values = op.table.values.row(row);
    for (int64_t i = 0; i < channels; i += 64) __builtin_prefetch(values + i);
    __builtin_prefetch(op.table.scales.row(row));
  }
}

void piece(const EngramGather& op, int64_t begin, int64_t end) {
  constexpr int64_t kAhead = 3;  // rows of a dozen or more lines each, as many as a core waits for at a time
  const int64_t channels = op.table.cols(), groups = channels / 32;
  for (int64_t r = begin; r < std::min(begin + kAhead, end); ++r) call_for_row(op, r);
  for (int64_t r = begin; r < end; ++r) {
    if (r + kAhead < end) call_for_row(op, r + kAhead);
    for (int64_t column = 0; column < op.index.shape[1]; ++column) {
      const int64_t row = op.index(r, column);
      std::memcpy(op.codes.row(r) + column * channels, op.table.values.row(row), size_t(channels));
      std::memcpy(op.scales.row(r) + column * groups, op.table.scales.row(row), size_t(groups));
    }
  }
}

void run(Queue& queue, const EngramGather& op) {
  for_row_pieces(queue, op.index.shape[0], 30 * op.index.shape[1], [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<EngramGather> kEngramGather{run, run};

}  // namespace fathom::cpu
