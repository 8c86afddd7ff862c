// Whatever the bytes, parse_json returns a value or an error; a value that it accepts survives writing and reading, and
// the reader that looks for faults finds none in it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fathom/base/check.h"
#include "fathom/base/json.h"
#include "fathom/base/json_fault.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = fathom::parse_json(text, "fuzz");
  const auto fault = fathom::find_json_fault(text);
  fathom::check(!fault || fault->byte <= text.size(), "a fault lies in the text");
  if (!value) return 0;
  fathom::check(!fault, "a text that is read has no fault");
  const std::string written = fathom::to_string(*value);
  const auto again = fathom::parse_json(written, "fuzz");
  fathom::check(again.ok(), "what to_string wrote parses");
  fathom::check(*again == *value, "a value survives writing and reading");
  fathom::check(fathom::to_string(*again) == written, "writing is stable");
  return 0;
}
