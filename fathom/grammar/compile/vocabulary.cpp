#include "fathom/grammar/compile/vocabulary.h"

#include <algorithm>
#include <exception>

#include "fathom/grammar/compile/vocabulary_parts.h"

namespace fathom::grammar {
namespace {

bool steers(std::string_view spelling) {
  return (spelling.starts_with("<｜") && spelling.ends_with("｜>")) ||
         (spelling.starts_with("<|") && spelling.ends_with("|>"));
}

}  // namespace

Result<Vocabulary> Vocabulary::make(const Tokenizer& tokenizer, std::vector<int32_t> stop_ids) {
  std::vector<std::string> tokens;
  tokens.reserve(size_t(tokenizer.size()));
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string_view bytes = tokenizer.bytes_of(id);
    tokens.emplace_back(tokenizer.is_added(id) && steers(bytes) ? std::string_view() : bytes);
  }
  return make(std::move(tokens), std::move(stop_ids));
}

Result<Vocabulary> Vocabulary::make(std::vector<std::string> tokens, std::vector<int32_t> stop_ids) {
  for (const int32_t id : stop_ids) {
    if (id < 0 || size_t(id) >= tokens.size()) {
      return Error{ErrorCode::out_of_range, "stop token " + std::to_string(id) + " is not in the vocabulary",
                   "stop_ids", "its ids are 0 to " + std::to_string(tokens.size() - 1)};
    }
    tokens[size_t(id)].clear();  // else it would also count as the text of its spelling
  }
  try {
    const int size = int(tokens.size());
    xgrammar::TokenizerInfo info(tokens, xgrammar::VocabType::RAW, size, std::move(stop_ids));
    return Vocabulary(std::shared_ptr<const Parts>(new Parts{std::move(info)}));
  } catch (const std::exception& failure) {
    return Error{ErrorCode::failed, std::string("the vocabulary cannot be read: ") + failure.what(), "vocabulary", ""};
  }
}

int32_t Vocabulary::size() const { return parts_->info.GetVocabSize(); }
std::span<const int32_t> Vocabulary::stop_ids() const { return parts_->info.GetStopTokenIds(); }

bool Vocabulary::is_stop(int32_t id) const {
  const auto stops = stop_ids();
  return std::find(stops.begin(), stops.end(), id) != stops.end();
}

std::string_view Vocabulary::bytes_of(int32_t id) const {
  const auto& tokens = parts_->info.GetDecodedVocab();
  return id >= 0 && size_t(id) < tokens.size() ? std::string_view(tokens[size_t(id)]) : std::string_view();
}

}  // namespace fathom::grammar
