// fathom/cli/version.h
// Which fathom this is. version.cpp is written by the build (cmake/WriteVersion.cmake).
#pragma once

namespace fathom::cli {

const char* version();  // "0.1.0"
const char* commit();   // "8a00891", with "+" behind it when files differ from it; "unknown" outside git

}  // namespace fathom::cli
