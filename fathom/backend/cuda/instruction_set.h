// fathom/backend/cuda/instruction_set.h
// Which of the kernels a GPU gets. Most are compiled for every instruction set of the build and need no choice; those
// on asynchronous products are written for one: wgmma for sm_90a, tcgen05 for sm_100a (decision 0018).
#pragma once
#include <string_view>

#include "fathom/base/result.h"

namespace fathom::cuda {

enum class InstructionSet { sm_90a, sm_100a };

struct Capability {
  int major, minor;
};

/// The instruction set for a GPU of this name and compute capability. Pure.
/// Errors: unsupported, with what this build has kernels for and, where another build has them, which.
Result<InstructionSet> choose_instruction_set(std::string_view gpu, Capability capability, bool sm100_compiled);

/// Whether this build has kernels for sm_100a.
bool has_sm100_kernels();

/// What people are told of kernels that never ran on such a GPU; empty for those that did. Pure.
std::string_view untested(InstructionSet instructions);

}  // namespace fathom::cuda
