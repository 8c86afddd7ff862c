#include "fathom/base/toml.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(Toml, TablesListsAndScalarsBecomeJson) {
  const auto read =
      parse_toml("backend = \"cpu\"\n[serve]\nport = 8000\nratio = 0.5\non = true\nids = [1, 2]\n", "a.toml");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(to_string(*read), R"({"backend":"cpu","serve":{"ids":[1,2],"on":true,"port":8000,"ratio":0.5}})");
}

TEST(Toml, AnEmptyFileIsAnEmptyTable) {
  const auto read = parse_toml("# nothing\n", "a.toml");
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->is_object());
  EXPECT_TRUE(read->fields.empty());
}

TEST(Toml, AMistakeNamesFileLineAndColumn) {
  const auto read = parse_toml("a = 1\nb = = 2\n", "a.toml");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::bad_input);
  EXPECT_NE(read.error().where.find("a.toml, line 2, column "), std::string::npos) << read.error().where;
}

TEST(Toml, AKeyGivenTwiceIsAMistake) { EXPECT_FALSE(parse_toml("a = 1\na = 2\n", "a.toml").ok()); }

}  // namespace
}  // namespace fathom
