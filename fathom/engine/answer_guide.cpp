#include "fathom/engine/answer_guide.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fathom {
namespace {

constexpr uint32_t bit_of(int32_t id) { return uint32_t(1) << (id % 32); }

}  // namespace

AnswerGuide::AnswerGuide(const grammar::CompiledGrammar& grammar, const grammar::Vocabulary& vocabulary,
                         const SamplerState& state, std::span<const int32_t> stop_ids, int drafts)
    : matcher_(grammar) {
  const auto rows = size_t(drafts) + 1;
  masks_.words = vocabulary.mask_words();
  masks_.bits.resize(rows * masks_.words);
  masks_.only_ends.resize(rows);
  assumed_.reserve(rows);
  const auto known = [&](int32_t id) { return id < vocabulary.size(); };  // others never come anyway
  ends_.assign(vocabulary.stop_ids().begin(), vocabulary.stop_ids().end());
  std::copy_if(stop_ids.begin(), stop_ids.end(), std::back_inserter(ends_), known);
  std::sort(ends_.begin(), ends_.end());
  ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
  std::copy_if(state.blacklist.begin(), state.blacklist.end(), std::back_inserter(forbidden_), known);
  for (const auto& [id, bias] : state.settings.logit_bias) {
    if (known(id) && std::isinf(bias)) forbidden_.push_back(id);
  }
}

void AnswerGuide::go_back(size_t assumed) {
  if (assumed == assumed_.size()) return;
  matcher_.rollback(int(assumed_.size() - assumed));
  assumed_.resize(assumed);
  filled_ = std::min(filled_, assumed + 1);
}

bool AnswerGuide::fill_row(size_t k) {
  const auto row = masks_.row(k);
  if (const auto binds = matcher_.mask(row); !binds) {
    error_ = binds.error();
    return false;
  }
  const bool whole = matcher_.complete();
  for (const int32_t id : ends_) {
    uint32_t& word = row[size_t(id) / 32];
    word = whole ? word | bit_of(id) : word & ~bit_of(id);
  }
  for (const int32_t id : forbidden_) row[size_t(id) / 32] &= ~bit_of(id);
  int64_t left = 0, ends = 0;
  for (const uint32_t word : row) left += std::popcount(word);
  for (const int32_t id : ends_) ends += (row[size_t(id) / 32] & bit_of(id)) != 0;
  masks_.only_ends[k] = left == ends;
  if (left > 0) return true;
  error_ = {ErrorCode::failed, "the constraint leaves no token that may come next", "constraint",
            forbidden_.empty() ? "loosen it" : "loosen it, or forbid fewer tokens"};
  return false;
}

int AnswerGuide::fill(std::span<const int32_t> drafts) {
  go_back(
      size_t(std::mismatch(assumed_.begin(), assumed_.end(), drafts.begin(), drafts.end()).first - assumed_.begin()));
  while (filled_ <= drafts.size()) {
    while (assumed_.size() < filled_) {
      const int32_t draft = drafts[assumed_.size()];
      if (!matcher_.accept(draft)) return int(filled_);
      assumed_.push_back(draft);
    }
    if (!fill_row(filled_)) return int(filled_);
    ++filled_;
  }
  return int(drafts.size()) + 1;
}

Result<void> AnswerGuide::begin() {
  if (fill({}) == 0) return error_;
  return {};
}

Result<void> AnswerGuide::take_back(int tokens) {
  go_back(0);
  matcher_.rollback(tokens);
  filled_ = 0;
  return begin();
}

Result<void> AnswerGuide::commit(std::span<const int32_t> tokens) {
  const auto same =
      size_t(std::mismatch(assumed_.begin(), assumed_.end(), tokens.begin(), tokens.end()).first - assumed_.begin());
  go_back(same);
  for (const int32_t token : tokens.subspan(same)) {
    if (matcher_.accept(token)) continue;
    return Error{ErrorCode::failed, "token " + std::to_string(token) + " is not what the constraint allows",
                 "constraint", "force no tokens that it refuses"};
  }
  assumed_.clear();
  filled_ = 0;
  return begin();
}

}  // namespace fathom
