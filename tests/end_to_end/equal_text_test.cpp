// Issue 5: the same held-out prompts give the same greedy text, and the same log-probabilities to the last bit, alone,
// in batches with random arrivals, with preemption forced, after prefix hits with snapshots, in the asynchronous and
// the synchronous loop, with drafts off, fixed and scheduled. FATHOM_LONG=1: 200 of them, else 40.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "fathom/base/test_size.h"
#include "tests/end_to_end/miniature.h"

namespace fathom {
namespace {

std::vector<Request> held_out() {
  std::ifstream file(FATHOM_SOURCE_DIR "/models/mini/eval.jsonl");
  const int stride = by_test_size(50, 10, 2);
  std::vector<Request> out;
  std::string text;
  for (int number = 0; std::getline(file, text); ++number) {
    if (number % stride != 0) continue;
    Request request = greedy(nlohmann::json::parse(text)["prompt_ids"], 200);
    request.sampling.top_logprobs = 0;
    out.push_back(std::move(request));
  }
  return out;
}

EngineOptions plain(int sequences) {
  EngineOptions options;
  options.backend = "cpu";
  options.context = 1'024;
  options.sequences = sequences;
  options.prefix_cache = false;
  options.drafts = 0;
  return options;
}

const std::vector<Answer>& alone() {
  static const std::vector<Answer> answers = [] {
    Engine engine = open_engine(plain(1));
    std::vector<Answer> out;
    for (const Request& request : held_out()) {
      const RequestId id = submit(engine, request);
      out.push_back(run(engine).at(id));
    }
    return out;
  }();
  return answers;
}

/// All of them with random arrivals, `rounds` times one after the other.
std::vector<std::vector<Answer>> together(Engine& engine, int rounds = 1) {
  const auto requests = held_out();
  std::mt19937 random(7);
  std::vector<std::vector<Answer>> out;
  for (int round = 0; round < rounds; ++round) {
    std::map<RequestId, Answer> answers;
    std::vector<RequestId> ids;
    while (ids.size() < requests.size() || !engine.idle()) {
      for (auto arrivals = random() % 5; arrivals > 0 && ids.size() < requests.size(); --arrivals) {
        ids.push_back(submit(engine, requests[ids.size()]));
      }
      for (const Event& event : engine.step()) {
        Answer& answer = answers[event.request];
        answer.ids.insert(answer.ids.end(), event.ids.begin(), event.ids.end());
        for (const TokenLogprob& token : event.logprobs) answer.logprobs.push_back(token.logprob);
        if (event.finish) answer.finish = *event.finish;
      }
    }
    out.emplace_back();
    for (const RequestId id : ids) out.back().push_back(answers.at(id));
  }
  return out;
}

void expect_the_same(const std::vector<Answer>& answers) {
  ASSERT_EQ(answers.size(), alone().size());
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(answers[i].ids, alone()[i].ids) << "prompt " << i;
    ASSERT_EQ(answers[i].logprobs, alone()[i].logprobs) << "prompt " << i;
  }
}

class EqualText : public testing::TestWithParam<bool> {
 protected:
  EngineOptions options(int sequences = 64) const {
    EngineOptions out = plain(sequences);
    out.asynchronous = GetParam();
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Loops, EqualText, testing::Bool(),
                         [](const auto& info) { return info.param ? "asynchronous" : "synchronous"; });

TEST_P(EqualText, InABatchWithRandomArrivals) {
  Engine engine = open_engine(options());
  expect_the_same(together(engine)[0]);
}

TEST_P(EqualText, WithAllDraftsVerified) {
  EngineOptions way = options();
  way.drafts = 5;
  Engine engine = open_engine(way);
  expect_the_same(together(engine)[0]);
}

TEST_P(EqualText, WithScheduledDrafts) {
  EngineOptions way = options();
  way.drafts = -1;
  way.schedule_drafts = true;
  Engine engine = open_engine(way);
  expect_the_same(together(engine)[0]);
}

// Long answers of a higher class grow until they need the blocks of the others.
TEST_P(EqualText, WithPreemption) {
  EngineOptions way = options();
  way.most_blocks = 12;
  way.overcommit = 5;
  Engine engine = open_engine(way);
  for (int i = 0; i < 2; ++i) {
    Request other = held_out()[size_t(i)];
    other.sampling.ignore_eos = true;
    other.sampling.max_tokens = 700;
    other.priority = 1;
    other.drafts = 5;
    submit(engine, other);
  }
  const auto answers = together(engine)[0];
  expect_the_same(answers);
  int64_t preempted = 0;
  for (const Answer& answer : answers) preempted += answer.finish.usage.preemptions;
  EXPECT_GT(preempted, by_test_size(0, 5, 5));
}

TEST_P(EqualText, AfterPrefixHitsWithSnapshots) {
  EngineOptions way = options();
  way.prefix_cache = true;
  way.drafts = 5;
  Engine engine = open_engine(way);
  int64_t hits = 0;
  for (const auto& answers : together(engine, 2)) {
    expect_the_same(answers);
    hits = 0;
    for (const Answer& answer : answers) hits += answer.finish.usage.cached_tokens > 0;
  }
  EXPECT_GT(hits, 0) << "prompts of more than 128 tokens are found the second time";
}

}  // namespace
}  // namespace fathom
