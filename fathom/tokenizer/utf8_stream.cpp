#include "fathom/tokenizer/utf8_stream.h"

#include "fathom/tokenizer/unicode/utf8.h"

namespace fathom {

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string_view rest = held_;
  std::string out;
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
  held_ = std::string(rest);
  return out;
}

}  // namespace fathom
