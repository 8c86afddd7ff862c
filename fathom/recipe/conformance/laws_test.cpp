// The codec's laws on thousands of random requests, answers and cuts (issue: property tests; spec/codec-policy.md 6).
#include "fathom/recipe/conformance/laws.h"

#include <gtest/gtest.h>

#include "fathom/base/test_size.h"

namespace fathom::recipe {
namespace {

uint64_t seeds() { return by_test_size(150, 1'500, 20'000); }

class Laws : public ::testing::TestWithParam<Policy> {};
INSTANTIATE_TEST_SUITE_P(Policies, Laws, ::testing::Values(Policy::lenient, Policy::strict),
                         [](const auto& param) { return param.param == Policy::strict ? "strict" : "lenient"; });

std::string told(uint64_t seed, const std::optional<BrokenLaw>& broken) {
  return "seed " + std::to_string(seed) + ": " + broken->law + "\n" + broken->detail;
}

TEST_P(Laws, RequestsHaveAPromptOrARefusal) {
  for (Api api : {Api::chat_completions, Api::responses, Api::messages}) {
    for (uint64_t seed = 1; seed <= seeds(); ++seed) {
      const auto broken = try_request(api, seed, GetParam());
      ASSERT_FALSE(broken) << told(seed, broken);
    }
  }
}

TEST_P(Laws, AnswersDoNotDependOnCutsAndCallsAreJson) {
  for (Api api : {Api::chat_completions, Api::responses, Api::messages}) {
    for (uint64_t seed = 1; seed <= seeds(); ++seed) {
      const auto broken = try_answer(api, seed, GetParam());
      ASSERT_FALSE(broken) << told(seed, broken);
    }
  }
}

TEST_P(Laws, ARenderedTurnParsesToItself) {
  for (uint64_t seed = 1; seed <= 4 * seeds(); ++seed) {
    const auto broken = try_round_trip(seed, GetParam());
    ASSERT_FALSE(broken) << told(seed, broken);
  }
}

}  // namespace
}  // namespace fathom::recipe
