#include "fathom/grammar/compile/compile_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "fathom/grammar/compile/testing/byte_vocabulary.h"

namespace fathom::grammar {
namespace {

using testing::json_constraint;

Result<CompiledGrammar> wait(const CompilePool& pool, const CompilePool::Ticket& ticket) {
  while (true) {
    if (auto result = pool.poll(ticket)) return *result;
    std::this_thread::yield();
  }
}

Constraint numbered(int n) { return json_constraint(R"({"const":)" + std::to_string(n) + "}"); }

TEST(CompilePool, EqualConstraintsAreCompiledOnce) {
  CompilePool pool(testing::byte_vocabulary(), {});
  const auto first = pool.submit(numbered(1));
  ASSERT_TRUE(wait(pool, first).ok());
  const auto second = pool.submit(numbered(1));
  ASSERT_TRUE(pool.poll(second).has_value());  // at once
  EXPECT_EQ(pool.counters().compiled, 1);
  EXPECT_EQ(pool.counters().cache_hits, 1);
}

TEST(CompilePool, OneBadGrammarFailsOneRequest) {
  CompilePool pool(testing::byte_vocabulary(), {});
  const auto bad = pool.submit(json_constraint(R"({"type":"object","patternProperties":{"^x":{}}})"));
  const auto good = pool.submit(numbered(2));
  const auto failed = wait(pool, bad);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(to_string(failed.error()).find("patternProperties"), std::string::npos);
  EXPECT_TRUE(wait(pool, good).ok());
  EXPECT_EQ(pool.counters().failed, 1);
}

TEST(CompilePool, TheCacheKeepsWhatWasUsedLast) {
  CompilePoolOptions options;
  options.threads = 1;
  {
    CompilePool probe(testing::byte_vocabulary(), options);
    ASSERT_TRUE(wait(probe, probe.submit(numbered(1))).ok());
    options.cache_bytes = 3 * probe.counters().cached_bytes + 10;  // three of them
  }
  CompilePool pool(testing::byte_vocabulary(), options);
  for (const int n : {1, 2, 3, 1, 4}) ASSERT_TRUE(wait(pool, pool.submit(numbered(n))).ok());
  EXPECT_EQ(pool.counters().compiled, 4);
  EXPECT_EQ(pool.counters().evicted, 1);
  EXPECT_LE(pool.counters().cached_bytes, options.cache_bytes);
  EXPECT_TRUE(pool.poll(pool.submit(numbered(1))).has_value());
  EXPECT_EQ(pool.counters().cache_hits, 2);
  ASSERT_TRUE(wait(pool, pool.submit(numbered(2))).ok());  // 2 was evicted
  EXPECT_EQ(pool.counters().compiled, 5);
}

TEST(CompilePool, WaitingTooLongIsAnAnswer) {
  CompilePoolOptions options;
  options.threads = 0;  // nobody compiles
  options.longest_wait = std::chrono::milliseconds(1);
  options.most_waiting = 2;
  CompilePool pool(testing::byte_vocabulary(), options);
  const auto late = pool.submit(numbered(1));
  const auto result = wait(pool, late);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::failed);
  (void)pool.submit(numbered(2));
  const auto full = pool.poll(pool.submit(numbered(3)));
  ASSERT_TRUE(full.has_value());
  EXPECT_FALSE(full->ok());
}

TEST(CompilePool, AGrammarBeyondTheMemoryLimitIsRefused) {
  CompilePoolOptions options;
  options.limits.bytes = 10;
  CompilePool pool(testing::byte_vocabulary(), options);
  const auto result = wait(pool, pool.submit(numbered(1)));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::out_of_memory);
}

// Grammars of running answers count although the cache has none of them; one more waits until an answer ends.
TEST(CompilePool, AConstraintWaitsWhileAnswersHoldAllTheMemory) {
  CompilePoolOptions options;
  options.threads = 1;
  options.cache_bytes = 0;
  {
    CompilePool probe(testing::byte_vocabulary(), options);
    options.limits.bytes = wait(probe, probe.submit(numbered(1)))->bytes() + 100;
  }
  options.most_bytes = 3 * options.limits.bytes;
  CompilePool pool(testing::byte_vocabulary(), options);
  std::vector<Matcher> answers;
  for (int n = 0; n < 3; ++n) answers.emplace_back(*wait(pool, pool.submit(numbered(n))));
  EXPECT_GT(pool.counters().held_bytes, 2 * options.limits.bytes);
  EXPECT_LE(pool.counters().held_bytes, options.most_bytes);
  const auto ticket = pool.submit(numbered(3));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(pool.poll(ticket).has_value()) << "there is no room";
  EXPECT_EQ(pool.counters().compiled, 3);
  answers.erase(answers.begin() + 1);  // an answer ends
  EXPECT_TRUE(wait(pool, ticket).ok());
  EXPECT_LE(pool.counters().held_bytes, options.most_bytes);
}

