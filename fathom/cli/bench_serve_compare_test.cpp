#include "fathom/cli/bench_serve_compare.h"

#include <gtest/gtest.h>

namespace fathom::cli {
namespace {

ServeRow row_of(int64_t tokens, double first_token, int64_t streams = 4) {
  ServeRow row;
  row.api = "chat";
  row.trace = "back to back";
  row.concurrency = streams;
  row.result.load.seconds = 1;
  row.result.load.output_tokens = tokens;
  row.result.load.first_token.p50 = first_token;
  return row;
}

TEST(CompareLoads, ALoadIsSlowerByLessThroughputOrALaterFirstToken) {
  const ServeRow before = row_of(100, 0.1);
  const std::string text = to_csv(std::span(&before, 1));
  // 100 / 96 - 1 = 4.2 %, 100 / 95 - 1 = 5.3 %.
  for (const auto& [tokens, first_token, slower] :
       {std::tuple(100, 0.1, 0), {200, 0.05, 0}, {96, 0.104, 0}, {95, 0.1, 1}, {95, 0.106, 2}}) {
    const ServeRow now = row_of(tokens, first_token);
    const auto out = compare_loads(std::span(&now, 1), text, "a.csv", 0.05);
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(out->figures, 2);
    EXPECT_EQ(out->slower, slower) << tokens << " " << first_token;
  }
}

TEST(CompareLoads, OtherLoadsAndOtherFilesAreNamed) {
  const ServeRow before = row_of(100, 0.1), other = row_of(100, 0.1, 8);
  EXPECT_EQ(compare_loads(std::span(&other, 1), to_csv(std::span(&before, 1)), "a.csv", 0.05).error().where, "a.csv");
  EXPECT_EQ(compare_loads(std::span(&other, 1), "bench,length\n1,2\n", "b.csv", 0.05).error().code,
            ErrorCode::bad_input);
}

}  // namespace
}  // namespace fathom::cli
