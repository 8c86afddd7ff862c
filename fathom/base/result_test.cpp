#include "fathom/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace fathom {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error{ErrorCode::out_of_range, "3 is odd", "--value", "pass an even number"};
  return value / 2;
}

TEST(Result, CarriesTheValueOrTheError) {
  const auto good = half(4);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(bool(good));
  EXPECT_EQ(*good, 2);
  const auto bad = half(3);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::out_of_range);
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, OfVoidIsSuccessUntilAnErrorIsGiven) {
  EXPECT_TRUE(Result<void>().ok());
  const Result<void> bad = Error{ErrorCode::failed, "no", "", ""};
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message, "no");
}

TEST(Result, TheWrongSideAborts) {
  EXPECT_DEATH((void)half(3).value(), "value.. on an error");
  EXPECT_DEATH((void)half(4).error(), "error.. on a value");
  EXPECT_DEATH((void)Result<void>().error(), "error.. on success");
}

TEST(Error, IsOneLineAndLeavesEmptyPartsOut) {
  EXPECT_EQ(to_string(half(3).error()), "3 is odd (--value): pass an even number");
  EXPECT_EQ(to_string(Error{ErrorCode::failed, "disk is gone", "", ""}), "disk is gone");
  EXPECT_EQ(to_string(Error{ErrorCode::failed, "disk is gone", "sda", ""}), "disk is gone (sda)");
  EXPECT_EQ(to_string(Error{ErrorCode::failed, "disk is gone", "", "plug it in"}), "disk is gone: plug it in");
}

TEST(Error, EveryCodeHasItsOwnWord) {
  std::set<std::string> words;
  for (const ErrorCode code :
       {ErrorCode::usage, ErrorCode::bad_input, ErrorCode::corrupt, ErrorCode::not_found, ErrorCode::out_of_range,
        ErrorCode::out_of_memory, ErrorCode::unsupported, ErrorCode::failed, ErrorCode::interrupted}) {
    words.insert(name_of(code));
  }
  EXPECT_EQ(words.size(), 9u);
}

TEST(Check, SaysWhatAndWhereAndAborts) {
  check(true, "never printed");
  EXPECT_DEATH(check(1 + 1 == 3, "arithmetic holds"), "internal error: arithmetic holds .*result_test.cpp:[0-9]+");
}

}  // namespace
}  // namespace fathom
