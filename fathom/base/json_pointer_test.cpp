#include "fathom/base/json_pointer.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(JsonPointer, AStepAndItsKeyAreEachOthersInverse) {
  for (const char* key : {"", "a", "a/b", "~", "~1", "m~n", "/~/", "名", "%25"}) {
    EXPECT_EQ(key_of_step(pointer_step(key)), key);
    EXPECT_EQ(pointer_step(key).find('/'), std::string::npos);
  }
  EXPECT_EQ(pointer_step("a/b"), "a~1b");  // RFC 6901, section 5
  EXPECT_EQ(pointer_step("m~n"), "m~0n");
  EXPECT_EQ(key_of_step("~01"), "~1") << "~0 first would make a slash of it";
  EXPECT_EQ(key_of_step("~"), "~");
  EXPECT_EQ(key_of_step("~2"), "~2");
}

TEST(JsonPointer, FragmentsAreDecodedByteByByte) {
  EXPECT_EQ(percent_decoded("c%25d"), "c%d");  // RFC 6901, section 6
  EXPECT_EQ(percent_decoded("%E5%90%8d"), "名");
  EXPECT_EQ(percent_decoded("%7E1"), "~1");
  for (const char* plain : {"%", "%2", "%2x", "%x2", "a%"}) EXPECT_EQ(percent_decoded(plain), plain);
}

}  // namespace
}  // namespace fathom
