#include "fathom/base/result.h"

namespace fathom {

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage: return "usage";
    case ErrorCode::bad_input: return "bad_input";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::out_of_range: return "out_of_range";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::failed: return "failed";
    case ErrorCode::interrupted: return "interrupted";
  }
  return "failed";
}

std::string to_string(const Error& error) {
  std::string line = error.message;
  if (!error.where.empty()) line += " (" + error.where + ")";
  if (!error.remedy.empty()) line += ": " + error.remedy;
  return line;
}

}  // namespace fathom
