#include "fathom/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace fathom {

void check_failed(const char* what, const std::source_location& at) {
  std::fprintf(stderr, "fathom: internal error: %s (%s:%u, %s): this is a bug of fathom; please report it.\n", what,
               at.file_name(), unsigned(at.line()), at.function_name());
  std::abort();
}

}  // namespace fathom