TEST(CompilePool, AConstraintThatFindsNoRoomInTimeFailsAloneAndSaysWhy) {
  CompilePoolOptions options;
  options.threads = 1;
  options.limits.bytes = 1'000'000;
  options.most_bytes = 1'000'000;  // one at a time
  options.cache_bytes = 0;
  options.longest_wait = std::chrono::milliseconds(40);
  CompilePool pool(testing::byte_vocabulary(), options);
  std::optional<Matcher> answer;
  answer.emplace(*wait(pool, pool.submit(numbered(1))));
  const auto refused = wait(pool, pool.submit(numbered(2)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory) << "429 for clients: it may be tried again";
  EXPECT_NE(refused.error().message.find("of 1 MB"), std::string::npos) << to_string(refused.error());
  EXPECT_TRUE(answer->accept('1')) << "who has its grammar does not notice";
  answer.reset();
  // The late one is compiled all the same and then let go of; who comes now finds room.
  for (int tries = 0;; ++tries) {
    ASSERT_LT(tries, 200);
    if (wait(pool, pool.submit(numbered(3))).ok()) break;
  }
}

// What only the cache holds makes room, the longest unused first; what an answer uses as well stays findable.
TEST(CompilePool, TheCacheGivesWayToWhatIsNeeded) {
  CompilePoolOptions options;
  options.threads = 1;
  int64_t each = 0;
  {
    CompilePool probe(testing::byte_vocabulary(), options);
    each = wait(probe, probe.submit(numbered(1)))->bytes();
  }
  options.limits.bytes = each + 100;
  options.most_bytes = 3 * each + 300;
  CompilePool pool(testing::byte_vocabulary(), options);
  const Matcher answer(*wait(pool, pool.submit(numbered(1))));
  for (const int n : {2, 3, 4, 5}) ASSERT_TRUE(wait(pool, pool.submit(numbered(n))).ok());
  EXPECT_EQ(pool.counters().evicted, 2) << "2 and 3";
  EXPECT_LE(pool.counters().held_bytes, options.most_bytes);
  EXPECT_TRUE(pool.poll(pool.submit(numbered(1))).has_value()) << "1 is the oldest and in use";
  EXPECT_TRUE(pool.poll(pool.submit(numbered(5))).has_value());
  EXPECT_EQ(pool.counters().compiled, 5);
}

TEST(CompilePool, NoGrammarIsLargerThanAllMayBe) {
  CompilePoolOptions options;
  options.most_bytes = 10;
  CompilePool pool(testing::byte_vocabulary(), options);
  const auto result = wait(pool, pool.submit(numbered(1)));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::out_of_memory);
}

TEST(CompilePool, AGrammarMayOutliveItsPool) {
  std::optional<CompiledGrammar> kept;
  {
    CompilePool pool(testing::byte_vocabulary(), {});
    kept.emplace(*wait(pool, pool.submit(numbered(1))));
  }
  Matcher matcher(*kept);
  EXPECT_TRUE(matcher.accept('1'));
}

// For ThreadSanitizer: many callers, few constraints, matchers of one grammar in several threads.
TEST(CompilePool, ManyThreadsShareAPoolAndItsGrammars) {
  CompilePoolOptions options;
  options.cache_bytes = 20'000;
  options.limits.bytes = 100'000;
  options.most_bytes = 250'000;  // memory is short now and then
  CompilePool pool(testing::byte_vocabulary(), options);
  std::atomic<int> accepted = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const int n = (i * (t + 1)) % 9;
        const auto grammar = wait(pool, pool.submit(numbered(n)));
        if (!grammar.ok()) continue;
        Matcher matcher(*grammar);
        std::vector<uint32_t> words(9);
        if (matcher.mask(words).ok() && matcher.accept('0' + n) && matcher.accept(testing::kStop)) ++accepted;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(accepted, 160);
}

}  // namespace
}  // namespace fathom::grammar
