// fathom/cli/cache_folder.h
#pragma once
#include <string>

namespace fathom::cli {

/// Where things that can be made again are kept between runs: FATHOM_CACHE_DIR, else the XDG cache folder's `fathom`,
/// each with `part` below it. "" when the environment names no such place. Creates nothing.
std::string cache_folder(const std::string& part);

}  // namespace fathom::cli
