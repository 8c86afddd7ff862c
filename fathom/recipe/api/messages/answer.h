// fathom/recipe/api/messages/answer.h
// Answers as Messages: events (`message_start` … `message_stop`) and the complete body. Source: spec/recipe.md 8.4, 9;
// spec/codec-policy.md 3, 5.
#pragma once
#include <string>
#include <vector>

#include "fathom/recipe/answer.h"

namespace fathom::recipe {

struct MessagesForm {
  AnswerIdentity identity;
  bool thinking = true;             // thinking block 0 is opened at the start
  std::string signature;            // of thinking blocks; empty: the id
  Policy policy = Policy::lenient;  // how numbers of a call's input are spelt in the body (strict: spelt anew)
};

/// A delta is one event, behind those that close the block before and open its own.
class MessagesWriter {
 public:
  explicit MessagesWriter(MessagesForm form) : form_(std::move(form)) {}
  void start(const AnswerStart& start, WireEvents& out);
  void write(const Delta& delta, WireEvents& out);
  /// A dropped call's block (D-12) gets no `content_block_stop`, so that no client takes it for a whole one.
  void finish(const AnswerEnd& end, WireEvents& out);
  /// Instead of finish, when generation failed: the event `error`.
  void fail(const Error& error, WireEvents& out);
  /// A sign of life: `ping`; before start an SSE comment.
  void keep_alive(WireEvents& out);

 private:
  enum class Block { none, thinking, text, tool_use, dropped };
  void open(Block block, const Delta& delta, WireEvents& out);
  void close(WireEvents& out);

  MessagesForm form_;
  bool started_ = false, ended_ = false, pinged_ = false;
  Block block_ = Block::none;
  int index_ = -1;          // of the open block
  std::string delta_head_;  // of its deltas, up to the text
};

class MessagesBody {
 public:
  explicit MessagesBody(MessagesForm form) : form_(std::move(form)) {}
  void start(const AnswerStart& start);
  void write(const Delta& delta);
  void finish(const AnswerEnd& end);
  /// Appends the JSON body of all that came so far.
  void append_to(std::string& out) const;

 private:
  struct Block {
    Delta::Kind kind;  // reasoning, content, call
    std::string id;    // call
    std::string name;  // call
    std::string text;  // of a call: its arguments
  };
  MessagesForm form_;
  std::vector<Block> blocks_;
  std::optional<FinishReason> reason_;
  std::optional<std::string> stop_sequence_;
  Usage usage_;
};

}  // namespace fathom::recipe
