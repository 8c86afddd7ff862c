// Cases of the HTML standard, section 9.2.6, and of our own writer.
#include "fathom/net/server_sent_events.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom::net {
namespace {

std::vector<ServerSentEvent> events_of(std::string_view stream, size_t piece = std::string_view::npos) {
  SseParser parser;
  std::vector<ServerSentEvent> events;
  while (!stream.empty()) {
    EXPECT_TRUE(parser.feed(stream.substr(0, piece)).ok());
    stream.remove_prefix(std::min(piece, stream.size()));
    while (auto event = parser.next()) events.push_back(std::move(*event));
  }
  return events;
}

TEST(ServerSentEventsTest, DataOfOneLineIsOneLine) {
  std::string out;
  append_sse_data(out, R"({"a":1})");
  append_sse_data(out, "[DONE]");
  EXPECT_EQ(out, "data: {\"a\":1}\n\ndata: [DONE]\n\n");
}

TEST(ServerSentEventsTest, AnEventHasItsNameFirst) {
  std::string out;
  append_sse_event(out, "ping", "{}");
  EXPECT_EQ(out, "event: ping\ndata: {}\n\n");
}

TEST(ServerSentEventsTest, ALineBreakInDataBecomesALineOfItsOwn) {
  std::string out;
  append_sse_data(out, "a\nb\r\nc\rd\n");
  EXPECT_EQ(out, "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
  ASSERT_EQ(events_of(out).size(), 1u);
  EXPECT_EQ(events_of(out)[0].data, "a\nb\nc\nd\n");
}

TEST(ServerSentEventsTest, ACommentCannotEndItself) {
  std::string out;
  append_sse_comment(out, "still\nhere");
  EXPECT_EQ(out, ": still here\n\n");
}

TEST(ServerSentEventsTest, TheStandardsExamplesAreRead) {
  // Two data lines are one event; "data" alone and "data:" are empty lines of data.
  EXPECT_EQ(events_of("data: YHOO\ndata: +2\ndata: 10\n\n"),
            (std::vector<ServerSentEvent>{{"message", "YHOO\n+2\n10", ""}}));
  EXPECT_EQ(events_of("data\n\ndata\ndata\n\ndata:"),
            (std::vector<ServerSentEvent>{{"message", "", ""}, {"message", "\n", ""}}));
  EXPECT_EQ(events_of("data:test\n\ndata: test\n\n"),
            (std::vector<ServerSentEvent>{{"message", "test", ""}, {"message", "test", ""}}));
  EXPECT_EQ(events_of(": stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"),
            (std::vector<ServerSentEvent>{
                {"message", "first event", "1"}, {"message", "second event", ""}, {"message", " third event", ""}}));
}

TEST(ServerSentEventsTest, AllLineEndingsAndAByteOrderMarkAreRead) {
  EXPECT_EQ(events_of("\xef\xbb\xbf"
                      "data: a\r\revent: b\r\ndata: c\r\n\r\nevent: none\n\n"),
            (std::vector<ServerSentEvent>{{"message", "a", ""}, {"b", "c", ""}}));
}

TEST(ServerSentEventsTest, AnEventThatTheEndCutsIsNotGiven) { EXPECT_TRUE(events_of("data: half\n").empty()); }

TEST(ServerSentEventsTest, CutsDoNotMatter) {
  const std::string stream =
      "\xef\xbb\xbf"
      "data: a\r\n\r\n: hi\r\revent: b\ndata: c\ndata: \xe2\x82\xac\n\nid: 7\nretry: 10\ndata\n\n";
  const auto whole = events_of(stream);
  ASSERT_EQ(whole.size(), 3u);
  for (size_t piece = 1; piece < stream.size(); ++piece) EXPECT_EQ(events_of(stream, piece), whole) << piece;
}

TEST(ServerSentEventsTest, RetryAndCommentsAreCounted) {
  SseParser parser;
  ASSERT_TRUE(parser.feed("retry: 250\n: a\n\n:b\nretry: 1x\nretry:\n").ok());
  EXPECT_EQ(parser.retry_milliseconds(), 250);
  EXPECT_EQ(parser.comments(), 2);
}

TEST(ServerSentEventsTest, AnEndlessLineOrEventIsRefused) {
  SseParser line(10), event(10);
  EXPECT_TRUE(line.feed("data: 4567").ok());
  EXPECT_EQ(line.feed("8").error().code, ErrorCode::out_of_range);
  EXPECT_FALSE(line.feed("\n").ok()) << "it stays done";
  EXPECT_TRUE(event.feed("data:12345\n").ok());
  EXPECT_FALSE(event.feed("data:12345\n").ok());
}

}  // namespace
}  // namespace fathom::net
