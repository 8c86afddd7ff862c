// What bounded replay changes on the miniature: held-out prompts, answered under each way of replay and scored again
// with every row computed. FATHOM_LONG=1 takes 200 prompts and prints the table of docs/replay-quality.md.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fathom/base/test_size.h"
#include "fathom/engine/replay_quality.h"
#include "tests/end_to_end/miniature.h"

namespace fathom {
namespace {

constexpr int64_t kMaxTokens = 100;  // the longest expected answer has 84

struct Line {
  std::vector<int32_t> prompt, answer;
};

// Every second of 400 lines; every twentieth by default. Tasks follow each other in blocks of 40, so all are there.
std::vector<Line> held_out() {
  std::ifstream file(FATHOM_SOURCE_DIR "/models/mini/eval.jsonl");
  std::vector<Line> lines;
  std::string text;
  for (int number = 0; std::getline(file, text); ++number) {
    if (number % by_test_size(50, 20, 2) != 0) continue;
    const auto json = nlohmann::json::parse(text);
    lines.push_back({json["prompt_ids"], json["completion_ids"]});
  }
  return lines;
}

EngineOptions options(ReplayMode mode, bool hits) {
  EngineOptions out;
  out.backend = "cpu";
  out.context = 1'024;
  out.drafts = 0;
  out.replay = mode;
  out.prefix_cache = hits;
  out.snapshot_bytes = 0;  // a hit replays rows instead
  return out;
}

/// Scores of everything behind `from`, by an engine of their own that knows nothing of the answers.
Result<TokenScores> score_exactly(Engine& engine, std::span<const int32_t> ids, int64_t from) {
  const auto id = engine.submit(scoring_request(ids));
  if (!id) return id.error();
  TokenScores out;
  while (!engine.idle()) {
    for (const Event& event : engine.step()) add_scores(out, event, from);
  }
  return out;
}

struct Measured {
  int64_t answers = 0, right = 0, hits = 0, replayed_tokens = 0;
  ReplayDivergence divergence;
};

Measured measure(ReplayMode mode, bool hits, Engine& exact) {
  const ReplayCause cause = replay_cause_of(mode, hits);
  Engine engine = open_engine(options(mode, hits));
  ReplayQuality quality({.samples = 1'000, .most_tokens = 2'000, .seed = 1});
  Measured out;
  for (const Line& line : held_out()) {
    Request request = greedy(line.prompt, kMaxTokens);
    request.sampling.top_logprobs = 0;
    if (hits) {  // somebody asked the same before
      submit(engine, greedy(line.prompt, 1));
      run(engine);
    }
    const RequestId id = submit(engine, std::move(request));
    const Answer answer = run(engine).at(id);
    ReplaySample sample;
    sample.ids = line.prompt;
    sample.ids.insert(sample.ids.end(), answer.ids.begin(), answer.ids.end());
    sample.prompt_tokens = int64_t(line.prompt.size());
    sample.cause = cause;
    sample.greedy = true;
    sample.scores.logprobs = answer.logprobs;
    quality.offer(std::move(sample));
    ++out.answers;
    out.right += answer.ids == line.answer;
    out.hits += answer.finish.usage.replayed_tokens > 0;
    out.replayed_tokens += answer.finish.usage.replayed_tokens;
  }
  while (quality.pending()) {
    const auto done = quality.measure_one(
        [&](std::span<const int32_t> ids, int64_t from) { return score_exactly(exact, ids, from); });
    EXPECT_TRUE(done.ok()) << to_string(done.error());
  }
  out.divergence = quality.of(cause);
  return out;
}

TEST(ReplayQuality, OfHeldOutPromptsIsMeasuredAgainstOff) {
  Engine exact = open_engine(options(ReplayMode::off, false));
  const struct {
    const char* name;
    ReplayMode mode;
    bool hits;
  } ways[] = {{"off", ReplayMode::off, false},
              {"compact", ReplayMode::compact, false},
              {"halo", ReplayMode::halo, false},
              {"hits", ReplayMode::compact, true}};
  std::printf(
      "way,answers,exact_match,changed_texts,top1_agreement,mean_abs_logprob,worst_abs_logprob,tokens,hits,replayed_"
      "tokens\n");
  for (const auto& way : ways) {
    const Measured m = measure(way.mode, way.hits, exact);
    const ReplayDivergence& d = m.divergence;
    std::printf("%s,%ld,%.4f,%ld,%.5f,%.3g,%.3g,%ld,%ld,%ld\n", way.name, long(m.answers),
                double(m.right) / double(m.answers), long(d.changed_answers), d.top1_agreement(), d.mean_logprob(),
                d.logprob_worst, long(d.tokens), long(m.hits), long(m.replayed_tokens));
    EXPECT_EQ(d.answers, m.answers) << way.name;
    if (way.mode == ReplayMode::off || way.mode == ReplayMode::halo) {
      // Nothing is left out that the tokens depend on, and on the cpu no bit of a row depends on the rows beside it.
      EXPECT_EQ(d.logprob_sum, 0) << way.name;
      EXPECT_EQ(d.changed_answers, 0) << way.name;
    } else {
      EXPECT_GT(d.logprob_sum, 0) << "the meter sees that rows were left out: " << way.name;
      EXPECT_GT(d.top1_agreement(), 0.9) << way.name;
    }
    EXPECT_EQ(m.hits > 0, way.hits) << way.name;
  }
}

// The engine does it by itself when it is idle, and callers see nothing of it.
TEST(ReplayMeter, ScoresAnswersAgainWhileNobodyIsServed) {
  for (const ReplayMode mode : {ReplayMode::off, ReplayMode::compact}) {
    EngineOptions way = options(mode, false);
    way.drafts = 5;
    way.replay_sample = 1;
    Engine engine = open_engine(way);
    int64_t tokens = 0;
    for (const Line& line : held_out()) {
      const RequestId id = submit(engine, greedy(line.prompt, kMaxTokens));
      const Answer answer = run(engine).at(id);
      EXPECT_TRUE(answer.logprobs.empty()) << "nobody asked for them";
      tokens += int64_t(answer.ids.size());
    }
    while (engine.idle_work()) EXPECT_TRUE(engine.idle());
    const auto divergence = engine.replay_divergence(replay_cause_of(mode, false));
    EXPECT_GT(divergence.tokens, 0);
    EXPECT_LE(divergence.tokens, tokens);
    if (mode == ReplayMode::off) {
      EXPECT_EQ(divergence.logprob_sum, 0) << "decode and prompt rows have the same bits";
    }
    EXPECT_FALSE(engine.idle_work());
  }
}

}  // namespace
}  // namespace fathom
