// fathom/cli/log.h
// Log lines on stderr, as --log-level asks: `level=info model=… threads=2`.
#pragma once
#include <string_view>

#include "fathom/cli/option.h"

namespace fathom::cli {

enum class LogLevel { error, warn, info, debug, trace };

/// One line; `text` is `key=value` pairs with units, or a sentence for warnings.
void log(const Common& common, LogLevel level, std::string_view text);

}  // namespace fathom::cli
