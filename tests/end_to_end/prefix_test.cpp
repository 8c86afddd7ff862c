// The miniature behind a prefix cache: a next turn finds what the turns before have computed. With a snapshot of the
// windows, and in the exact mode halo, the text is that of a cold run, bit for bit; without one a few rows are
// replayed, which is an approximation. Memory that is too small puts requests back without changing their text.
#include <gtest/gtest.h>

#include "fathom/base/philox.h"
#include "tests/end_to_end/miniature.h"

namespace fathom {
namespace {

std::vector<int32_t> random_prompt(uint32_t name, int64_t tokens) {
  std::vector<int32_t> out;
  for (uint32_t i = 0; int64_t(i) < tokens; ++i) out.push_back(int32_t(23 + philox(name, {i, 1, 2, 3})[0] % 2800));
  return out;
}

Request asks(std::vector<int32_t> ids, int64_t max_tokens) {
  Request request;
  request.ids = std::move(ids);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = max_tokens;
  request.sampling.top_logprobs = 0;
  return request;
}

EngineOptions cached(ReplayMode replay, int64_t snapshot_bytes) {
  EngineOptions options;
  options.context = 4'096;
  options.sequences = 4;
  options.replay = replay;
  options.snapshot_bytes = snapshot_bytes;
  return options;
}

/// A conversation of `turns` turns, each the last one's prompt and answer with new text behind.
struct Turn {
  std::vector<int32_t> prompt;
  Answer answer;
};
std::vector<Turn> converse(Engine& engine, uint32_t name, int turns) {
  std::vector<Turn> out;
  std::vector<int32_t> history = random_prompt(name, 500);
  for (int turn = 0; turn < turns; ++turn) {
    const RequestId id = submit(engine, asks(history, 24));
    Answer answer = run(engine).at(id);
    out.push_back({history, answer});
    history.insert(history.end(), answer.ids.begin(), answer.ids.end());
    const auto more = random_prompt(100 * name + uint32_t(turn), 150);
    history.insert(history.end(), more.begin(), more.end());
  }
  return out;
}

class PrefixCache : public ::testing::TestWithParam<ReplayMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, PrefixCache, ::testing::Values(ReplayMode::compact, ReplayMode::halo),
                         [](const auto& param) { return name_of(param.param); });

TEST_P(PrefixCache, WithSnapshotsEveryTurnIsTheColdRunBitForBit) {
  Engine warm = open_engine(cached(GetParam(), int64_t(64) << 20));
  EngineOptions options = cached(GetParam(), 0);
  options.prefix_cache = false;
  Engine cold = open_engine(options);
  int64_t found = 0;
  for (uint32_t name = 1; name <= 3; ++name) {
    for (const Turn& turn : converse(warm, name, 5)) {
      const RequestId id = submit(cold, asks(turn.prompt, 24));
      const Answer alone = run(cold).at(id);
      // A turn whose snapshot is missing replays rows under a cut window: allowed to differ, so not compared.
      const bool exact = GetParam() == ReplayMode::halo || turn.answer.finish.usage.replayed_tokens == 0;
      found += turn.answer.finish.usage.cached_tokens > 0 && exact;
      if (!exact) continue;
      EXPECT_EQ(turn.answer.ids, alone.ids);
      EXPECT_EQ(turn.answer.logprobs, alone.logprobs);
    }
  }
  EXPECT_GE(found, 6) << "turns that found their past";
}

TEST_P(PrefixCache, PreemptionDoesNotChangeABit) {
  EngineOptions options = cached(GetParam(), 0);
  options.prefix_cache = false;
  options.sequences = 8;
  Engine roomy = open_engine(options);
  std::map<uint32_t, Answer> want;
  for (uint32_t i = 0; i < 8; ++i) {
    const RequestId id = submit(roomy, asks(random_prompt(40 + i, 300 + 37 * i), 200));
    want[i] = run(roomy).at(id);
  }
  // So little that eight answers cannot stand side by side.
  options.context = 1'024;
  options.most_blocks = 16;
  options.overcommit = 3;
  Engine tight = open_engine(options);
  std::map<RequestId, uint32_t> numbers;
  for (uint32_t i = 0; i < 8; ++i) numbers[submit(tight, asks(random_prompt(40 + i, 300 + 37 * i), 200))] = i;
  int64_t preemptions = 0;
  for (const auto& [id, answer] : run(tight)) {
    EXPECT_EQ(answer.ids, want[numbers[id]].ids);
    EXPECT_EQ(answer.logprobs, want[numbers[id]].logprobs);
    preemptions += answer.finish.usage.preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

TEST(PrefixCacheOff, FindsNothing) {
  EngineOptions options = cached(ReplayMode::compact, 0);
  options.prefix_cache = false;
  Engine engine = open_engine(options);
  for (const Turn& turn : converse(engine, 9, 2)) EXPECT_EQ(turn.answer.finish.usage.cached_tokens, 0);
}

}  // namespace
}  // namespace fathom
