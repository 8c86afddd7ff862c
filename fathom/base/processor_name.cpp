#include "fathom/base/processor_name.h"

#include <fstream>

namespace fathom {

std::string processor_name(const std::string& root) {
  std::ifstream info(root + "proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0 && line.rfind("CPU implementer", 0) != 0) continue;  // x86, Arm
    const size_t colon = line.find(':');
    const size_t begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

}  // namespace fathom
