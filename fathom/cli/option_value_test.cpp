#include "fathom/cli/option_value.h"

#include <gtest/gtest.h>

namespace fathom::cli {
namespace {

TEST(Sizes, HaveDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_size("1024"), 1024);
  EXPECT_EQ(parse_size("500MB"), 500000000);
  EXPECT_EQ(parse_size("64GiB"), int64_t(64) << 30);
  EXPECT_EQ(parse_size("1.5KiB"), 1536);
  EXPECT_EQ(parse_size("0"), 0);
  for (const char* text : {"", "MB", "-1", "1.5", "12QB", "1 GB", "9e9", "99999999TiB", "1GiBx"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(Durations, HaveUnits) {
  using std::chrono::milliseconds;
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("30s"), milliseconds(30000));
  EXPECT_EQ(parse_duration("1.5m"), milliseconds(90000));
  for (const char* text : {"", "30", "s", "-1s", "1d"}) EXPECT_EQ(parse_duration(text), std::nullopt) << text;
}

TEST(Numbers, AreReadWholeOrNotAtAll) {
  EXPECT_EQ(parse_integer("+7"), 7);
  EXPECT_EQ(parse_integer("-7"), -7);
  for (const char* text : {"", "7x", "7.0", "0x7", "9223372036854775808"}) EXPECT_EQ(parse_integer(text), std::nullopt);
  EXPECT_EQ(parse_number("-2.5e3"), -2500);
  for (const char* text : {"", "inf", "nan", "1,5"}) EXPECT_EQ(parse_number(text), std::nullopt) << text;
  EXPECT_EQ(parse_integers("1, 2,3"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(parse_integers(""), std::vector<int64_t>{});
  for (const char* text : {"1,,2", "1;2", ",", "a"}) EXPECT_EQ(parse_integers(text), std::nullopt) << text;
}

TEST(Words, AreAsFarApartAsTheEditsBetweenThem) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("abc", "acb"), 1);  // a swap of neighbours
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Words, TheClosestIsOnlyOfferedWhenItIsNear) {
  const std::vector<std::string> names = {"--temperature", "--tools", "--top-p"};
  EXPECT_EQ(closest("--temprature", names), "--temperature");
  EXPECT_EQ(closest("--temp", names), "--temperature");  // begun, not finished
  EXPECT_EQ(closest("--bogus-option", names), std::nullopt);
  EXPECT_EQ(closest("9", std::vector<std::string>{"0", "1"}), std::nullopt);
}

TEST(Words, AreJoinedAsInASentence) {
  const std::vector<std::string> words = {"a", "b", "c"};
  EXPECT_EQ(joined(words), "a, b or c");
  EXPECT_EQ(joined(std::span(words).first(1)), "a");
  EXPECT_EQ(joined(std::span(words).first(2), "and"), "a and b");
}

}  // namespace
}  // namespace fathom::cli
