// One chunk of one token, by what it is part of: the parser alone, and reader and Chat writer with it.
#include <benchmark/benchmark.h>

#include <string>
#include <string_view>

#include "fathom/recipe/answer_parser.h"
#include "fathom/recipe/answer_stream.h"
#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::recipe {
namespace {

constexpr std::string_view kCall =
    "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"cmd\" string=\"true\">";

struct Part {
  const char* name;
  std::string_view before, chunk;
  bool thinking;
};
constexpr Part kParts[] = {
    {"reasoning", "", " word", true},     {"content", "", " word", false},   {"newline", "x", " a\nb", false},
    {"held", "x", "a <", false},  // `<` may begin a marker: the next chunk decides
    {"arguments", kCall, " word", false}, {"escaped", kCall, "a\"\n", false}};

Parsing parsing_of(const Part& part) {
  Parsing parsing;
  if (part.thinking) parsing.stage = ThinkingStage::reasoning_start;
  parsing.stop_sequences = {"\n\nHuman:"};
  return parsing;
}

void parse_chunk(benchmark::State& state) {
  const Part& part = kParts[state.range(0)];
  state.SetLabel(part.name);
  AnswerParser parser(parsing_of(part));
  parser.push(part.before);
  for (auto _ : state) {
    parser.push(part.chunk);
    benchmark::DoNotOptimize(parser.runs().data());
  }
}
BENCHMARK(parse_chunk)->DenseRange(0, std::size(kParts) - 1);

void chat_text(benchmark::State& state) {
  const Part& part = kParts[state.range(0)];
  state.SetLabel(part.name);
  ChatCompletionsForm form;
  form.identity = {"chatcmpl-0123456789", "DeepSeek-V4.1-Flash", 1'700'000'000};
  form.thinking = part.thinking;
  form.stream = true;
  AnswerStream stream(ChatCompletionsWriter(form), parsing_of(part), nullptr, 1);
  WireEvents out;
  check(stream.text(part.before, 1, out).ok(), "bench");
  for (auto _ : state) {
    out.clear();
    check(stream.text(part.chunk, 1, out).ok(), "bench");
    benchmark::DoNotOptimize(out.text.data());
  }
}
BENCHMARK(chat_text)->DenseRange(0, std::size(kParts) - 1);

void chat_token(benchmark::State& state) {
  const auto tokenizer = Tokenizer::parse(sample::tokenizer_json(), "sample").value();
  const int32_t id = tokenizer.id_of("hell").value();
  ChatCompletionsForm form;
  form.identity = {"chatcmpl-0123456789", "DeepSeek-V4.1-Flash", 1'700'000'000};
  form.stream = true;
  AnswerStream stream(ChatCompletionsWriter(form), parsing_of(kParts[0]), &tokenizer, 1);
  WireEvents out;
  for (auto _ : state) {
    out.clear();
    check(stream.tokens({&id, 1}, {}, out).ok(), "bench");
    benchmark::DoNotOptimize(out.text.data());
  }
}
BENCHMARK(chat_token);

void whole_answer(benchmark::State& state) {
  std::string text = "thinking about it\n</think>\n\nSure.\n\n" + std::string(kCall);
  for (int i = 0; i < 1000; ++i) text += "line of a file with \"quotes\"\n";
  text += "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  for (auto _ : state) {
    AnswerParser parser(parsing_of(kParts[0]));
    parser.push(text);
    parser.finish();
    benchmark::DoNotOptimize(parser.calls_complete());
  }
  state.SetBytesProcessed(int64_t(text.size()) * state.iterations());
}
BENCHMARK(whole_answer);

}  // namespace
}  // namespace fathom::recipe
