#include "fathom/backend/cuda/instruction_set.h"

#include <string>

namespace fathom::cuda {

Result<InstructionSet> choose_instruction_set(std::string_view gpu, Capability capability, bool sm100_compiled) {
  const auto [major, minor] = capability;
  if (major == 9 && minor == 0) return InstructionSet::sm_90a;
  const bool sm100 = major == 10 && minor == 0;
  if (sm100 && sm100_compiled) return InstructionSet::sm_100a;
  const char* remedy = sm100 ? "this build's kernels are for 9.0 (H100, H200): build with the preset cuda-sm100, whose "
                               "kernels for 10.0 are untested, or use --backend cpu"
                       : sm100_compiled
                           ? "the kernels are built for 9.0 (H100, H200) and 10.0 (B200, GB200): use such "
                             "a GPU, or --backend cpu"
                           : "the kernels are built for 9.0 (H100, H200): use such a GPU, or --backend cpu";
  return Error{
      ErrorCode::unsupported,
      "the GPU " + std::string(gpu) + " has compute capability " + std::to_string(major) + "." + std::to_string(minor),
      "--backend cuda", remedy};
}

std::string_view untested(InstructionSet instructions) {
  if (instructions == InstructionSet::sm_90a) return "";
  return "kernels for sm_100a: native, untested (attention by mma.sync)";
}

}  // namespace fathom::cuda
