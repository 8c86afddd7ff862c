#include "fathom/cli/log.h"

#include <algorithm>
#include <array>
#include <string>

#include "fathom/cli/terminal.h"

namespace fathom::cli {

void log(const Common& common, LogLevel level, std::string_view text) {
  constexpr std::array<std::string_view, 5> kNames = {"error", "warn", "info", "debug", "trace"};
  const auto limit = std::find(kNames.begin(), kNames.end(), common.log_level) - kNames.begin();
  if (int(level) > limit) return;
  print_note("level=" + std::string(kNames[size_t(level)]) + " " + std::string(text) + "\n");
}

}  // namespace fathom::cli
