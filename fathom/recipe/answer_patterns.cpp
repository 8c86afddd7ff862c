#include "fathom/recipe/answer_patterns.h"

#include <algorithm>
#include <utility>

namespace fathom::recipe {
namespace {

bool fits(const AnswerPattern& pattern, size_t at, char byte, Spelling spelling) {
  if (pattern.bytes[at] != byte) return false;
  if (spelling == Spelling::text) return true;
  return (spelling == Spelling::special) == (at >= pattern.special_begin && at < pattern.special_end);
}

}  // namespace

void PatternSet::add(AnswerPattern pattern) {
  if (pattern.bytes.empty()) return;
  const std::string& bytes = pattern.bytes;
  pattern.shorter.assign(bytes.size() + 1, 0);
  for (size_t i = 1, k = 0; i < bytes.size(); ++i) {
    while (k > 0 && bytes[i] != bytes[k]) k = pattern.shorter[k];
    if (bytes[i] == bytes[k]) ++k;
    pattern.shorter[i + 1] = uint32_t(k);
  }
  first_[uint8_t(bytes[0])] = true;
  if (pattern.takes_newlines) first_[uint8_t('\n')] = true;
  patterns_.push_back(std::move(pattern));
  progress_.push_back({});
}

void PatternSet::restart() {
  if (!begun_) return;
  for (Progress& progress : progress_) progress = {};
  begun_ = false;
}

void PatternSet::resume_after(std::string_view prefix) {
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (!std::string_view(patterns_[i].bytes).starts_with(prefix)) continue;
    progress_[i] = {prefix.size(), 0};
    begun_ = true;
  }
}

const AnswerPattern* PatternSet::step(char byte, Spelling spelling) {
  const AnswerPattern* complete = nullptr;
  begun_ = false;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    const AnswerPattern& pattern = patterns_[i];
    auto& [bytes, newlines] = progress_[i];
    size_t k = bytes;
    while (k > 0 && !fits(pattern, k, byte, spelling)) k = pattern.shorter[k];
    if (k < bytes) newlines = 0;
    if (fits(pattern, k, byte, spelling)) {
      ++k;
    } else if (pattern.takes_newlines) {
      // A newline that breaks a beginning off is in no run: so it is in deepseek-recipe (docs/recipe-findings.md).
      newlines = byte == '\n' && bytes == 0 ? newlines + 1 : 0;
    }
    if (k == pattern.bytes.size()) {
      if (complete == nullptr) {
        complete = &pattern;
        match_bytes_ = k + newlines;
      }
      k = pattern.shorter[k];
      newlines = 0;
    }
    bytes = k;
    begun_ = begun_ || k + newlines > 0;
  }
  return complete;
}

size_t PatternSet::held() const {
  size_t most = 0;
  if (!begun_) return most;
  for (const auto& [bytes, newlines] : progress_) most = std::max(most, bytes + newlines);
  return most;
}

}  // namespace fathom::recipe
