#include "fathom/net/data_url.h"

#include <gtest/gtest.h>

namespace fathom::net {
namespace {

constexpr int64_t kMost = 1000;

std::string content(std::string_view url) {
  const auto read = read_data_url(url, kMost);
  return read ? read->media_type + "|" + read->bytes : "refused";
}

TEST(DataUrlTest, ContentIsReadInBothForms) {
  for (const auto& [url, want] : {
           std::pair("data:image/png;base64,aGVsbG8=", "image/png|hello"),
           std::pair("DATA:Image/PNG;BASE64,aGVsbG8=", "image/png|hello"),
           std::pair("data:image/png;charset=x;base64,aGVsbG8", "image/png|hello"),  // a parameter, no padding
           std::pair("data:image/png;base64,aGVs\r\n bG8=", "image/png|hello"),
           std::pair("data:;base64,aGVsbG8=", "text/plain|hello"), std::pair("data:,a%20b+c", "text/plain|a b+c"),
           std::pair("data:image/gif,%47IF", "image/gif|GIF"), std::pair("data:image/png;base64,", "image/png|"),
           std::pair("data:image/png;base64,/+8=", "image/png|\xff\xef"),
           std::pair("data:text/plain;base64;x=y,abc", "text/plain|abc"),  // base64 is the last word or none
       }) {
    EXPECT_EQ(content(url), want) << url;
  }
}

TEST(DataUrlTest, WhatIsNoDataUrlIsRefused) {
  for (const char* url :
       {"", "data", "data:image/png;base64", "http://x/,", "data:image/png;base64,a", "data:image/png;base64,aGVsbG8=x",
        "data:image/png;base64,aGVsbG8===", "data:image/png;base64,aGVs=", "data:image/png;base64,a-_b"}) {
    const auto read = read_data_url(url, kMost);
    ASSERT_FALSE(read) << url;
    EXPECT_EQ(read.error().code, ErrorCode::bad_input) << url;
  }
}

// 1,000 bytes are 1,334 digits.
TEST(DataUrlTest, TheLimitCountsDecodedBytes) {
  const std::string fits = "data:;base64," + std::string(1332, 'A') + "AA==";
  EXPECT_EQ(read_data_url(fits, kMost)->bytes.size(), 1000u);
  for (const std::string& url : {"data:;base64," + std::string(1336, 'A'), "data:;base64," + std::string(100'000, 'A'),
                                 "data:," + std::string(1001, 'x'), "data:," + std::string(100'000, '%')}) {
    const auto read = read_data_url(url, kMost);
    ASSERT_FALSE(read) << url.size();
    EXPECT_EQ(read.error().code, ErrorCode::out_of_range) << url.size();
  }
  // White space does not count.
  EXPECT_EQ(read_data_url(fits.substr(0, 100) + std::string(5000, '\n') + fits.substr(100), kMost)->bytes.size(),
            1000u);
  EXPECT_EQ(read_data_url("data:," + std::string(1000, 'x'), kMost)->bytes.size(), 1000u);
}

}  // namespace
}  // namespace fathom::net
