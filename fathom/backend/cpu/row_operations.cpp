#include "fathom/backend/cpu/row_operations.h"

namespace fathom::cpu {
namespace {

template <class Op>
void set(void (*&entry)(Queue&, const Op&), const Processor& processor, const Variants<Op>& variants) {
  entry = processor.isa >= Isa::avx512 ? variants.avx512 : variants.avx2;
  if (processor.bf16_dot && variants.avx512_bf16 != nullptr) entry = variants.avx512_bf16;
}

}  // namespace

void set_row_operations(Operations& table, const Processor& processor) {
  if (processor.isa < Isa::avx2) return;
  set(table.embed, processor, kEmbed);
  set(table.rms_norm, processor, kRmsNorm);
  set(table.rope, processor, kRope);
  set(table.encode_rows, processor, kEncodeRows);
  set(table.quantize_rows, processor, kQuantizeRows);
  set(table.compress, processor, kCompress);
  set(table.select_rows, processor, kSelectRows);
  set(table.latent_attention, processor, kLatentAttention);
  set(table.swiglu, processor, kSwiGlu);
  set(table.combine, processor, kCombine);
  set(table.engram_gather, processor, kEngramGather);
  set(table.engram_mix, processor, kEngramMix);
  set(table.stream_mixes, processor, kStreamMixes);
  set(table.stream_collapse, processor, kStreamCollapse);
  set(table.stream_spread, processor, kStreamSpread);
  set(table.stream_mean, processor, kStreamMean);
  set(table.sample, processor, kSample);
}

}  // namespace fathom::cpu
