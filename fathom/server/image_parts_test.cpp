#include "fathom/server/image_parts.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

recipe::ImageSource image(const char* path) {
  recipe::ImageSource source;
  source.path = path;
  return source;
}

std::vector<std::string> found(const char* body, const std::vector<recipe::ImageSource>& images) {
  return parts_of(images, image_parts_of(*parse_json(body, "body")));
}

TEST(ImagePartsTest, EachImageGetsThePathOfItsPartInAllThreeForms) {
  EXPECT_EQ(
      found(R"({"messages":[{"content":"x"},{"content":[{"type":"text"},{"type":"image_url"},{"type":"file"}]}]})",
            {image(".messages[1]"), image(".messages[1]")}),
      (std::vector<std::string>{"messages[1].content[1]", "messages[1].content[2]"}));
  EXPECT_EQ(
      found(
          R"({"messages":[{"content":[{"type":"tool_result","content":[{"type":"text"},{"type":"image"}]},{"type":"image"}]}]})",
          {image("messages.0.content[0]"), image("messages.0.content[1]")}),
      (std::vector<std::string>{"messages[0].content[0].content[1]", "messages[0].content[1]"}));
  EXPECT_EQ(found(R"({"input":[{"content":[{"type":"input_image"}]},{"output":[{"type":"input_image"}]}]})",
                  {image("input[1]"), image("input[0]")}),
            (std::vector<std::string>{"input[1].output[0]", "input[0].content[0]"}));
}

TEST(ImagePartsTest, WhatIsNotFoundKeepsTheWordsOfTheCodec) {
  EXPECT_EQ(found(R"({"messages":7,"input":"x"})", {image(".messages[3]"), image("input[0]"), image("")}),
            (std::vector<std::string>{"messages[3]", "input[0]", ""}));
  EXPECT_TRUE(image_parts_of(Json()).empty());
}

}  // namespace
}  // namespace fathom
