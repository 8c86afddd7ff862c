// fathom/recipe/api/messages/answer.h
// Answers as Messages: events (`message_start` … `message_stop`) and the complete body. Source: spec/recipe.md 8.4, 9.
#pragma once
#include <string>
#include <vector>

#include "fathom/recipe/answer.h"

namespace fathom::recipe {

struct MessagesForm {
  AnswerIdentity identity;
  bool thinking = true;   // thinking block 0 is opened at the start
  std::string signature;  // of thinking blocks; empty: the id
};

class MessagesWriter {
 public:
  explicit MessagesWriter(MessagesForm form);
  void start(const AnswerStart& start, WireEvents& out);
  void write(const Delta& delta, WireEvents& out);
  void finish(const AnswerEnd& end, WireEvents& out);

 private:
  MessagesForm form_;
};

class MessagesBody {
 public:
  explicit MessagesBody(MessagesForm form);
  void start(const AnswerStart& start);
  void write(const Delta& delta);
  void finish(const AnswerEnd& end);
  /// Appends the JSON body of all that came so far.
  void append_to(std::string& out) const;

 private:
  MessagesForm form_;
};

}  // namespace fathom::recipe
