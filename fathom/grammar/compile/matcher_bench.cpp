// Mask fill with the published vocabulary (129,280 tokens) and that of the miniature (2,880), one row at a time along
// an answer: R-38 asks for at most 50 us. The counters have mean and percentiles over the rows. The published one is
// skipped without the file of scripts/fetch-test-files.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "fathom/grammar/compile/matcher.h"
#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::grammar {
namespace {

struct Case {
  const char* name;
  Constraint constraint;
  std::string answer;
};

std::vector<Case> cases() {
  const auto json = [](const char* schema) {
    Constraint out;
    out.text = schema;
    return out;
  };
  const std::string prose = "The quick brown fox, it said, jumps over 12 lazy dogs; 中文 too. ";
  std::vector<Case> out = {
      {"json_mode", json(""),
       R"({"name": ")" + prose + R"(", "list": [1, 2.5, {"deep": [true, null]}], "x": ")" + prose + "\"}"},
      {"person",
       json(
           R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
          "email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"enum":["red","green","blue"]},"maxItems":5}},
          "required":["name","age","email","tags"],"additionalProperties":false})"),
       R"({"name": ")" + prose + R"(", "age": 42, "email": "a.b@example.org", "tags": ["red", "blue"]})"},
      {"summary_of_500",
       json(R"({"type":"object","properties":{"summary":{"type":"string","maxLength":500}},"required":["summary"]})"),
       R"({"summary": ")" + prose + prose + "\"}"},
  };
  Constraint calls;
  calls.kind = Constraint::Kind::tool_call;
  calls.markup = {"｜DSML｜", " calls", " "};
  const Json parameters = *parse_json(
      R"({"type":"object","properties":{"path":{"type":"string"},"count":{"type":"integer"},"options":{"type":"object",
          "properties":{"deep":{"type":"boolean"},"names":{"type":"array","items":{"type":"string"}}},"required":["deep"],
          "additionalProperties":false}},"required":["path","count","options"],"additionalProperties":false})",
      "parameters");
  for (int i = 0; i < 20; ++i) calls.tools.push_back({"tool_" + std::to_string(i), parameters, true});
  const std::string call =
      prose + prose +
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"tool_3\">\n<｜DSML｜ parameter name=\"path\" string=\"true\">" +
      prose +
      "</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"count\" string=\"false\">3</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"options\" string=\"false\">{\"deep\": true, \"names\": [\"a b\", \"c\"]}"
      "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  out.push_back({"20_strict_tools", calls, call});
  for (CallableTool& tool : calls.tools) tool.strict = false;
  out.push_back({"20_open_tools", calls, call});
  return out;
}

struct Loaded {
  Tokenizer tokenizer;
  Vocabulary vocabulary;
};

enum Which { published, miniature };

const Loaded* loaded(int64_t which) {
  static const auto open = [](const std::string& path) -> std::unique_ptr<Loaded> {
    auto tokenizer = Tokenizer::open(path);
    if (!tokenizer) return nullptr;
    auto vocabulary = Vocabulary::make(*tokenizer, {Tokenizer::kEnd});
    return std::make_unique<Loaded>(Loaded{std::move(*tokenizer), std::move(*vocabulary)});
  };
  static const std::unique_ptr<Loaded> values[] = {open(sample::v4_tokenizer()), open("models/mini/tokenizer.json")};
  return values[which].get();
}

constexpr const char* kMissing = "no tokenizer.json: run from the source folder, after scripts/fetch-test-files";

void mask(benchmark::State& state) {
  const Case one = cases()[size_t(state.range(0))];
  const Loaded* with = loaded(state.range(1));
  if (with == nullptr) return state.SkipWithError(kMissing);
  const auto grammar = compile(one.constraint, with->vocabulary);
  if (!grammar) return state.SkipWithError(to_string(grammar.error()).c_str());
  const auto ids = with->tokenizer.encode(one.answer);
  std::vector<uint32_t> words(with->vocabulary.mask_words());
  std::vector<double> microseconds;
  for (auto _ : state) {
    Matcher matcher(*grammar);
    for (const int32_t id : ids) {
      const auto begin = std::chrono::steady_clock::now();
      benchmark::DoNotOptimize(matcher.mask(words).ok());
      microseconds.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
      if (!matcher.accept(id)) return state.SkipWithError("the answer does not follow the constraint");
    }
  }
  std::sort(microseconds.begin(), microseconds.end());
  state.SetLabel(one.name);
  state.counters["mean_us"] =
      std::accumulate(microseconds.begin(), microseconds.end(), 0.0) / double(microseconds.size());
  state.counters["p50_us"] = microseconds[microseconds.size() / 2];
  state.counters["p99_us"] = microseconds[microseconds.size() * 99 / 100];
  state.counters["rows"] = double(ids.size());
}
BENCHMARK(mask)->ArgsProduct({{0, 1, 2, 3, 4}, {published, miniature}})->Unit(benchmark::kMicrosecond);

void compile_time(benchmark::State& state) {
  const Case one = cases()[size_t(state.range(0))];
  const Loaded* with = loaded(state.range(1));
  if (with == nullptr) return state.SkipWithError(kMissing);
  for (auto _ : state) benchmark::DoNotOptimize(compile(one.constraint, with->vocabulary).ok());
  state.SetLabel(one.name);
}
BENCHMARK(compile_time)->ArgsProduct({{0, 1, 2, 3, 4}, {published, miniature}})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fathom::grammar
