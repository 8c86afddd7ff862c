// Positions here are those of the parser: bytes of the answer. What was fed and is not settled yet stands in `fed_`
// with its range, so that a run that comes out later still finds its tokens.
//
// deepseek-recipe groups the tokens of a chunk (strict): an added token is a group of its own, the ordinary ones
// between are a group that is withheld as long as its text is empty or ends in U+FFFD, and each part of an answer
// carries all log-probabilities of its group. Under lenient only what ends inside a character is withheld, and a token
// belongs to the first part that has one of its bytes.
#include "fathom/recipe/answer_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fathom/base/check.h"
#include "fathom/base/philox.h"
#include "fathom/recipe/answer_parser.h"
#include "fathom/tokenizer/unicode/utf8.h"
#include "fathom/tokenizer/utf8_stream.h"

namespace fathom::recipe {
namespace {

using Kind = Delta::Kind;

/// `call_03_` [`ET_`] 20 letters or digits, 4 digits. Source: spec/recipe.md 8.5.
void append_call_id(std::string& out, uint64_t seed, int call, bool empty_thinking) {
  constexpr std::string_view kCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr uint32_t kPurpose = 0x63616C6C;  // keeps these draws apart from others of the same seed
  out += call < 10 ? "call_0" : "call_";
  out += std::to_string(call);
  out += empty_thinking ? "_ET_" : "_";
  for (uint32_t block = 0; block < 6; ++block) {
    for (const uint32_t draw : philox(seed, {uint32_t(call), block, kPurpose, 0})) {
      const auto below = [draw](uint64_t n) { return uint64_t(draw) * n >> 32; };
      out += block < 5 ? kCharacters[below(kCharacters.size())] : char('0' + below(10));
    }
  }
}

Error failure(std::string message) { return Error{ErrorCode::failed, std::move(message), "", ""}; }

}  // namespace

struct AnswerReader::State {
  /// Something fed: a text chunk, a token, or (strict) a group of tokens.
  struct Fed {
    int64_t begin, end;  // its bytes; an unfinished character counts as one byte, until it comes
    int64_t tokens;
    size_t logprobs_begin, logprobs_end;  // counted from the first of the answer
    bool reasoned = false;                // counted as reasoning
    bool attributed = false;              // its log-probabilities went out (lenient)
  };

  /// A delta whose views are still places in buffers that may move.
  struct Placed {
    Kind kind;
    int call;
    size_t begin, id_begin, end;  // in out_: text, then id
    size_t logprobs_begin, logprobs_end;
  };

  State(Parsing given, const Tokenizer* tokenizer, uint64_t seed)
      : parsing_(std::move(given)),
        lenient_(parsing_.policy == Policy::lenient),
        tokenizer_(tokenizer),
        seed_(seed),
        parser_(parsing_) {}

  // -- calls ----------------------------------------------------------------------------------------------------------

  Result<void> begin() {
    deltas_.clear();
    placed_.clear();
    out_.clear();
    if (closed_) return failure("stream processor is closed");
    if (finished_) return failure("stream processor has finished");
    forget_settled();
    return {};
  }

  Result<void> text(std::string_view content, int64_t token_count) {
    if (auto begun = begin(); !begun) return begun;
    const int64_t first = pushed_ + int64_t(ready_.size());
    Utf8Stream& held = lenient_ ? held_ : text_held_;
    const bool empty = content.empty() && ready_.empty();
    held.push(content, ready_);
    completion_ += token_count;
    add({first, pushed_ + int64_t(ready_.size()) + (held.held().empty() ? 0 : 1), token_count, 0, 0});
    if (!ready_.empty() || empty) push(std::exchange(ready_, std::move(spare_)), Spelling::text);
    return place();
  }

