// Whatever the bytes, parse_json returns a value or an error; a value that it accepts survives writing and reading.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fathom/base/check.h"
#include "fathom/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = fathom::parse_json(text, "fuzz");
  if (!value) return 0;
  const std::string written = fathom::to_string(*value);
  const auto again = fathom::parse_json(written, "fuzz");
  fathom::check(again.ok(), "what to_string wrote parses");
  fathom::check(*again == *value, "a value survives writing and reading");
  fathom::check(fathom::to_string(*again) == written, "writing is stable");
  return 0;
}
