#include "fathom/backend/cpu/isa.h"

namespace fathom::cpu {
namespace {

constexpr Isa kIsas[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::amx};

bool has_amx() {
#if defined(__x86_64__)
  // Leaf 7, EDX: bit 22 AMX-BF16, bit 24 AMX-TILE. __builtin_cpu_supports of g++ 12 does not know them.
  unsigned a = 7, b = 0, c = 0, d = 0;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return (d >> 22 & 1) && (d >> 24 & 1);
#else
  return false;
#endif
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::portable: return "portable";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::amx: return "amx";
  }
  return "";
}

Processor detected_processor() {
  Processor found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return found;
  found.isa = Isa::avx2;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return found;
  }
  found.isa = has_amx() ? Isa::amx : Isa::avx512;
  found.bf16_dot = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi") &&
                   __builtin_cpu_supports("avx512vnni");
#endif
  return found;
}

Result<Processor> capped_processor(const Processor& processor, std::string_view cap) {
  if (cap.empty()) return processor;
  for (const Isa isa : kIsas) {
    if (cap != name_of(isa)) continue;
    if (isa > processor.isa) {
      return Error{ErrorCode::unsupported, "this processor has no " + std::string(cap), "FATHOM_CPU_ISA",
                   "its best is " + std::string(name_of(processor.isa)) + "; pass that or unset the variable"};
    }
    return Processor{isa, isa >= Isa::avx512 && processor.bf16_dot};
  }
  return Error{ErrorCode::usage, "unknown instruction set \"" + std::string(cap) + "\"", "FATHOM_CPU_ISA",
               "pass portable, avx2, avx512 or amx, or unset the variable"};
}

std::vector<Processor> runnable_processors() {
  const Processor best = detected_processor();
  std::vector<Processor> all;
  for (const Isa isa : kIsas) {
    if (isa <= best.isa && isa != Isa::amx) all.push_back({isa, false});
  }
  if (best.bf16_dot) all.push_back({Isa::avx512, true});
  return all;
}

std::string describe(const Processor& processor) {
  switch (processor.isa) {
    case Isa::portable: return "portable code";
    case Isa::avx2: return "AVX2 with FMA";
    case Isa::avx512:
    case Isa::amx: break;
  }
  std::string text = processor.bf16_dot ? "AVX-512 with BF16 products" : "AVX-512";
  if (processor.isa == Isa::amx) text += " (this processor's AMX is not used yet)";
  return text;
}

}  // namespace fathom::cpu