  Result<void> tokens(std::span<const int32_t> ids, std::span<const TokenLogprob> logprobs) {
    if (auto begun = begin(); !begun) return begun;
    if (tokenizer_ == nullptr) return fail("token chunk received without a tokenizer");
    if (!logprobs.empty() && logprobs.size() != ids.size()) {
      return fail("invalid log probabilities: " + std::to_string(logprobs.size()) + " log probabilities for " +
                  std::to_string(ids.size()) + " token IDs");
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      const TokenLogprob* logprob = logprobs.empty() ? nullptr : &logprobs[i];
      if (lenient_) {
        take_token(ids[i], logprob);
      } else {
        take_into_group(ids[i], logprob);
      }
    }
    if (lenient_) {
      if (!ready_.empty() && held_.held().empty()) push(std::exchange(ready_, std::move(spare_)), Spelling::text);
    } else {
      push_group(Spelling::ordinary);
    }
    return place();
  }

  /// `said`: the engine gave the reason; else the input just ended.
  Result<void> finish(BackendFinish reason, bool said) {
    if (auto begun = begin(); !begun) return begun;
    if (!ready_.empty()) push(std::exchange(ready_, std::move(spare_)), Spelling::text);  // held_ is dropped
    if (!finished_) {
      parser_.finish();
      collect();
      end_with(reason, said);
    }
    return place();
  }

  Result<void> fail(std::string message) {
    closed_ = true;
    return failure(std::move(message));
  }

  // -- tokens ---------------------------------------------------------------------------------------------------------

  /// Keeps it; where it is.
  size_t keep(const TokenLogprob* logprob) {
    const size_t place = logprobs_end();
    if (logprob != nullptr) logprobs_.push_back(*logprob);
    return place;
  }

  void take_token(int32_t id, const TokenLogprob* logprob) {
    const size_t kept = keep(logprob);
    const int64_t first = pushed_ + int64_t(ready_.size());
    held_.push(tokenizer_->bytes_of(id), ready_);
    ++completion_;
    add({first, pushed_ + int64_t(ready_.size()) + (held_.held().empty() ? 0 : 1), 1, kept, logprobs_end()});
  }

  void take_into_group(int32_t id, const TokenLogprob* logprob) {
    const bool added = tokenizer_->is_added(id);
    if (added && !group_.empty()) {
      push_group(Spelling::ordinary, true);
      if (finished_) return;
    }
    const size_t kept = keep(logprob);
    if (group_tokens_ == 0) group_logprobs_ = kept;
    group_ += tokenizer_->bytes_of(id);
    ++group_tokens_;
    if (added) push_group(Spelling::special, true);
  }

  /// `whole`: nothing that could complete a last character will come.
  void push_group(Spelling spelling, bool whole = false) {
    if (finished_) return;
    unicode::append_replacing(ready_, group_);
    if (ready_.empty() || (!whole && ready_.ends_with(unicode::kReplacement))) return ready_.clear();
    completion_ += group_tokens_;
    // A group of several chunks, of which only some have log-probabilities, has none.
    const bool complete = logprobs_end() - group_logprobs_ == size_t(group_tokens_);
    add({pushed_, pushed_ + int64_t(ready_.size()), group_tokens_, complete ? group_logprobs_ : logprobs_end(),
         logprobs_end()});
    group_.clear();
    group_tokens_ = 0;
    push(std::exchange(ready_, std::move(spare_)), spelling);
  }

  void add(const Fed& fed) {
    if (!finished_) fed_.push_back(fed);
  }

  size_t logprobs_end() const { return logprobs_gone_ + logprobs_.size(); }

  // -- from the parser ------------------------------------------------------------------------------------------------

  void push(std::string&& bytes, Spelling spelling) {
    any_fed_ = true;
    if (!finished_) {
      parser_.push(bytes, spelling);
      pushed_ += int64_t(bytes.size());
      collect();
      if (parser_.stopped()) {
        // What was fed behind the stop sequence is not counted (a chunk or, strict, a group is never half behind it).
        for (const Fed& fed : fed_) completion_ -= fed.begin >= parser_.taken() ? fed.tokens : 0;
        end_with(BackendFinish::stop, true);
      }
    }
    bytes.clear();
    spare_ = std::move(bytes);  // keeps its memory
  }

