// Whatever the bytes, a Chat request is refused with a text or converts, under both policies; an image of a converted
// request stands where its message has the image token.
#include <cstddef>
#include <cstdint>

#include "fathom/base/check.h"
#include "fathom/recipe/api/chat_completions/request.h"
#include "fathom/recipe/describe.h"

using namespace fathom::recipe;

static void convert(std::string_view body, Policy policy) {
  ConversionOptions options;
  options.policy = policy;
  auto request = ChatCompletionsRequest::parse(body, policy);
  fathom::check(request.ok() || !request.error().message.empty(), "a refusal says why");
  if (!request) return;
  const auto converted = std::move(*request).convert(options);
  fathom::check(converted.ok() || !converted.error().message.empty(), "a refusal says why");
  if (!converted) return;
  (void)describe(*converted);
  for (const Message& message : converted->conversation.messages) {
    for (const ImageSource& image : message.images) {
      const std::string_view rest = std::string_view(message.content).substr(size_t(image.offset));
      fathom::check(rest.starts_with(options.spellings[SpecialToken::image]), "an image has its token");
    }
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  convert(body, Policy::strict);
  convert(body, Policy::lenient);
  return 0;
}
