// fathom/base/processor_name.h
// What processor this is, as the kernel names it.
#pragma once
#include <string>

namespace fathom {

/// "AMD EPYC 9B14 96-Core Processor"; "" when the kernel does not say. Reads <root>proc/cpuinfo; `root` other than "/"
/// is for tests.
std::string processor_name(const std::string& root = "/");

}  // namespace fathom
