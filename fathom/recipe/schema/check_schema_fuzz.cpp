// Whatever the schema, checking and normalising end with a verdict; a normal form is its own normal form.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fathom/base/check.h"
#include "fathom/recipe/schema/check_schema.h"
#include "fathom/recipe/schema/strict_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom::recipe;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  valid_pattern(text);
  const auto schema = fathom::parse_json(text, "fuzz");
  if (!schema) return 0;
  find_schema_fault(*schema);
  for (const Policy policy : {Policy::lenient, Policy::strict}) {
    const auto normal = normalise_strict_schema(*schema, SchemaUse::response, policy);
    if (!normal) continue;
    const auto again = normalise_strict_schema(*normal, SchemaUse::response, policy);
    fathom::check(again.ok() && *again == *normal, "a normal form is its own normal form");
  }
  return 0;
}
