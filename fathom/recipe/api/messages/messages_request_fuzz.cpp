// Whatever the bytes, a Messages request is refused with a text or converts; strict accepts nothing that the default
// policy refuses.
#include <cstddef>
#include <cstdint>

#include "fathom/base/check.h"
#include "fathom/recipe/api/messages/request.h"
#include "fathom/recipe/describe.h"

using namespace fathom::recipe;

static bool accepted(std::string_view body, Policy policy) {
  ConversionOptions options;
  options.policy = policy;
  options.messages_web_search = ConversionOptions::WebSearch::drop;
  auto request = MessagesRequest::parse(body, policy);
  fathom::check(request.ok() || !request.error().message.empty(), "a refusal says why");
  if (!request) return false;
  const auto converted = std::move(*request).convert(options);
  fathom::check(converted.ok() || !converted.error().message.empty(), "a refusal says why");
  if (converted) (void)describe(*converted);
  return converted.ok();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const bool strict = accepted(body, Policy::strict), lenient = accepted(body, Policy::lenient);
  fathom::check(lenient || !strict, "the default policy accepts what strict accepts");
  return 0;
}
