// fathom/backend/cpu/row_operations.h
// The vector variants of the operations that work row by row. Every row's bits are the same in any batch, on any number
// of threads, and with either instruction set (lanes.h); only sums of products of bf16 pairs differ from the others.
#pragma once
#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/cpu/lanes.h"
#include "fathom/backend/ops.h"

namespace fathom::cpu {

extern const Variants<Embed> kEmbed;
extern const Variants<RmsNorm> kRmsNorm;
extern const Variants<Rope> kRope;
extern const Variants<EncodeRows> kEncodeRows;
extern const Variants<QuantizeRows> kQuantizeRows;
extern const Variants<Compress> kCompress;
extern const Variants<SelectRows> kSelectRows;
extern const Variants<LatentAttention> kLatentAttention;
extern const Variants<SwiGlu> kSwiGlu;
extern const Variants<Combine> kCombine;
extern const Variants<EngramGather> kEngramGather;
extern const Variants<EngramMix> kEngramMix;
extern const Variants<StreamMixes> kStreamMixes;
extern const Variants<StreamCollapse> kStreamCollapse;
extern const Variants<StreamSpread> kStreamSpread;
extern const Variants<StreamMean> kStreamMean;
extern const Variants<Sample> kSample;

/// Puts the variants for the processor into the table; nothing for portable.
void set_row_operations(Operations& table, const Processor& processor);

}  // namespace fathom::cpu