  void collect() {
    size_t next = 0;  // in fed_: runs ascend
    for (const AnswerParser::Run& run : parser_.runs()) {
      const std::string_view text = parser_.text(run);
      Placed placed{run.kind, run.call, out_.size(), 0, 0, 0, 0};
      out_ += text;
      placed.id_begin = out_.size();
      if (run.kind == Kind::call) append_call_id(out_, seed_, run.call, parsing_.stage && !reasoning_seen_);
      placed.end = out_.size();
      if (run.kind == Kind::reasoning || run.kind == Kind::content) attribute(run, next, placed);
      if (run.kind == Kind::reasoning && !text.empty()) {
        reasoning_seen_ = true;
        if (!lenient_ && tokenizer_ != nullptr && parsing_.stage) reasoning_ += text;
      }
      placed_.push_back(placed);
    }
  }

  /// Finds what was fed of this run.
  void attribute(const AnswerParser::Run& run, size_t& next, Placed& placed) {
    while (next < fed_.size() && fed_[next].end <= run.input_begin && fed_[next].begin < run.input_begin) ++next;
    for (size_t i = next; i < fed_.size() && fed_[i].begin < run.input_end; ++i) {
      Fed& fed = fed_[i];
      const bool inside = fed.begin < fed.end ? fed.end > run.input_begin : fed.begin >= run.input_begin;
      if (!inside) continue;
      if (run.kind == Kind::reasoning && fed.begin < fed.end && !fed.reasoned) {
        fed.reasoned = true;
        reasoning_tokens_ += fed.tokens;
      }
      if (fed.logprobs_begin == fed.logprobs_end || (lenient_ && fed.attributed)) continue;
      fed.attributed = true;
      if (placed.logprobs_begin == placed.logprobs_end) placed.logprobs_begin = fed.logprobs_begin;
      placed.logprobs_end = fed.logprobs_end;
    }
  }

  /// The views of this call's deltas.
  Result<void> place() {
    for (const Placed& p : placed_) {
      Delta delta;
      delta.kind = p.kind;
      delta.call = p.call;
      delta.text = std::string_view(out_).substr(p.begin, p.id_begin - p.begin);
      delta.id = std::string_view(out_).substr(p.id_begin, p.end - p.id_begin);
      if (p.logprobs_begin < p.logprobs_end) {
        delta.logprobs =
            std::span(logprobs_).subspan(p.logprobs_begin - logprobs_gone_, p.logprobs_end - p.logprobs_begin);
      }
      deltas_.push_back(delta);
    }
    return {};
  }

  void forget_settled() {
    const int64_t settled = parser_.settled();
    size_t gone = 0;
    while (gone < fed_.size() && fed_[gone].end <= settled && fed_[gone].begin < settled) ++gone;
    fed_.erase(fed_.begin(), fed_.begin() + std::ptrdiff_t(gone));
    if (logprobs_.empty()) return;
    size_t first = logprobs_end();  // of what is still needed
    for (const Fed& fed : fed_) {
      if (fed.logprobs_begin < fed.logprobs_end) first = std::min(first, fed.logprobs_begin);
    }
    if (group_tokens_ > 0) first = std::min(first, group_logprobs_);
    const size_t drop = first - logprobs_gone_;
    logprobs_.erase(logprobs_.begin(), logprobs_.begin() + std::ptrdiff_t(drop));
    logprobs_gone_ = first;
  }

  // -- the end --------------------------------------------------------------------------------------------------------

  void end_with(BackendFinish reason, bool said) {
    finished_ = true;
    const int stop = parser_.stop_sequence();
    if (stop >= 0) end_.stop_sequence = parsing_.stop_sequences[size_t(stop)];
    // D-12. An input that just ends is `stop` to deepseek-recipe, whatever calls it had.
    const int calls = lenient_ ? parser_.calls_complete() : said ? parser_.calls_announced() : 0;
    switch (reason) {
      case BackendFinish::stop:
        end_.reason = stop < 0 && calls > 0 ? FinishReason::tool_calls : FinishReason::stop;
        break;
      case BackendFinish::length: end_.reason = FinishReason::length; break;
      case BackendFinish::content_filter: end_.reason = FinishReason::content_filter; break;
    }
  }

