// fathom/model/numerics.h
// Where a run rounds. The two profiles are those of spec/model.md 14; the two golden modes compute in float and exist
// to compare with the PyTorch reference tensor by tensor. Recorded with every result.
#pragma once
#include <optional>
#include <string_view>

#include "fathom/tensor/dtype.h"

namespace fathom {

struct Numerics {
  const char* name = "";
  DType activations = DType::bf16;  // of the residual streams and of what linear maps read and write
  bool round_caches = true;         // window Q8, latents Q4K, index queries and keys Q4I
  bool quantize_inputs = true;      // Q8 in front of FP8 and FP4 weights
  bool quantize_wo_a = false;       // Q8 also in front of wo_a, and z straight from float to Q8
  bool scaled_products = false;     // of codes with their scales where a device has such (Queue::scaled_products)
};

inline constexpr Numerics kReferenceNumerics{"reference", DType::bf16, true, true, false};
inline constexpr Numerics kDeepinferNumerics{"deepinfer", DType::bf16, true, true, true, true};
inline constexpr Numerics kFloatNumerics{"f32", DType::f32, true, false, false};
inline constexpr Numerics kFloatUnroundedNumerics{"f32_noquant", DType::f32, false, false, false};

/// Of the profiles: `deepinfer` on devices, `reference` on CPUs (spec/model.md 14).
inline constexpr Numerics default_numerics(bool device) { return device ? kDeepinferNumerics : kReferenceNumerics; }

/// "reference", "deepinfer" (the profiles of --numerics), "f32", "f32_noquant" (golden modes; bf16_act8 is
/// `reference`).
inline std::optional<Numerics> numerics_of(std::string_view name) {
  for (const Numerics& n : {kReferenceNumerics, kDeepinferNumerics, kFloatNumerics, kFloatUnroundedNumerics}) {
    if (name == n.name) return n;
  }
  if (name == "bf16_act8") return kReferenceNumerics;
  return {};
}

}  // namespace fathom
