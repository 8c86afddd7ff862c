// fathom/backend/cpu/isa.h
// Which vector instructions the CPU variants may use. Chosen once, from what the processor and the system say and from
// the cap that the user sets; every variant is also a value, so that tests can run all that this machine has.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/backend/ops.h"
#include "fathom/base/result.h"

namespace fathom::cpu {

/// In rising order: a processor that has one has those before it.
enum class Isa {
  portable,  // any x86-64
  avx2,      // AVX2, FMA, F16C
  avx512,    // AVX-512 F, BW, DQ, VL
  amx,       // the tiles of AMX; its variants are those of avx512 so far
};

struct Processor {
  Isa isa = Isa::portable;
  bool bf16_dot = false;  // with avx512: AVX512-BF16, VNNI and VBMI, products of pairs of bf16 or fours of bytes

  bool operator==(const Processor&) const = default;
};

const char* name_of(Isa isa);

/// Everything that this processor has.
Processor detected_processor();
/// `processor` without what is above the cap; "" is no cap.
/// Errors: usage for an unknown name, unsupported when the processor lacks what is asked for.
Result<Processor> capped_processor(const Processor& processor, std::string_view cap);
/// All variants that run here, slowest first; the last one is detected_processor(), less amx.
std::vector<Processor> runnable_processors();
/// For people: "AVX-512 with BF16 products (this processor's AMX is not used yet)".
std::string describe(const Processor& processor);

/// The reference table with the entries that have a faster variant for `processor`.
Operations cpu_operations(const Processor& processor);

}  // namespace fathom::cpu
