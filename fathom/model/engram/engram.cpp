#include "fathom/model/engram/engram.h"

namespace fathom {

namespace {

// Codes and scales of the rows that each token looks up.
Matrix looked_up(Step& step, const Matrix& table, const NgramHash& lookup) {
  const int64_t rows = lookup.out.shape[0], values = lookup.out.shape[1] * table.cols();
  // A table row is already what an FP8 weight wants to meet: codes and power-of-two scales. The values are those of a
  // round trip through bf16 (model.md 9.5), so every numerics profile uses them as stored.
  Scratch& memory = step.reader != nullptr ? step.host : step.scratch;
  const AnyViewMut codes = memory.rows(DType::f8_e4m3, rows, values);
  const AnyViewMut scales = memory.rows(DType::f8_e8m0, rows, values / 32);
  const Operations& ops = step.reader != nullptr ? step.reader->ops : step.ops;
  Queue& queue = step.reader != nullptr ? *step.reader->queue : step.queue;
  ops.engram_hash(queue, lookup);
  ops.engram_gather(queue, {table, lookup.out, codes, scales});
  return Matrix(codes, scales, 1);
}

}  // namespace

void engram(Step& step, const EngramWeights& weights, const EngramHash& hash, std::span<const int32_t> token_map,
            const Batch& batch, AnyViewMut streams, int layer) {
  const int64_t rows = streams.rows, columns = hash.columns();
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
  lookup.out = (step.reader != nullptr ? step.results : step.scratch).table<int64_t>(rows, columns);
  const Matrix found = looked_up(step, weights.table, lookup);
  step.record(layer, "engram_rows",
              AnyView(reinterpret_cast<const uint8_t*>(lookup.out.data), DType::i64, rows, columns));
  const AnyViewMut key_value = linear(step, found, weights.wkv, step.numerics.activations);
  step.ops.engram_mix(step.queue, {streams, key_value, weights.q_weight, weights.k_weight, batch.image,
                                   float(step.config.rms_norm_eps)});
}

}  // namespace fathom
