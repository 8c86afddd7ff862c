#include "fathom/grammar/compile/matcher.h"

#include <algorithm>
#include <exception>

#include "fathom/base/check.h"
#include "fathom/grammar/compile/time_budget.h"
#include "fathom/grammar/compile/vocabulary_parts.h"

namespace fathom::grammar {

struct Matcher::State {
  CompiledGrammar grammar;
  xgrammar::GrammarMatcher inner;
  int32_t matched = 0;   // bytes of starts_after that the text ends with; -1: the constraint holds
  bool stopped = false;  // by a stop token while waiting
  bool failed = false;
  struct Step {
    int32_t matched;  // before the token
    bool inner;       // the token, or a part of it, went into the grammar
  };
  std::vector<Step> steps;
  TimeBudget budget = {};
};

Matcher::Matcher(const CompiledGrammar& grammar)
    : state_(new State{grammar, xgrammar::GrammarMatcher(grammar.parts().grammar), 0, false, false, {}}) {
  if (grammar.parts().starts_after.empty()) state_->matched = -1;
}
Matcher::Matcher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

Matcher Matcher::fork() const {
  const State& s = *state_;
  return Matcher(
      std::unique_ptr<State>(new State{s.grammar, s.inner.Fork(), s.matched, s.stopped, s.failed, s.steps, s.budget}));
}

bool Matcher::waiting() const { return state_->matched >= 0; }
bool Matcher::finished() const { return waiting() ? state_->stopped : state_->inner.IsTerminated(); }
bool Matcher::complete() const { return !waiting() && (state_->inner.IsTerminated() || state_->inner.IsCompleted()); }

namespace {

Error failure_of(const std::exception& failure) {
  return Error{ErrorCode::failed, std::string("the grammar failed: ") + failure.what(), "constraint", ""};
}

}  // namespace

Result<bool> Matcher::mask(std::span<uint32_t> words) {
  State& s = *state_;
  const auto& parts = s.grammar.parts();
  const auto tokens = size_t(parts.vocabulary.size());
  check(words.size() == parts.vocabulary.mask_words(), "Matcher::mask: words");
  const auto clear_tail = [&] {
    if (tokens % 32 != 0) words.back() &= (uint32_t(1) << (tokens % 32)) - 1;
  };
  if (s.failed) return Error{ErrorCode::failed, "the grammar failed before", "constraint", ""};
  if (waiting() || finished()) {
    std::fill(words.begin(), words.end(), ~uint32_t(0));
    clear_tail();
    if (finished()) return false;
    const auto& refused = parts.refused[size_t(s.matched)];
    for (const int32_t id : refused) words[size_t(id) / 32] &= ~(uint32_t(1) << (id % 32));
    return !refused.empty();
  }
  if (s.budget.used_up()) {
    s.failed = true;
    return Error{ErrorCode::failed,
                 "masks take too long, " + std::to_string(s.steps.size()) + " tokens into the answer", "constraint",
                 "let fewer parts of it overlap, repeat or be left out"};
  }
  s.budget.earn();
  try {
    auto shape = int64_t(words.size());
    DLTensor tensor{words.data(), {kDLCPU, 0}, 1, {kDLInt, 32, 1}, &shape, nullptr, 0};
    const bool binds = s.budget.spend([&] { return s.inner.FillNextTokenBitmask(&tensor); });
    if (!binds) std::fill(words.begin(), words.end(), ~uint32_t(0));
    clear_tail();
    return binds;
  } catch (const std::exception& failure) {
    s.failed = true;
    return failure_of(failure);
  }
}

bool Matcher::accept(int32_t id) {
  State& s = *state_;
  const auto& parts = s.grammar.parts();
  if (s.failed || id < 0 || id >= parts.vocabulary.size() || finished()) return false;
  State::Step step{s.matched, !waiting()};
  try {
    if (step.inner) {
      if (!s.budget.spend([&] { return s.inner.AcceptToken(id); })) return false;
    } else if (parts.vocabulary.is_stop(id)) {
      s.stopped = true;
    } else {
      const std::string_view bytes = parts.vocabulary.bytes_of(id);
      int32_t matched = s.matched;
      for (size_t i = 0; i < bytes.size() && matched >= 0; ++i) {
        matched = parts.next_state[size_t(matched) * 256 + uint8_t(bytes[i])];
        if (size_t(matched) < parts.starts_after.size()) continue;
        const std::string_view rest = bytes.substr(i + 1);
        step.inner = !rest.empty();
        if (step.inner && !s.budget.spend([&] { return s.inner.AcceptString(std::string(rest)); })) return false;
        matched = -1;
      }
      // A token that no text contains (a role) interrupts what was matched.
      s.matched = bytes.empty() ? 0 : matched;
    }
  } catch (const std::exception&) {
    s.failed = true;
    return false;
  }
  s.steps.push_back(step);
  return true;
}

void Matcher::rollback(int tokens) {
  State& s = *state_;
  check(tokens >= 0 && size_t(tokens) <= s.steps.size(), "Matcher::rollback: more than was accepted");
  int inner = 0;
  for (; tokens > 0; --tokens) {
    const State::Step& step = s.steps.back();
    if (step.inner) ++inner;
    s.matched = step.matched;
    s.stopped = false;
    s.steps.pop_back();
  }
  if (inner > 0) s.inner.Rollback(inner);
}

std::vector<int32_t> Matcher::forced() const {
  if (waiting() || finished() || state_->failed) return {};
  try {
    return state_->inner.FindJumpForwardTokens();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace fathom::grammar
