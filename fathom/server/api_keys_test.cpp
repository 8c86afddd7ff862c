#include "fathom/server/api_keys.h"

#include <gtest/gtest.h>

#include "fathom/server/key_limits.h"

namespace fathom {
namespace {

using std::chrono::seconds;

TEST(ApiKeysTest, WithoutKeysEverybodyMayAskAsNobodyInParticular) {
  const ApiKeys none;
  EXPECT_FALSE(none.required());
  ASSERT_NE(none.find(""), nullptr);
  EXPECT_EQ(none.find("whatever")->tenant, "");
}

TEST(ApiKeysTest, AKeyIsFoundByItsTextAndByItsDigest) {
  // printf abcdefgh | sha256sum
  const auto keys = ApiKeys::parse(
      "# who may ask\n"
      "\n"
      "secret-of-alice  tenant=alice requests=60 tokens=1000 concurrency=2 priority=-3 salt=pepper  # a comment\r\n"
      "sha256:9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab\n",
      "keys.txt");
  ASSERT_TRUE(keys) << to_string(keys.error());
  EXPECT_EQ(keys->size(), 2u);
  const ApiKey* alice = keys->find("secret-of-alice");
  ASSERT_NE(alice, nullptr);
  EXPECT_EQ(alice->tenant, "alice");
  EXPECT_EQ(alice->requests_per_minute, 60);
  EXPECT_EQ(alice->tokens_per_minute, 1000);
  EXPECT_EQ(alice->concurrency, 2);
  EXPECT_EQ(alice->priority, -3);
  EXPECT_EQ(alice->salt, "pepper");
  const ApiKey* hashed = keys->find("abcdefgh");
  ASSERT_NE(hashed, nullptr);
  EXPECT_EQ(hashed->tenant, "key-9c56cc51b374");
  EXPECT_FALSE(hashed->salt.has_value());
  EXPECT_EQ(keys->find("secret-of-alicf"), nullptr);
  EXPECT_EQ(keys->find("secret-of-alice "), nullptr);
  EXPECT_EQ(keys->find(""), nullptr);
}

TEST(ApiKeysTest, AMistakeNamesItsLineAndNeverAKey) {
  struct Row {
    const char* text;
    const char* where;
  };
  for (const Row& row : {Row{"", "k"}, Row{"# only a comment\n", "k"}, Row{"\nshort\n", "k:2"},
                         Row{"long-enough-key requests=many\n", "k:1"}, Row{"long-enough-key another-secret\n", "k:1"},
                         Row{"sha256:12\n", "k:1"}, Row{"long-enough-key\nlong-enough-key\n", "k:2"},
                         Row{"long-enough-key concurrency=-1\n", "k:1"}, Row{"long-enough-key tenant=\n", "k:1"}}) {
    const auto keys = ApiKeys::parse(row.text, "k");
    ASSERT_FALSE(keys) << row.text;
    EXPECT_EQ(keys.error().where, row.where) << row.text;
    EXPECT_EQ(to_string(keys.error()).find("another-secret"), std::string::npos);
    EXPECT_EQ(to_string(keys.error()).find("long-enough-key"), std::string::npos);
  }
}

TEST(ApiKeysTest, AKeyMayComeAsBearerOrAsXApiKey) {
  net::HttpRequest request;
  EXPECT_EQ(presented_key(request), "");
  request.fields.add("X-Api-Key", "from-anthropic");
  EXPECT_EQ(presented_key(request), "from-anthropic");
  request.fields.add("Authorization", "bearer  from-openai ");
  EXPECT_EQ(presented_key(request), "from-openai");
  net::HttpRequest basic;
  basic.fields.add("Authorization", "Basic dXNlcjpwYXNz");
  EXPECT_EQ(presented_key(basic), "");
}

struct KeyLimitsTest : testing::Test {
  ApiKey key;
  KeyLimits limits;
  KeyLimits::Clock::time_point start = KeyLimits::Clock::now();

  KeyLimits::Admission at(double second) {
    return limits.admit(
        key, start + std::chrono::duration_cast<KeyLimits::Clock::duration>(std::chrono::duration<double>(second)));
  }
};

TEST_F(KeyLimitsTest, AKeyWithoutLimitsIsNeverRefused) {
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(at(0).refused);
}

TEST_F(KeyLimitsTest, AMinutesWorthMayComeAtOnceThenTheSteadyRate) {
  key.requests_per_minute = 6;
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(at(0).refused) << i;
  const auto refused = at(0).refused;
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->retry_after_seconds, 10);  // 60 s / 6
  EXPECT_TRUE(at(9.9).refused);
  EXPECT_FALSE(at(10.1).refused);
  EXPECT_TRUE(at(10.2).refused);
}

TEST_F(KeyLimitsTest, TokensAreChargedWhenTheyAreKnownAndDebtsArePaidByWaiting) {
  key.tokens_per_minute = 600;
  auto first = at(0);
  ASSERT_FALSE(first.refused);
  first.place.charge(500);
  auto second = at(0);  // 100 left: it may begin, whatever it will cost
  ASSERT_FALSE(second.refused);
  second.place.charge(200);
  const auto refused = at(0).refused;  // 100 in debt at 10 a second
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry_after_seconds, 11);
  EXPECT_TRUE(at(9).refused);
  EXPECT_FALSE(at(11).refused);
}

TEST_F(KeyLimitsTest, APlaceIsGivenBackWhenTheRequestGoes) {
  key.concurrency = 2;
  auto one = at(0);
  {
    auto two = at(0);
    EXPECT_FALSE(two.refused);
    EXPECT_TRUE(at(0).refused);
  }
  auto moved = std::move(one);
  EXPECT_FALSE(at(0).refused);
  auto again = at(0);
  EXPECT_TRUE(at(0).refused);
}

TEST_F(KeyLimitsTest, NewLimitsOfAReloadHoldFromTheNextRequest) {
  key.concurrency = 1;
  auto one = at(0);
  EXPECT_TRUE(at(0).refused);
  key.concurrency = 2;
  EXPECT_FALSE(at(0).refused);
}

}  // namespace
}  // namespace fathom
