// fathom/recipe/api/responses/answer_output.h
// The response object in the making, for the streamed and the complete form alike: both keep the finished items and the
// one that is open, because the closing events repeat them. Source: spec/recipe.md 9 (Responses).
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "fathom/recipe/api/responses/answer.h"
#include "fathom/recipe/api/responses/patch_input.h"

namespace fathom::recipe {

/// `out` may be null: then no events are written. A delta's event costs copies of ready strings and of its text.
class ResponsesOutput {
 public:
  explicit ResponsesOutput(ResponsesForm form);
  void start(WireEvents* out);
  void write(const Delta& delta, WireEvents* out);
  void finish(const AnswerEnd& end, WireEvents* out);
  void fail(const Error& error, WireEvents& out);
  void keep_alive(WireEvents& out);
  /// The response object as it is now.
  void append_response(std::string& out) const;

 private:
  enum class Item { none, reasoning, message, function_call, patch_call, tool_search };
  enum class Status { in_progress, completed, incomplete, failed };
  static std::string_view name_of(Status status);

  Item item_of(const Delta& delta) const;
  void open(Item item, const Delta& delta, WireEvents* out);
  void close(bool incomplete, bool call_follows, WireEvents* out);
  void close_text(WireEvents& out);
  void close_call(WireEvents& out);
  void write_text(const Delta& delta, WireEvents* out);
  void write_arguments(std::string_view text, WireEvents* out);
  void add_delta(size_t before, WireEvents& out);

  /// The open item as it is now; without its text when it has just been added.
  void append_item(std::string& out, Status status, std::string_view phase) const;
  /// `,"item_id":"…","output_index":N`
  void append_place(std::string& out) const;
  void append_part(std::string& out, bool empty) const;
  /// Ends an event: `,"sequence_number":N}`
  void add(std::string_view name, size_t begin, WireEvents& out);
  void add_response(std::string_view name, WireEvents& out);

  ResponsesForm form_;
  bool patch_declared_, search_declared_;
  bool started_ = false, ended_ = false;
  int64_t sequence_ = 0;

  // The response object: its constant parts, and what changes.
  std::string head_;           // up to the status
  std::string before_output_;  // from the instructions up to the items
  std::string after_output_;   // behind the items up to the usage
  std::string foot_;           // behind the usage
  Status status_ = Status::in_progress;
  int64_t completed_at_ = 0;
  std::string error_, incomplete_reason_;  // JSON; empty: null
  std::string items_;                      // the finished ones, JSON, joined by commas
  std::optional<Usage> usage_;

  // The open item.
  Item item_ = Item::none;
  int index_ = -1;                // in `output`
  std::string item_id_;           // escaped
  std::string call_id_;           // calls
  std::string name_, namespace_;  // function_call
  std::string text_;              // reasoning, content, arguments or input so far
  std::string logprobs_;          // message: JSON, joined by commas
  PatchInput patch_;              // patch_call
  bool dropped_ = false;
  std::string delta_head_;      // of a delta, up to its text
  std::string delta_tail_;      // from behind the text up to the sequence number; message: up to the logprobs
  std::string delta_tail_end_;  // message: from behind the logprobs up to the sequence number
};

}  // namespace fathom::recipe
