#include "fathom/base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "fathom/base/check_note.h"

namespace fathom {

void check_failed(const char* what, const std::source_location& at) {
  const std::string notes = check_notes();
  std::fprintf(stderr, "fathom: internal error: %s (%s:%u, %s)%s%s: this is a bug of fathom; please report it.\n", what,
               at.file_name(), unsigned(at.line()), at.function_name(), notes.empty() ? "" : " while ", notes.c_str());
  std::abort();
}

}  // namespace fathom
