#include "fathom/model/engram/engram.h"

namespace fathom {

void engram(Step& step, const EngramWeights& weights, const EngramHash& hash, std::span<const int32_t> token_map,
            const Batch& batch, AnyViewMut streams, int layer) {
  const int64_t rows = streams.rows, columns = hash.columns(), channels = step.config.engram_head_dim;
  NgramHash lookup;
  lookup.rows = batch.rows;
  lookup.ids = batch.ids;
  lookup.history = batch.history;
  lookup.image = batch.image;
  lookup.token_map = token_map;
  lookup.pad = token_map[size_t(step.config.engram_pad_token_id)];
  lookup.multipliers = hash.multipliers;
  lookup.primes = hash.primes;
  lookup.offsets = hash.offsets;
  lookup.out = step.scratch.table<int64_t>(rows, columns);
  step.ops.engram_hash(step.queue, lookup);
  step.record(layer, "engram_rows",
              AnyView(reinterpret_cast<const uint8_t*>(lookup.out.data), DType::i64, rows, columns));

  // A table row is already what an FP8 weight wants to meet: codes and power-of-two scales. The values are those of a
  // round trip through bf16 (model.md 9.5), so every numerics profile uses them as stored.
  const AnyViewMut codes = step.scratch.rows(DType::f8_e4m3, rows, columns * channels);
  const AnyViewMut scales = step.scratch.rows(DType::f8_e8m0, rows, columns * channels / 32);
  step.ops.engram_gather(step.queue, {weights.table, lookup.out, codes, scales});
  const AnyViewMut key_value = linear(step, Matrix(codes, scales, 1), weights.wkv, step.numerics.activations);
  step.ops.engram_mix(step.queue, {streams, key_value, weights.q_weight, weights.k_weight, batch.image,
                                   float(step.config.rms_norm_eps)});
}

}  // namespace fathom
