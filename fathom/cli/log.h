// fathom/cli/log.h
// Log lines on stderr, as --log-level asks: `level=info model=… threads=2`. Written at once: a command has no loop that
// a slow terminal could hold up.
#pragma once
#include <string_view>

#include "fathom/base/log.h"
#include "fathom/cli/option.h"

namespace fathom::cli {

/// One line; `text` is `key=value` pairs with units, or a sentence for warnings.
void log(const Common& common, LogLevel level, std::string_view text);

}  // namespace fathom::cli
