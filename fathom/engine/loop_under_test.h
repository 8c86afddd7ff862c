// fathom/engine/loop_under_test.h
// What the tests of the loop share: the loop on a model made of a hash (fake_model.h), its answers by request, and
// requests by number.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "fathom/engine/fake_model.h"
#include "fathom/engine/step_loop.h"

namespace fathom {

struct Settings {
  FakeModel::Shape shape;
  int64_t context = 1'000;
  int sequences = 8;
  int64_t step_rows = 2'048;
  int32_t blocks = 64;
  ReplayMode replay = ReplayMode::compact;
  int drafts = 5;
  double overcommit = 0;
  bool prefix_cache = false;
  bool batch_invariant = true;
  std::optional<grammar::Vocabulary> vocabulary = {};
  grammar::CompilePoolOptions grammar = {};
  bool asynchronous = false;
  std::optional<CostCurve> curve = {};
  bool sizes_of_curve = false;
  EngineStatistics* statistics = nullptr;
  StepLog* step_log = nullptr;
};

struct Answer {
  std::vector<int32_t> ids;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::optional<Finish> finish;
  int events = 0;
};

inline LoopOptions options_of(const Settings& settings) {
  LoopOptions out;
  out.limits.context = settings.context;
  out.limits.sequences = settings.sequences;
  out.limits.step_rows = settings.step_rows;
  out.limits.blocks = settings.blocks;
  out.limits.overcommit = settings.overcommit;
  out.limits.shape = settings.shape.replay;
  out.replay = settings.replay;
  out.drafts = settings.drafts;
  out.eos_id = 1;
  out.prefix_cache = settings.prefix_cache;
  out.batch_invariant = settings.batch_invariant;
  out.vocabulary = settings.vocabulary;
  out.grammar = settings.grammar;
  out.asynchronous = settings.asynchronous;
  out.curve = settings.curve;
  out.sizes_of_curve = settings.sizes_of_curve;
  out.statistics = settings.statistics;
  out.step_log = settings.step_log;
  return out;
}

class Loop {
 public:
  explicit Loop(Settings settings)
      : model(settings.shape), loop(options_of(settings), model.port(), reference_operations(), *queue) {}

  RequestId submit(Request request) {
    const auto id = loop.submit(std::move(request));
    EXPECT_TRUE(id.ok()) << (id.ok() ? "" : to_string(id.error()));
    return *id;
  }
  void step() {
    for (const Event& event : loop.step()) {
      Answer& answer = answers[event.request];
      ++answer.events;
      EXPECT_FALSE(answer.finish) << "nothing comes after the end";
      answer.ids.insert(answer.ids.end(), event.ids.begin(), event.ids.end());
      answer.logprobs.insert(answer.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
      answer.prompt_logprobs.insert(answer.prompt_logprobs.end(), event.prompt_logprobs.begin(),
                                    event.prompt_logprobs.end());
      answer.finish = event.finish;
    }
    const auto state = loop.scheduler().verify();
    EXPECT_TRUE(state.ok()) << to_string(state.error());
  }
  void finish() {
    for (int steps = 0; !loop.idle(); ++steps) {
      ASSERT_LT(steps, 100'000);
      step();
    }
  }
  Answer& answer(Request request) {
    const RequestId id = submit(std::move(request));
    finish();
    return answers.at(id);
  }

  std::unique_ptr<Queue> queue = std::move(*reference_backend().open_queue(1));
  FakeModel model;
  StepLoop loop;
  std::map<RequestId, Answer> answers;
};

inline std::vector<int32_t> prompt_of(uint32_t name, int64_t tokens, int64_t vocabulary = 17) {
  std::vector<int32_t> out;
  for (uint32_t i = 0; int64_t(i) < tokens; ++i)
    out.push_back(int32_t(philox(name, {i, 5, 5, 5})[0] % uint64_t(vocabulary)));
  return out;
}

inline Request greedy(uint32_t name, int64_t prompt, int64_t max_tokens) {
  Request request;
  request.ids = prompt_of(name, prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  return request;
}

}  // namespace fathom
