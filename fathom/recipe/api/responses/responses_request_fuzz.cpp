// Whatever the bytes, a Responses request is refused with a text or converts, under both policies; what is repeated and
// the map of namespaces can be read before. (Strict may accept what the default policy refuses: D-8 looks at
// definitions that strict drops.)
#include <cstddef>
#include <cstdint>

#include "fathom/base/check.h"
#include "fathom/recipe/api/responses/request.h"
#include "fathom/recipe/describe.h"

using namespace fathom::recipe;

static void convert(std::string_view body, Policy policy) {
  ConversionOptions options;
  options.policy = policy;
  auto request = ResponsesRequest::parse(body, policy);
  fathom::check(request.ok() || !request.error().message.empty(), "a refusal says why");
  if (!request) return;
  const ResponsesEcho echo = request->echo();
  const auto map = request->namespaces(options);
  const auto converted = std::move(*request).convert(options);
  fathom::check(converted.ok() || !converted.error().message.empty(), "a refusal says why");
  fathom::check(map.ok() || !converted.ok(), "what has no map does not convert");
  if (converted) (void)describe(*converted);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  convert(body, Policy::strict);
  convert(body, Policy::lenient);
  return 0;
}
