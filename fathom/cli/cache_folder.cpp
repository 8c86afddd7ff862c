#include "fathom/cli/cache_folder.h"

#include <cstdlib>

namespace fathom::cli {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string cache_folder(const std::string& part) {
  if (const std::string own = variable("FATHOM_CACHE_DIR"); !own.empty()) return own + "/" + part;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/fathom/" + part;
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/fathom/" + part;
  return "";
}

}  // namespace fathom::cli
