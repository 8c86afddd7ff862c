#include "fathom/recipe/answer_stages.h"

#include <string>
#include <string_view>
#include <utility>

namespace fathom::recipe {
namespace {

void add(PatternSet& set, std::string bytes, Effect effect, std::string_view special = "",
         bool takes_newlines = false) {
  const size_t at = special.empty() ? 0 : bytes.find(special);
  set.add({std::move(bytes), effect, 0, takes_newlines, at, at + special.size(), {}});
}

void add_stops(PatternSet& set, const Parsing& parsing) {
  for (size_t i = 0; i < parsing.stop_sequences.size(); ++i) {
    set.add({parsing.stop_sequences[i], Effect::stop, int(i), false, 0, 0, {}});
  }
}

void add_block_ends(PatternSet& set, const std::string& dsml) {
  for (const char* block : {"tool_calls>", " calls>"}) add(set, "</" + dsml + block, Effect::end_block, dsml);
}

}  // namespace

// The order within a set matters: of the patterns that one byte completes, the first wins.
StagePatterns patterns_of(const Parsing& parsing) {
  StagePatterns sets;
  const auto at = [&](Stage stage) -> PatternSet& { return sets[size_t(stage)]; };
  const std::string& dsml = parsing.spellings[SpecialToken::dsml];
  const std::string& thought = parsing.spellings[SpecialToken::thinking_end];
  const std::string open = "<" + dsml, close = "</" + dsml;

  if (parsing.json_output) {
    for (const char* fence : {"```json\n", "```\n"}) add(at(Stage::text), fence, Effect::open_fence);
    for (const char* bracket : {"{", "["}) add(at(Stage::text), bracket, Effect::open_json);
  } else {
    add_stops(at(Stage::text), parsing);
  }
  add_stops(at(Stage::json), parsing);
  add(at(Stage::json), "\n```", Effect::close_fence);
  if (parsing.tool_calls) {
    for (const Stage stage : {Stage::text, Stage::json_done, Stage::reason}) {
      add(at(stage), open, Effect::open_calls, dsml, true);
    }
  }
  add(at(Stage::text), thought, Effect::end_thinking, thought);
  add(at(Stage::reason), thought, Effect::end_thinking, thought, true);

  if (parsing.policy == Policy::strict) {
    add(at(Stage::calls), "invoke name=\"", Effect::begin_call);
    add(at(Stage::name), "\"", Effect::announce);
    add(at(Stage::args), "parameter name=", Effect::begin_parameter);
    add(at(Stage::key), " ", Effect::end_key);
    add(at(Stage::type), "true\">", Effect::begin_string);
    add(at(Stage::type), "false\">", Effect::begin_raw);
  } else {
    // The opening marker is not required, as under strict; without it only the plain form is a tag.
    for (const char* separator : {"", " "}) {
      add(at(Stage::calls), open + separator + "invoke", Effect::invoke_tag, dsml);
      add(at(Stage::args), open + separator + "parameter", Effect::parameter_tag, dsml);
      add(at(Stage::skipped_call), close + separator + "invoke", Effect::end_skipped_call, dsml);
    }
    add(at(Stage::calls), "invoke name=\"", Effect::invoke_name);
    add(at(Stage::args), "parameter name=", Effect::parameter_name);
    add_block_ends(at(Stage::skipped_call), dsml);
    add(at(Stage::skipped_value), close, Effect::end_skipped_value, dsml);
  }
  add_block_ends(at(Stage::calls), dsml);
  add(at(Stage::args), close, Effect::close_call, dsml);
  for (const Stage stage : {Stage::string_value, Stage::raw_value}) add(at(stage), close, Effect::end_value, dsml);
  return sets;
}

}  // namespace fathom::recipe
