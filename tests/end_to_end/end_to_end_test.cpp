// The same question gives the same tokens alone, in any batch, in pieces, with and without drafts; a seed repeats
// itself. On the CPU backends bit by bit (spec/engine.md R-36), so log-probabilities are compared as floats without
// tolerance.
#include <nlohmann/json.hpp>

#include "tests/end_to_end/miniature.h"

namespace fathom {
namespace {

std::vector<int32_t> ids_of(const std::string& text) { return miniature().tokenizer.encode(text); }

std::string chat(const std::string& question, const char* think) {
  return "<｜begin▁of▁sentence｜><｜User｜>" + question + "<｜Assistant｜>" + think;
}

// Prompts of different kinds and lengths: shorter than the window of 32, and longer than window, K and candidates.
std::vector<int32_t> question(int number) {
  static const char* const kQuestions[] = {"What is 7 + 5?", "Symbol for phosphorus?", "你好",
                                           "Sort these words alphabetically: insect, orange, feather, hammer"};
  if (number % 5 != 4) return ids_of(chat(kQuestions[number % 5], number % 2 ? "</think>" : "<think>"));
  std::string text = "Remember: the code of the blue door is 4711.";
  for (int i = 0; i < 12 + number % 7; ++i)
    text += " The garden number " + std::to_string(i) + " has roses and a bench.";
  return ids_of(chat(text + " What is the code of the blue door?", "</think>"));
}

struct Text {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
};

// Asks `request` among `companions` others and returns its answer; some of the others come later.
Text ask(const EngineOptions& options, Request request, int companions) {
  Engine engine = open_engine(options);
  request.sampling.top_logprobs = 0;
  for (int i = 0; i < companions / 2; ++i) submit(engine, greedy(question(i + 1), 20 + 3 * (i % 5)));
  const RequestId id = submit(engine, request);
  Text out;
  for (int step = 0; !engine.idle(); ++step) {
    if (step == 2) {
      for (int i = companions / 2; i < companions; ++i) submit(engine, greedy(question(i + 1), 20 + 3 * (i % 5)));
    }
    for (const Event& event : engine.step()) {
      if (event.request != id) continue;
      out.ids.insert(out.ids.end(), event.ids.begin(), event.ids.end());
      for (const TokenLogprob& token : event.logprobs) out.logprobs.push_back(token.logprob);
      if (event.finish) return out;
    }
  }
  return out;
}

EngineOptions options_of(const std::string& backend) {
  EngineOptions options;
  options.backend = backend;
  options.context = 1'024;
  return options;
}

class EndToEnd : public testing::TestWithParam<const char*> {
 protected:
  // The reference is 10 to 100 times slower: it gets the shorter questions and fewer combinations.
  bool fast() const { return std::string(GetParam()) == "cpu"; }
};

// engine.md R-37: sampled text too, when draft and target share their noise.
TEST_P(EndToEnd, TransparentTextDoesNotDependOnDraftsOrNeighbours) {
  for (int number = 0; number < (fast() ? 5 : 1); ++number) {
    Request request = greedy(question(number), fast() ? 60 : 16);
    request.sampling.temperature = 1;
    request.sampling.seed = uint64_t(number);
    Text first;
    for (const auto& [drafts, companions] : {std::pair{0, 0}, {1, 0}, {3, 2}, {5, 0}, {5, 4}}) {
      if (!fast() && companions > 0) continue;
      EngineOptions options = options_of(GetParam());
      options.verification = Verification::transparent;
      options.drafts = drafts;
      const Text text = ask(options, request, companions);
      if (first.ids.empty()) first = text;
      EXPECT_EQ(text.ids, first.ids) << number << ": " << drafts << " drafts, " << companions << " companions";
      EXPECT_EQ(text.logprobs, first.logprobs);
    }
  }
}

TEST_P(EndToEnd, BatchPiecesAndDraftsChangeNoBit) {
  struct Way {
    int64_t step_rows;
    int companions, drafts;
  };
  const std::vector<Way> many = {{1, 0, 0},  {7, 0, 5},     {7, 8, 0},     {64, 0, 0},   {64, 1, 5},
                                 {64, 3, 0}, {2'048, 0, 5}, {2'048, 3, 5}, {2'048, 8, 5}};
  const std::vector<Way> few = {{7, 0, 5}, {64, 3, 0}, {2'048, 3, 5}};
  for (const auto mode : {ReplayMode::off, ReplayMode::compact}) {
    if (!fast() && mode == ReplayMode::off) continue;
    EngineOptions options = options_of(GetParam());
    options.replay = mode;
    options.drafts = 0;
    const Request request = greedy(question(fast() ? 4 : 0), fast() ? 32 : 12);
    const Text alone = ask(options, request, 0);
    ASSERT_GT(alone.ids.size(), 3u);
    for (const Way& way : fast() ? many : few) {
      options.step_rows = way.step_rows;
      options.drafts = way.drafts;
      const Text text = ask(options, request, way.companions);
      const std::string what = std::string(name_of(mode)) + ", " + std::to_string(way.step_rows) + " rows, " +
                               std::to_string(way.companions) + " companions, " + std::to_string(way.drafts) +
                               " drafts";
      ASSERT_EQ(text.ids, alone.ids) << what;
      ASSERT_EQ(text.logprobs, alone.logprobs) << what;
    }
  }
}

// Case num-02: "hi" with 0, 1, 7 and 31 neighbours.
TEST_P(EndToEnd, NeighboursChangeNoBit) {
  if (!fast()) GTEST_SKIP() << "31 neighbours take the reference too long; BatchPiecesAndDraftsChangeNoBit has 3";
  EngineOptions options = options_of(GetParam());
  options.sequences = 32;
  const Request request = greedy(ids_of(chat("hi", "</think>")), 128);
  const Text alone = ask(options, request, 0);
  for (const int neighbours : {1, 7, 31}) {
    const Text run = ask(options, request, neighbours);
    EXPECT_EQ(run.ids, alone.ids) << neighbours;
    EXPECT_EQ(run.logprobs, alone.logprobs) << neighbours;
  }
}

// Case spec-03: a seed is a promise.
TEST_P(EndToEnd, SeededRequestsRepeatThemselvesWithDrafts) {
  Request request = greedy(ids_of(chat("hi", "</think>")), fast() ? 64 : 12);
  request.sampling.temperature = 1;
  request.sampling.top_p = 1;
  request.sampling.seed = 42;
  request.sampling.ignore_eos = true;
  const EngineOptions options = options_of(GetParam());
  const Text first = ask(options, request, 0);
  for (const int neighbours : fast() ? std::vector<int>{0, 5, 13} : std::vector<int>{2}) {
    const Text again = ask(options, request, neighbours);
    EXPECT_EQ(again.ids, first.ids) << neighbours;
    EXPECT_EQ(again.logprobs, first.logprobs) << neighbours;
  }
  request.sampling.seed = 43;
  EXPECT_NE(ask(options, request, 0).ids, first.ids);
}

TEST_P(EndToEnd, PromptLogprobsDoNotDependOnPieces) {
  std::vector<std::vector<TokenLogprob>> runs;
  for (const int64_t step_rows : {5, 2'048}) {
    EngineOptions options = options_of(GetParam());
    options.step_rows = step_rows;
    Engine engine = open_engine(options);
    Request request = greedy(question(fast() ? 4 : 1), 1);
    request.prompt_logprobs = true;
    submit(engine, request);
    std::vector<TokenLogprob> found;
    while (!engine.idle()) {
      for (const Event& event : engine.step()) {
        found.insert(found.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
      }
    }
    ASSERT_EQ(found.size(), request.ids.size() - 1);
    runs.push_back(found);
  }
  for (size_t i = 0; i < runs[0].size(); ++i) {
    EXPECT_EQ(runs[0][i].logprob, runs[1][i].logprob) << "position " << i + 1;
    EXPECT_LE(runs[0][i].logprob, 0);
  }
}

// The last positions that the model knows: drafts shrink, rows stay inside, the answer ends with `length`.
TEST_P(EndToEnd, TheAnswerEndsWithTheContextOfTheModel) {
  if (!fast()) GTEST_SKIP() << "8,192 positions take the reference too long";
  std::vector<std::vector<int32_t>> texts;
  for (const int drafts : {0, 5}) {
    EngineOptions options = options_of(GetParam());
    options.context = 0;
    options.drafts = drafts;
    Engine engine = open_engine(options);
    ASSERT_EQ(engine.options().context, 8'192);
    std::vector<int32_t> prompt;
    while (prompt.size() < 8'183) prompt.insert(prompt.end(), {450, 451, int32_t(500 + prompt.size() % 900)});
    prompt.resize(8'183);
    Request request = greedy(prompt, 0);
    request.sampling.ignore_eos = true;
    const RequestId id = submit(engine, request);
    const Answer answer = run(engine).at(id);
    EXPECT_EQ(answer.finish.reason, FinishReason::length);
    EXPECT_EQ(answer.ids.size(), 9u);
    texts.push_back(answer.ids);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

INSTANTIATE_TEST_SUITE_P(Backends, EndToEnd, testing::Values("cpu", "reference"),
                         [](const auto& info) { return std::string(info.param); });

TEST(EngineOpen, ResolvesItsOptions) {
  Engine engine = open_engine({});
  EXPECT_FALSE(engine.options().backend.empty());
  EXPECT_EQ(engine.options().context, 8'192);  // max_position_embeddings of the miniature; the cache is small
  EXPECT_EQ(engine.options().drafts, 5);
  EXPECT_GT(engine.options().threads, 0);
  EXPECT_EQ(engine.backend_name(), engine.options().backend);
  EXPECT_GT(engine.cache_bytes(), 0);
  EXPECT_TRUE(engine.idle());
  EXPECT_TRUE(engine.step().empty());
}

TEST(EngineOpen, RefusesWhatMakesNoSense) {
  const auto error_of = [](auto change) {
    EngineOptions options;
    options.backend = "reference";
    change(options);
    auto engine = try_engine(options);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? Error{} : engine.error();
  };
  EXPECT_EQ(error_of([](auto& o) { o.sequences = 0; }).where, "--sequences");
  EXPECT_EQ(error_of([](auto& o) { o.step_rows = 0; }).where, "--step-rows");
  EXPECT_EQ(error_of([](auto& o) { o.context = -1; }).where, "--context");
  EXPECT_EQ(error_of([](auto& o) { o.threads = -1; }).where, "--threads");
  EXPECT_EQ(to_string(error_of([](auto& o) { o.drafts = 6; })),
            "6 drafts a round (--drafts): this model proposes 0 to 5");
  EXPECT_EQ(
      to_string(error_of([](auto& o) { o.context = 10'000; })),
      "context of 10,000 tokens exceeds the model's 8,192 (--context): pass a smaller value or leave the option out");
  EXPECT_EQ(error_of([](auto& o) { o.backend = "abacus"; }).code, ErrorCode::usage);
}

// Case mem-01 on this model: a limit that the caches do not fit into is named with what does.
TEST(EngineOpen, SaysWhatFitsWhenMemoryIsShort) {
  EngineOptions options;
  options.backend = "reference";
  options.memory_limit_bytes = 1 << 20;
  const auto none = try_engine(options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::out_of_memory);
  // A limit between: the whole context does not fit, a shorter one does, and is what one gets without asking.
  options.sequences = 1;
  options.step_rows = 16;
  int64_t some = 0;
  for (int64_t limit = 1 << 20; limit < int64_t(1) << 30 && some == 0; limit += 1 << 18) {
    options.memory_limit_bytes = limit;
    if (auto engine = try_engine(options); engine && engine->options().context < 8'192) {
      some = engine->options().context;
      EXPECT_LE(engine->cache_bytes(), limit);
    }
  }
  ASSERT_GT(some, 0);
  options.context = 8'192;
  const auto refused = try_engine(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(refused.error().remedy.find("the largest that fits is"), std::string::npos) << to_string(refused.error());
}

}  // namespace
}  // namespace fathom
