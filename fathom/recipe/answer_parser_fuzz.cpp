// Outputs, options and cuts from the fuzzer's bytes; what must hold for all of them is checked, not what they mean.
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/base/json.h"
#include "fathom/recipe/testing/read_answer.h"

namespace {

using namespace fathom;
using namespace fathom::recipe;

/// One byte of the input stands for each of these, so that the fuzzer need not find them.
constexpr std::string_view kWords[] = {"<｜DSML｜ calls>",
                                       "<｜DSML｜ invoke name=\"f\">",
                                       "<｜DSML｜ parameter name=\"k\" string=\"true\">",
                                       "<｜DSML｜parameter name=\"n\" string=\"false\">",
                                       "</｜DSML｜ parameter>",
                                       "</｜DSML｜ invoke>",
                                       "</｜DSML｜ calls>",
                                       "</think>",
                                       "```json\n",
                                       "\n```",
                                       "｜DSML｜",
                                       " name=\"",
                                       " string=\"false\""};
constexpr uint8_t kFirstWord = 0xC0;  // some lead bytes of two-byte characters: those the fuzzer must do without

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  Parsing parsing;
  parsing.policy = data[0] & 1 ? Policy::strict : Policy::lenient;
  parsing.tool_calls = (data[0] & 2) == 0;
  parsing.starts_in_tool_calls = (data[0] & 12) == 12;
  parsing.json_output = (data[0] & 48) == 48;
  if ((data[0] >> 6) > 0) parsing.stage = ThinkingStage((data[0] >> 6) - 1);
  if (data[1] & 1) parsing.stop_sequences = {"STOP", "ST", "\n\n"};
  if (data[1] & 2) parsing.required_parameters["f"] = {"k"};
  const size_t cut = 1 + (data[1] >> 2);

  std::string text;
  for (size_t i = 2; i < size; ++i) {
    const size_t word = size_t(data[i]) - kFirstWord;
    if (data[i] >= kFirstWord && word < std::size(kWords)) {
      text += kWords[word];
    } else {
      text += char(data[i]);
    }
  }
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += cut) pieces.push_back(text.substr(at, cut));

  const auto whole = answers::read(parsing, {text}), parts = answers::read(parsing, pieces);
  const bool strict_json = parsing.policy == Policy::strict && parsing.json_output;
  check(strict_json || whole.same_as(parts), "an answer does not depend on its cuts");
  check(parts.usage.reasoning_tokens <= parts.usage.completion_tokens, "reasoning is part of the answer");
  check(valid_utf8_prefix(parts.content) == parts.content.size(), "content is UTF-8");
  if (parsing.policy == Policy::strict) return 0;
  for (const auto& call : whole.calls) {
    check(call.complete != call.dropped, "a call is whole or dropped");
    if (call.complete) check(parse_json(call.arguments, "").ok(), "arguments of a whole call are JSON");
  }
  if (!parsing.tool_calls || parsing.json_output) return 0;
  for (const std::string& run : whole.runs) {
    check(run.find("<｜DSML｜") == run.npos, "markup is never shown");
  }
  return 0;
}
