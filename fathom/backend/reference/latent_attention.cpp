#include <cmath>
#include <vector>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {
namespace {

// The entry of a window position: computed by this step, or kept in the ring.
const uint8_t* window_entry(const LatentAttention& op, int64_t sequence, int64_t position) {
  const int64_t begin = op.fresh_rows.begin[sequence], end = op.fresh_rows.begin[sequence + 1];
  if (begin < end) {
    const int64_t ahead = position - op.fresh_rows.positions[begin];
    if (ahead >= 0) {
      check(ahead < end - begin, "a window ends with the rows of its step");
      return op.fresh.row(begin + ahead).data();
    }
  }
  return op.ring.entry(sequence, position);
}

// Row r's keys (which are its values too), one after the other: window by position, then entries as listed.
std::vector<float> keys_of(const LatentAttention& op, int64_t r, int64_t channels) {
  const int64_t sequence = op.rows.sequence[r];
  const int64_t window = std::max<int64_t>(0, op.window_end[r] - op.window_begin[r]);
  const int64_t entries = op.entries.empty() ? 0 : op.count[r];
  std::vector<float> keys(size_t((window + entries) * channels));
  const auto key = [&](int64_t i) { return std::span(keys).subspan(size_t(i * channels), size_t(channels)); };
  for (int64_t i = 0; i < window; ++i) {
    decode_row(op.window_format, window_entry(op, sequence, op.window_begin[r] + i), key(i));
  }
  for (int64_t i = 0; i < entries; ++i) {
    decode_row(op.entry_format, op.latents.entry(sequence, op.entries(r, i)), key(window + i));
  }
  return keys;
}

}  // namespace

void latent_attention(Queue& queue, const LatentAttention& op) {
  const int64_t channels = op.queries.cols / op.heads;
  for_each_row(queue, op.rows.rows(), [&](int64_t r) {
    const auto keys = keys_of(op, r, channels);
    const int64_t count = int64_t(keys.size()) / channels;
    std::vector<double> weight(size_t(count), 0.0), sum(size_t(channels), 0.0);
    for (int64_t h = 0; h < op.heads; ++h) {
      double best = op.sink[h];
      for (int64_t k = 0; k < count; ++k) {
        double dot = 0;
        for (int64_t i = 0; i < channels; ++i) {
          dot += double(load(op.queries.dtype, op.queries.row(r), h * channels + i)) * keys[size_t(k * channels + i)];
        }
        weight[size_t(k)] = dot * op.scale;
        best = std::max(best, weight[size_t(k)]);
      }
      double total = std::exp(op.sink[h] - best);  // the sink takes its share and gives nothing
      std::fill(sum.begin(), sum.end(), 0.0);
      for (int64_t k = 0; k < count; ++k) {
        const double p = std::exp(weight[size_t(k)] - best);
        total += p;
        for (int64_t i = 0; i < channels; ++i) sum[size_t(i)] += p * keys[size_t(k * channels + i)];
      }
      for (int64_t i = 0; i < channels; ++i) {
        store(op.out.dtype, op.out.row(r), h * channels + i, count == 0 ? 0 : sum[size_t(i)] / total);
      }
    }
  });
}

}  // namespace fathom::reference
