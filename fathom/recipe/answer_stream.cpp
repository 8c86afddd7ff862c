#include "fathom/recipe/answer_stream.h"

#include <utility>
#include <variant>

namespace fathom::recipe {

struct AnswerStream::State {
  AnswerWriter writer;
  AnswerReader reader;
  AnswerBody* body = nullptr;
  PromptUsage prompt;
  bool started = false;
  bool ended = false;  // the terminal events, or that of a failure, are out

  /// Writes the opening events if nobody has.
  void start(std::optional<std::string_view> fingerprint, WireEvents& out) {
    if (std::exchange(started, true)) return;
    const AnswerStart start{prompt, fingerprint.value_or(""), fingerprint.has_value()};
    std::visit([&](auto& one) { one.start(start, out); }, writer);
    if (body != nullptr) std::visit([&](auto& one) { one.start(start); }, *body);
  }

  /// Writes what the reader has, when it could be fed.
  Result<void> write(Result<void> fed, WireEvents& out) {
    if (!fed) return fed;
    std::visit(
        [&](auto& one) {
          for (const Delta& delta : reader.deltas()) one.write(delta, out);
          if (reader.finished()) one.finish(reader.end(), out);
        },
        writer);
    ended = ended || reader.finished();
    if (body == nullptr) return {};
    std::visit(
        [&](auto& one) {
          for (const Delta& delta : reader.deltas()) one.write(delta);
          if (reader.finished()) one.finish(reader.end());
        },
        *body);
    return {};
  }

  bool open() const { return !reader.closed() && !reader.finished(); }
};

AnswerStream::AnswerStream(AnswerWriter writer, Parsing parsing, const Tokenizer* tokenizer, uint64_t seed)
    : state_(new State{std::move(writer), AnswerReader(std::move(parsing), tokenizer, seed), nullptr, {}}) {}
AnswerStream::AnswerStream(AnswerStream&&) noexcept = default;
AnswerStream::~AnswerStream() = default;

void AnswerStream::collect_into(AnswerBody* body) { state_->body = body; }

Result<void> AnswerStream::ready(const PromptUsage& prompt, std::optional<std::string_view> system_fingerprint,
                                 WireEvents& out) {
  if (auto fed = state_->reader.ready(prompt); !fed) return fed;
  state_->prompt = prompt;
  state_->start(system_fingerprint, out);
  return {};
}

Result<void> AnswerStream::text(std::string_view content, int64_t token_count, WireEvents& out) {
  if (state_->open()) state_->start({}, out);
  return state_->write(state_->reader.text(content, token_count), out);
}

Result<void> AnswerStream::tokens(std::span<const int32_t> ids, std::span<const TokenLogprob> logprobs,
                                  WireEvents& out) {
  const bool open = state_->open();
  Result<void> fed = state_->reader.tokens(ids, logprobs);
  if (open && (!fed || state_->reader.fed())) state_->start({}, out);
  return state_->write(std::move(fed), out);
}

Result<void> AnswerStream::finish(BackendFinish reason, WireEvents& out) {
  if (state_->open()) state_->start({}, out);
  return state_->write(state_->reader.finish(reason), out);
}

Result<void> AnswerStream::end(WireEvents& out) {
  if (finished()) return {};
  if (state_->open()) state_->start({}, out);
  return state_->write(state_->reader.finish(), out);
}

void AnswerStream::fail(const Error& error, WireEvents& out) {
  if (!std::exchange(state_->ended, true)) {
    std::visit([&](auto& one) { one.fail(error, out); }, state_->writer);
  }
  state_->reader.close();
}

void AnswerStream::keep_alive(WireEvents& out) {
  if (state_->ended) return;
  std::visit([&](auto& one) { one.keep_alive(out); }, state_->writer);
}

void AnswerStream::close() { state_->reader.close(); }
bool AnswerStream::finished() const { return state_->reader.finished(); }
Usage AnswerStream::usage() const { return state_->reader.usage(); }
const AnswerReader& AnswerStream::reader() const { return state_->reader; }

}  // namespace fathom::recipe
