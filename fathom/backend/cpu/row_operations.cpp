#include "fathom/backend/cpu/row_operations.h"

namespace fathom::cpu {
namespace {

template <class Op>
void set(void (*&entry)(Queue&, const Op&), Isa isa, const Variants<Op>& variants) {
  entry = isa >= Isa::avx512 ? variants.avx512 : variants.avx2;
}

}  // namespace

void set_row_operations(Operations& table, Isa isa) {
  if (isa < Isa::avx2) return;
  set(table.embed, isa, kEmbed);
  set(table.rms_norm, isa, kRmsNorm);
  set(table.rope, isa, kRope);
  set(table.encode_rows, isa, kEncodeRows);
  set(table.quantize_rows, isa, kQuantizeRows);
  set(table.compress, isa, kCompress);
  set(table.select_rows, isa, kSelectRows);
  set(table.latent_attention, isa, kLatentAttention);
  set(table.swiglu, isa, kSwiGlu);
  set(table.combine, isa, kCombine);
  set(table.engram_mix, isa, kEngramMix);
  set(table.stream_mixes, isa, kStreamMixes);
  set(table.stream_collapse, isa, kStreamCollapse);
  set(table.stream_spread, isa, kStreamSpread);
  set(table.stream_mean, isa, kStreamMean);
  set(table.sample, isa, kSample);
}

}  // namespace fathom::cpu
