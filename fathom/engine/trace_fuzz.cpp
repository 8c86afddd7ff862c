// Whatever the bytes, parse_trace reads each line to a request or to one error that names its line; what was read
// survives writing and reading.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fathom/base/check.h"
#include "fathom/engine/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const fathom::TraceFile file = fathom::parse_trace(text, "fuzz");
  for (const fathom::Error& error : file.errors) {
    fathom::check(error.where.starts_with("fuzz, line "), "an error names its line");
    fathom::check(!error.message.empty(), "an error says what is wrong");
  }
  for (const fathom::TraceRequest& request : file.requests) {
    fathom::check(request.prompt_tokens > 0 && request.output_tokens > 0, "a request has a prompt and an answer");
    int64_t shared = 0;
    for (const fathom::TextPart& part : request.prefix) shared += part.tokens;
    fathom::check(shared <= request.prompt_tokens, "a prefix is part of the prompt");
  }
  const std::string written = fathom::write_trace(file.requests);
  const fathom::TraceFile again = fathom::parse_trace(written, "fuzz");
  fathom::check(again.errors.empty() && again.requests == file.requests, "a trace survives writing and reading");
  return 0;
}
