// Moving rows: embedding, gathering, adding.
#include <cstring>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {

void embed(Queue& queue, const Embed& op) {
  const int64_t hidden = op.table.cols;
  for_each_row(queue, op.ids.shape[0], [&](int64_t r) {
    check(op.ids[r] >= 0 && op.ids[r] < op.table.rows, "a token id lies inside the vocabulary");
    const uint8_t* in = op.table.row(op.ids[r]);
    uint8_t* out = op.out.row(r);
    for (int c = 0; c < op.streams; ++c) {
      for (int64_t h = 0; h < hidden; ++h) store(op.out.dtype, out, c * hidden + h, load(op.table.dtype, in, h));
    }
  });
}

void gather_rows(Queue& queue, const GatherRows& op) {
  const auto bytes = size_t(bytes_of(op.source.dtype, op.source.cols));
  for_each_row(queue, op.index.shape[0], kMoves,
               [&](int64_t i) { std::memcpy(op.out.row(i), op.source.row(op.index[i]), bytes); });
}

void add_rows(Queue& queue, const AddRows& op) {
  for_each_row(queue, op.a.shape[0], kMoves, [&](int64_t r) {
    const auto a = op.a.row(r), b = op.b.row(r);
    const auto out = op.out.row(r);
    for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] + b[i];
  });
}

}  // namespace fathom::reference
