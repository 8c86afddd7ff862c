// Rounding rows into cache entries, and putting entries where they belong.
#include <cstring>
#include <vector>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {

void quantize_rows(Queue& queue, const QuantizeRows& op) {
  const auto columns = size_t(op.x.cols);
  for_each_row(queue, op.x.rows, [&](int64_t r) {
    std::vector<uint8_t> entry(size_t(row_bytes(RowFormat::q8, op.x.cols)));
    encode_row(RowFormat::q8, load_row(op.x, r), entry.data());
    std::memcpy(op.codes.row(r), entry.data(), columns);
    std::memcpy(op.scales.row(r), entry.data() + columns, columns / 32);
  });
}

void encode_rows(Queue& queue, const EncodeRows& op) {
  const int64_t channels = op.x.cols / op.heads, bytes = row_bytes(op.format, channels);
  for_each_row(queue, op.x.rows, [&](int64_t r) {
    const auto row = load_row(op.x, r);
    for (int64_t head = 0; head < op.heads; ++head) {
      encode_row(op.format, std::span(row).subspan(size_t(head * channels), size_t(channels)),
                 op.out.row(r).data() + head * bytes);
    }
  });
}

void store_ring(Queue&, const StoreRing& op) {
  for (int64_t s = 0; s < op.rows.sequences(); ++s) {
    const int64_t end = op.rows.begin[s + 1];
    const int64_t begin = std::max<int64_t>(op.rows.begin[s], end - op.ring.capacity);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t position = op.rows.positions[r];
      std::memcpy(op.ring.entry(s, position), op.entries.row(r).data(), size_t(op.ring.entry_bytes));
    }
  }
}

void store_paged(Queue&, const StorePaged& op) {
  for (int64_t i = 0; i < op.entry.shape[0]; ++i) {
    std::memcpy(op.pages.entry(op.sequence[i], op.entry[i]), op.entries.row(i).data(), size_t(op.pages.entry_bytes));
  }
}

}  // namespace fathom::reference
