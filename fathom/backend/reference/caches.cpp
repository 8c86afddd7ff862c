// Rounding rows into cache entries, and putting entries where they belong.
#include <cstring>
#include <vector>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {

void put_q8(const Q8Rows& q8, int64_t r, std::span<const float> row) {
  std::vector<uint8_t> entry(size_t(row_bytes(RowFormat::q8, int64_t(row.size()))));
  encode_row(RowFormat::q8, row, entry.data());
  std::memcpy(q8.codes.row(r), entry.data(), row.size());
  std::memcpy(q8.scales.row(r), entry.data() + row.size(), row.size() / 32);
}

void put_row(const AnyViewMut& out, const Q8Rows& q8, int64_t r, std::span<const float> row) {
  for (size_t i = 0; out.data != nullptr && i < row.size(); ++i) store(out.dtype, out.row(r), int64_t(i), row[i]);
  if (q8.wanted()) put_q8(q8, r, row);
}

void quantize_rows(Queue& queue, const QuantizeRows& op) {
  for_each_row(queue, op.x.rows, [&](int64_t r) {
    auto row = load_row(op.x, r);
    if (op.turn.wanted()) turn_row(op.x.dtype, row, op.heads, op.turn, r);
    put_q8({op.codes, op.scales}, r, row);
  });
}

void encode_rows(Queue& queue, const EncodeRows& op) {
  const int64_t channels = op.x.cols / op.heads, bytes = row_bytes(op.format, channels);
  const auto weight = op.norm.wanted() ? load_row(op.norm.weight, 0) : std::vector<float>();
  for_each_row(queue, op.x.rows, [&](int64_t r) {
    auto row = load_row(op.x, r);
    if (op.norm.wanted()) norm_row(op.x.dtype, row, weight, op.norm.eps);
    if (op.turn.wanted()) turn_row(op.x.dtype, row, op.heads, op.turn, r);
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
