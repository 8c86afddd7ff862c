#include "fathom/net/http/answer_head.h"

#include <gtest/gtest.h>

namespace fathom::net {
namespace {

std::string head_of(AnswerHead head) {
  std::string out;
  append_head(out, head);
  const size_t date = out.find("Date: ");
  const size_t end = out.find("\r\n", date);
  EXPECT_NE(date, std::string::npos);
  EXPECT_EQ(out.substr(end - 4, 4), " GMT");
  EXPECT_EQ(end - date, std::string_view("Date: Mon, 30 Nov 2026 07:10:00 GMT").size());
  return out.erase(date, end + 2 - date);
}

TEST(AnswerHeadTest, EachFramingIsAnnounced) {
  EXPECT_EQ(head_of({.content_length = 12}), "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n");
  EXPECT_EQ(head_of({.framing = Framing::chunks, .server_name = "fathom"}),
            "HTTP/1.1 200 OK\r\nServer: fathom\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(head_of({.framing = Framing::close, .keep_alive = false, .minor_version = 0}),
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(head_of({.status = 204, .framing = Framing::none, .minor_version = 0}),
            "HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n");
}

TEST(AnswerHeadTest, AnEchoedValueCannotBecomeAnotherField) {
  const HttpFields fields = {
      {"X-Request-Id", "a\r\nSet-Cookie: b\x7f"}, {"Bad\r\nName", "x"}, {"", "x"}, {"content-length", "7"}};
  EXPECT_EQ(head_of({.fields = &fields}),
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Request-Id: a  Set-Cookie: b \r\n\r\n");
}

TEST(AnswerHeadTest, AnEmptyPieceIsNoChunk) {
  std::string out;
  append_chunk(out, "");
  append_chunk(out, std::string(26, 'x'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n");
}

}  // namespace
}  // namespace fathom::net
