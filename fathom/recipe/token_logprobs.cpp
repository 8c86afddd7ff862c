#include "fathom/recipe/token_logprobs.h"

#include <utility>

#include "fathom/recipe/json_text.h"

namespace fathom::recipe {
namespace {

void append_token(std::string& out, int32_t id, float logprob, const Tokenizer& tokenizer) {
  out += R"({"token":)";
  append_quoted(out, tokenizer.token_text(id));
  out += R"(,"logprob":)";
  append_number(out, logprob);
  out += R"(,"bytes":[)";
  bool first = true;
  for (const char byte : tokenizer.bytes_of(id)) {
    if (!std::exchange(first, false)) out += ',';
    append_integer(out, uint8_t(byte));
  }
  out += ']';
}

}  // namespace

void append_logprobs(std::string& out, std::span<const TokenLogprob> logprobs, const Tokenizer& tokenizer) {
  for (const TokenLogprob& token : logprobs) {
    if (!out.empty() && out.back() == '}') out += ',';
    append_token(out, token.id, token.logprob, tokenizer);
    out += R"(,"top_logprobs":[)";
    for (size_t i = 0; i < token.top.size(); ++i) {
      if (i) out += ',';
      append_token(out, token.top[i].first, token.top[i].second, tokenizer);
      out += '}';
    }
    out += "]}";
  }
}

}  // namespace fathom::recipe
