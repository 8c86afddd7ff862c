// The loop with shared prefixes and too little memory, on a model made of a hash: whatever is found, put back or run
// again, the text is the model's.
#include <gtest/gtest.h>

#include <random>

#include "fathom/engine/loop_under_test.h"

namespace fathom {
namespace {

Request asks(std::vector<int32_t> ids, int64_t max_tokens) {
  Request request;
  request.ids = std::move(ids);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  return request;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(StepLoopCache, KvTwoPromptsWithTheSamePrefixFindIt) {
  for (const int drafts : {0, 5}) {  // case kv-02: also with speculation
    for (const auto mode : {ReplayMode::compact, ReplayMode::mask, ReplayMode::halo}) {
      Settings settings;
      settings.prefix_cache = true;
      settings.drafts = drafts;
      settings.replay = mode;
      settings.context = 2'000;
      settings.blocks = 200;
      Loop loop(settings);
      const FakeModel plain({});
      const auto prefix = prompt_of(9, 1'000);
      for (uint32_t i = 0; i < 20; ++i) {
        const Request request = asks(joined(prefix, prompt_of(100 + i, 50)), 30);
        const Answer& answer = loop.answer(request);
        ASSERT_EQ(answer.ids, plain.greedy(request.ids, 30, 1)) << i;
        EXPECT_EQ(answer.finish->usage.cached_tokens, i == 0 ? 0 : 896) << i;  // 7 blocks of 128
      }
      EXPECT_EQ(loop.loop.prefix_statistics().hits, 19);
    }
  }
}

TEST(StepLoopCache, KvThreeTheNextTurnFindsTheAnswerBeforeIt) {
  Settings settings;
  settings.prefix_cache = true;
  settings.context = 4'000;
  settings.blocks = 200;
  Loop loop(settings);
  const FakeModel plain({});
  std::vector<int32_t> history = prompt_of(3, 300);
  for (uint32_t turn = 0; turn < 6; ++turn) {
    const size_t before = history.size();
    const Answer& answer = loop.answer(asks(history, 200));
    ASSERT_EQ(answer.ids, plain.greedy(history, 200, 1));
    if (turn > 0) {
      EXPECT_GE(answer.finish->usage.cached_tokens, int64_t(before) - 128 - 41) << turn;
    }
    history = joined(joined(history, answer.ids), prompt_of(50 + turn, 40));
  }
}

TEST(StepLoopCache, KvFourTenantsDoNotFindEachOthersPrompts) {
  Settings settings;
  settings.prefix_cache = true;
  settings.context = 5'000;
  settings.blocks = 200;
  Loop loop(settings);
  const auto prompt = prompt_of(4, 4'096);
  std::vector<int64_t> cached;
  for (const char* key : {"key 1", "key 2", "key 1"}) {
    Request request = asks(prompt, 4);
    request.tenant = key;
    cached.push_back(loop.answer(request).finish->usage.cached_tokens);
  }
  EXPECT_EQ(cached, (std::vector<int64_t>{0, 0, 3'968}));
}

TEST(StepLoopCache, TextsAreTheModelsWhateverIsPreemptedAndFound) {
  for (const bool prefix_cache : {false, true}) {
    for (const int drafts : {0, 5}) {
      for (const auto mode : {ReplayMode::off, ReplayMode::compact, ReplayMode::halo}) {
        Settings settings;
        settings.prefix_cache = prefix_cache;
        settings.drafts = drafts;
        settings.replay = mode;
        settings.overcommit = 2;
        settings.blocks = 10;
        settings.step_rows = 100;
        Loop loop(settings);
        const FakeModel plain({});
        std::mt19937 random(7);
        std::vector<std::pair<RequestId, std::vector<int32_t>>> want;
        const auto prefix = prompt_of(1, 260);
        for (uint32_t i = 0; i < 24; ++i) {
          Request request = asks(joined(prefix, prompt_of(200 + i, 1 + random() % 150)), 60 + int64_t(random() % 200));
          request.sampling.ignore_eos = i % 2 == 0;
          const int64_t most = request.sampling.max_tokens;
          want.push_back({loop.submit(request), plain.greedy(request.ids, most, i % 2 == 0 ? -1 : 1)});
          for (int steps = int(random() % 4); steps > 0; --steps) loop.step();
        }
        loop.finish();
        int64_t preemptions = 0, cached = 0;
        for (const auto& [id, ids] : want) {
          ASSERT_EQ(loop.answers[id].ids, ids) << id << ", " << name_of(mode) << ", " << drafts << " drafts";
          preemptions += loop.answers[id].finish->usage.preemptions;
          cached += loop.answers[id].finish->usage.cached_tokens;
        }
        EXPECT_GT(preemptions, 0);
        EXPECT_EQ(cached > 0, prefix_cache && mode != ReplayMode::off);
      }
    }
  }
}

TEST(StepLoopCache, SchedThreeWhatIsCancelledLeavesNothingBehind) {
  Settings settings;
  settings.prefix_cache = true;
  settings.context = 9'000;
  settings.blocks = 600;
  Loop loop(settings);
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 8; ++i) {
    Request request = asks(prompt_of(i, 200), 8'192);
    request.sampling.ignore_eos = true;
    ids.push_back(loop.submit(request));
  }
  for (int step = 0; step < 20; ++step) loop.step();
  for (const RequestId id : ids) loop.loop.cancel(id);
  loop.step();
  EXPECT_TRUE(loop.loop.idle());
  EXPECT_EQ(loop.loop.scheduler().pools().blocks.available(), 600);
}

TEST(StepLoopCache, SchedFourTheNextTurnComesRightAfterABrokenOne) {
  Settings settings;
  settings.prefix_cache = true;
  settings.context = 2'000;
  settings.blocks = 60;
  Loop loop(settings);
  const FakeModel plain({});
  for (uint32_t round = 0; round < 200; ++round) {
    const auto first = prompt_of(1'000 + round, 512);
    Request request = asks(first, 300);
    request.sampling.ignore_eos = true;
    const RequestId broken = loop.submit(request);
    for (int step = 0; step < 3; ++step) loop.step();
    loop.loop.cancel(broken);
    const Request second = asks(joined(first, prompt_of(5'000 + round, 64)), 5);
    const Answer& answer = loop.answer(second);
    ASSERT_EQ(answer.ids, plain.greedy(second.ids, 5, 1));
    ASSERT_EQ(answer.finish->usage.prompt_tokens, 576);
    ASSERT_GT(answer.finish->usage.cached_tokens, 0);
  }
  EXPECT_EQ(loop.loop.scheduler().pools().blocks.available(), 60);
}

// Names of tenants come from outside: whoever makes them up takes no memory.
TEST(StepLoopCache, MadeUpTenantsAreForgotten) {
  Settings settings;
  settings.prefix_cache = true;
  settings.blocks = 16;
  Loop loop(settings);
  for (uint32_t i = 0; i < 4'000; ++i) {
    Request request = greedy(i, 130, 2);
    request.tenant = "tenant " + std::to_string(i);
    loop.submit(std::move(request));
    while (loop.loop.scheduler().waiting() > 10) loop.step();
  }
  loop.finish();
  EXPECT_LE(loop.loop.scheduler().pools().blocks.idle().accounts(), 1'100);
}

}  // namespace
}  // namespace fathom
