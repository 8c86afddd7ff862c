// fathom/model/golden/golden_case.h
// The cases of one cases.json and how each kind is run. Private to the room.
#pragma once
#include <map>

#include "fathom/base/json.h"
#include "fathom/model/golden/golden_compare.h"
#include "fathom/model/golden/golden_file.h"
#include "fathom/model/single_sequence.h"

namespace fathom {

struct GoldenCase {
  std::string name, mode, kind;
  std::optional<int64_t> replay;  // decoder rows kept
  Json json;                      // the whole entry: draft tokens, confidences, accepted counts
  std::map<std::string, GoldenTensor> tensors;
  bool trained = false;  // golden/mini: other tolerances (reference card)
};

using Report = std::function<void(GoldenRow)>;

/// Kinds full, replay and image: one prefill with every stage compared, then single-token decode steps.
void run_prefill_case(SingleSequence& sequence, const GoldenCase& c, const Report& report);

/// Kind dspark: first draft block in full, then plain and speculative greedy decoding. `make` opens fresh sequences.
void run_dspark_case(const std::function<SingleSequence()>& make, const GoldenCase& c, const Report& report);

/// quant.safetensors: the group quantizers on the recorded inputs, exact.
void run_quantizer_case(const std::map<std::string, GoldenTensor>& tensors, const Report& report);

}  // namespace fathom