  Usage usage() const {
    Usage usage;
    usage.prompt_tokens = prompt_.prompt_tokens;
    usage.cached_tokens = prompt_.cached_tokens;
    usage.completion_tokens = completion_;
    usage.count_reasoning = parsing_.stage && (lenient_ || tokenizer_ != nullptr);  // D-13
    if (!usage.count_reasoning) return usage;
    // deepseek-recipe encodes the text of the reasoning again; that may be another number than what was generated.
    usage.reasoning_tokens = lenient_ ? reasoning_tokens_ : int64_t(tokenizer_->encode(reasoning_).size());
    return usage;
  }

  const Parsing parsing_;
  const bool lenient_;
  const Tokenizer* const tokenizer_;
  const uint64_t seed_;
  AnswerParser parser_;
  PromptUsage prompt_;
  bool closed_ = false, finished_ = false, any_fed_ = false;

  std::string ready_;     // characters that wait to be pushed: a chunk, until its last character is whole
  std::string spare_;     // memory for it
  Utf8Stream held_;       // the beginning of a character (lenient: of text and tokens)
  Utf8Stream text_held_;  // (strict: of text)
  std::string group_;     // bytes of withheld tokens (strict)
  int64_t group_tokens_ = 0;
  size_t group_logprobs_ = 0;  // where theirs begin

  int64_t pushed_ = 0;  // bytes given to the parser
  std::vector<Fed> fed_;
  std::vector<TokenLogprob> logprobs_;  // of fed_ and of the group
  size_t logprobs_gone_ = 0;            // how many were before the first
  int64_t completion_ = 0, reasoning_tokens_ = 0;
  bool reasoning_seen_ = false;
  std::string reasoning_;  // strict: to be counted at the end

  std::string out_;
  std::vector<Placed> placed_;
  std::vector<Delta> deltas_;
  AnswerEnd end_;
};

AnswerReader::AnswerReader(Parsing parsing, const Tokenizer* tokenizer, uint64_t seed)
    : state_(std::make_unique<State>(std::move(parsing), tokenizer, seed)) {}
AnswerReader::AnswerReader(AnswerReader&&) noexcept = default;
AnswerReader::~AnswerReader() = default;

Result<void> AnswerReader::ready(const PromptUsage& prompt) {
  if (auto begun = state_->begin(); !begun) return begun;
  state_->prompt_ = prompt;
  return {};
}
Result<void> AnswerReader::text(std::string_view content, int64_t token_count) {
  return state_->text(content, token_count);
}
Result<void> AnswerReader::tokens(std::span<const int32_t> ids, std::span<const TokenLogprob> logprobs) {
  return state_->tokens(ids, logprobs);
}
Result<void> AnswerReader::finish(BackendFinish reason) { return state_->finish(reason, true); }
Result<void> AnswerReader::finish() { return state_->finish(BackendFinish::stop, false); }
void AnswerReader::close() {
  state_->closed_ = true;
  state_->deltas_.clear();
}
std::span<const Delta> AnswerReader::deltas() const { return state_->deltas_; }
bool AnswerReader::fed() const { return state_->any_fed_; }
bool AnswerReader::finished() const { return state_->finished_ && !state_->closed_; }
bool AnswerReader::closed() const { return state_->closed_; }
AnswerEnd AnswerReader::end() const {
  check(state_->finished_, "an answer has an end when it is finished");
  AnswerEnd end = state_->end_;
  end.usage = state_->usage();
  return end;
}
Usage AnswerReader::usage() const { return state_->usage(); }
int AnswerReader::calls_dropped() const { return state_->parser_.calls_dropped(); }
int64_t AnswerReader::arguments_repaired() const { return state_->parser_.arguments_repaired(); }

}  // namespace fathom::recipe
