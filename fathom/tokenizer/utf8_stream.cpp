#include "fathom/tokenizer/utf8_stream.h"

#include "fathom/tokenizer/unicode/utf8.h"

namespace fathom {

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  if (!held_.empty()) {
    held_ += bytes;
    bytes = held_;
  }
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const size_t good = unicode::valid_utf8_prefix(rest);
    out += rest.substr(0, good);
    rest.remove_prefix(good);
    if (rest.empty()) break;
    const auto step = unicode::step_utf8(rest);
    if (step.kind == unicode::Utf8Step::Kind::incomplete) break;
    out += unicode::kReplacement;
    rest.remove_prefix(size_t(step.length));
  }
  char cut[4];  // at most three bytes, perhaps of held_ itself
  const size_t length = rest.copy(cut, sizeof cut);
  held_.assign(cut, length);
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string out;
  push(bytes, out);
  return out;
}

}  // namespace fathom
