#include "fathom/tokenizer/stages/added_tokens.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

AddedTokens tokens(std::vector<std::pair<std::string_view, int32_t>> list) { return AddedTokens(list); }

TEST(AddedTokens, TheLeftmostWinsThenTheLongest) {
  const AddedTokens added = tokens({{"ab", 1}, {"abcd", 2}, {"bcde", 3}});
  const auto first = added.find("xabcde", 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->begin, 1u);
  EXPECT_EQ(first->end, 5u);
  EXPECT_EQ(first->id, 2);
  EXPECT_EQ(added.find("abce", 0)->id, 1) << "the longer one breaks off";
  EXPECT_EQ(added.find("xabcde", 2)->id, 3);
}

TEST(AddedTokens, ATextWithoutThemHasNone) {
  EXPECT_FALSE(tokens({{"<think>", 1}}).find("a < b <thin", 0));
  EXPECT_FALSE(tokens({}).find("anything", 0));
  EXPECT_FALSE(tokens({{"a", 1}}).find("", 0));
  EXPECT_FALSE(tokens({{"a", 1}}).find("a", 1));
}

}  // namespace
}  // namespace fathom
