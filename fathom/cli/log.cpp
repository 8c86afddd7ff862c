#include "fathom/cli/log.h"

#include <string>

#include "fathom/cli/terminal.h"

namespace fathom::cli {

void log(const Common& common, LogLevel level, std::string_view text) {
  if (level > log_level_of(common.log_level).value_or(LogLevel::warn)) return;
  print_note(log_line(common.json ? LogFormat::json : LogFormat::human, "", level, text, {}) + "\n");
}

}  // namespace fathom::cli
