// Issue 5: a thousand requests at once on the miniature. All end, nothing is lost, and the same prompt has the same
// answer whoever ran beside it, found or computed.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fathom/base/test_size.h"
#include "tests/end_to_end/miniature.h"

namespace fathom {
namespace {

TEST(Concurrency, AThousandRequestsAtOnceAllEnd) {
  std::ifstream file(FATHOM_SOURCE_DIR "/models/mini/eval.jsonl");
  std::vector<std::vector<int32_t>> prompts;
  int number = 0;
  for (std::string line; std::getline(file, line); ++number) {  // of every kind
    if (number % 8 == 0) prompts.push_back(nlohmann::json::parse(line)["prompt_ids"]);
  }
  const size_t most = by_test_size(200, 1'000, 1'000);
  for (const bool asynchronous : {false, true}) {
    EngineOptions options;
    options.backend = "cpu";
    options.context = 1'024;
    options.sequences = 64;
    options.asynchronous = asynchronous;
    Engine engine = open_engine(options);
    std::map<RequestId, size_t> asked;
    for (size_t i = 0; i < std::min<size_t>(most, asynchronous ? 200 : most); ++i) {
      Request request = greedy(prompts[i % prompts.size()], 12);
      request.sampling.top_logprobs = 0;
      request.tenant = i % 3 == 0 ? "" : i % 3 == 1 ? "one" : "other";
      request.priority = int(i % 4);
      asked[submit(engine, std::move(request))] = i % prompts.size();
    }
    const auto answers = run(engine);
    ASSERT_EQ(answers.size(), asked.size());
    std::map<size_t, const Answer*> first;
    for (const auto& [id, answer] : answers) {
      ASSERT_TRUE(answer.finish.reason == FinishReason::stop || answer.finish.reason == FinishReason::length);
      const auto [at, fresh] = first.try_emplace(asked[id], &answer);
      ASSERT_EQ(answer.ids, at->second->ids);
      ASSERT_EQ(answer.logprobs, at->second->logprobs);
    }
    const PrefixStatistics found = engine.prefix_statistics();
    EXPECT_GT(found.hits, 0);
  }
}

}  // namespace
}  // namespace fathom
