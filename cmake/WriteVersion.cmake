# cmake -DVERSION=0.1.0 -DSOURCE=DIR -DOUT=version.cpp -P WriteVersion.cmake
#
# Writes fathom/cli/version.h's two functions. Runs at each build, but touches the file only when the text changes, so
# that a build without a new commit compiles nothing.
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=9 --exclude=* --dirty=+
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
set(text "// Written by cmake/WriteVersion.cmake.
#include \"fathom/cli/version.h\"

namespace fathom::cli {
const char* version() { return \"${VERSION}\"; }
const char* commit() { return \"${commit}\"; }
}  // namespace fathom::cli
")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT "${old}" STREQUAL "${text}")
  file(WRITE ${OUT} "${text}")
endif()
