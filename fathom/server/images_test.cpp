// Images of requests from the body to the model: a made-up model that claims vision, and one without.
#include <algorithm>
#include <atomic>

#include "fathom/server/question.h"
#include "fathom/server/service_fixture.h"

namespace fathom {
namespace {

constexpr std::string_view kGif = "data:image/gif;base64,R0lGODlhIGFuZCBtb3Jl";

int32_t image_token() { return mini_tokenizer().encode("<｜image｜>").at(0); }

struct ImagesTest : ServiceTest {
  std::mutex mutex;
  std::vector<ImageData> shown;
  std::vector<Request> asked;
  std::atomic<int> downloads = 0;

  /// The model sees: each image becomes three tokens instead of one.
  void claim_vision() {
    options.see = [this](Question& question) -> Result<void> {
      const std::lock_guard lock(mutex);
      std::vector<int> tokens(question.images.size(), 3);
      auto ids = recipe::expand_images(question.request.ids, image_token(), tokens);
      if (!ids) return ids.error();
      question.request.ids = std::move(*ids);
      for (ImageData& image : question.images) shown.push_back(std::move(image));
      return {};
    };
    options.images.addresses = true;
    options.images.fetch = [this](const std::string& url, const net::FetchLimits&, std::stop_token) {
      ++downloads;
      return Result<net::FetchedContent>(net::FetchedContent{"GIF89a from " + url, "image/gif", url});
    };
    fake.answer = [this](const Request& request) {
      const std::lock_guard lock(mutex);
      asked.push_back(request);
      return says("ok");
    };
  }
  static std::string chat_with(const std::vector<std::string>& urls, std::string_view more = "") {
    std::string parts = R"({"type":"text","text":"what is this?"})";
    for (const std::string& url : urls) parts += R"(,{"type":"image_url","image_url":{"url":")" + url + R"("}})";
    return R"({"model":"DeepSeek-V4.1-Flash","thinking":{"type":"disabled"},"messages":[{"role":"user","content":[)" +
           parts + "]}]" + std::string(more) + "}";
  }
  static std::string messages_with(const std::string& source) {
    return R"({"model":"DeepSeek-V4.1-Flash","max_tokens":9,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image","source":)" +
           source + "}]}]}";
  }
  static std::string responses_with(const std::string& url) {
    return R"({"model":"DeepSeek-V4.1-Flash","reasoning":{"effort":"none"},"input":[{"role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_image","image_url":")" +
           url + R"("}]}]})";
  }
  static int64_t image_tokens(const Request& request) {
    return std::count(request.ids.begin(), request.ids.end(), image_token());
  }
};

TEST_F(ImagesTest, AModelWithoutVisionRefusesEveryImageAtOnceByItsPlace) {
  options.images.addresses = true;
  options.images.fetch = [this](const std::string&, const net::FetchLimits&, std::stop_token) {
    ++downloads;
    return Result<net::FetchedContent>(net::FetchedContent());
  };
  const auto chat = ask("POST", "/v1/chat/completions", chat_with({"https://example.org/a.png"}));
  EXPECT_EQ(chat->status, 400);
  EXPECT_EQ(chat->at("error", "type").text, "invalid_request_error");
  EXPECT_EQ(chat->at("error", "message").text,
            "messages[0].content[1]: the model takes no images; leave the image out");
  EXPECT_EQ(chat->at("error", "param").text, "messages[0].content[1]");
  const auto message =
      ask("POST", "/v1/messages", messages_with(R"({"type":"url","url":"https://example.org/a.png"})"));
  EXPECT_EQ(message->status, 400);
  EXPECT_EQ(message->at("type").text, "error");
  EXPECT_EQ(message->at("error", "type").text, "invalid_request_error");
  EXPECT_NE(message->at("error", "message").text.find("messages[0].content[1]: the model takes no images"),
            std::string::npos)
      << message->body;
  const auto response = ask("POST", "/v1/responses", responses_with(std::string(kGif)));
  EXPECT_EQ(response->status, 400);
  EXPECT_EQ(response->at("error", "param").text, "input[0].content[1]");
  EXPECT_EQ(
      ask("POST", "/v1/messages/count_tokens", messages_with(R"({"type":"url","url":"https://x.example/"})"))->status,
      400);
  EXPECT_EQ(ask("POST", "/v1/tokenize", chat_with({std::string(kGif)}))->status, 400);
  EXPECT_EQ(downloads, 0);
  EXPECT_EQ(fake.submitted, 0);
  EXPECT_EQ(to_string(ask("GET", "/v1/models")->at("data", 0, "input_modalities")), R"(["text"])");
}

TEST_F(ImagesTest, AModelWithVisionGetsTheBytesInTheOrderOfTheirTokens) {
  claim_vision();
  const auto answer = ask("POST", "/v1/chat/completions",
                          chat_with({"https://example.org/1", std::string(kGif), "https://example.org/2"}));
  EXPECT_EQ(answer->status, 200) << answer->body;
  ASSERT_EQ(shown.size(), 3u);
  EXPECT_EQ(shown[0].bytes, "GIF89a from https://example.org/1");
  EXPECT_EQ(shown[1].bytes, "GIF89a and more");
  EXPECT_EQ(shown[2].part, "messages[0].content[3]");
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(image_tokens(asked[0]), 9);
  EXPECT_EQ(answer->at("usage", "prompt_tokens").as_int64(), int64_t(asked[0].ids.size()));
  EXPECT_EQ(to_string(ask("GET", "/v1/models")->at("data", 0, "input_modalities")), R"(["text","image"])");

  EXPECT_EQ(ask("POST", "/v1/messages", messages_with(R"({"type":"url","url":"https://example.org/3"})"))->status, 200);
  EXPECT_EQ(ask("POST", "/v1/responses", responses_with("https://example.org/4"))->status, 200);
  EXPECT_EQ(shown.size(), 5u);
  EXPECT_EQ(downloads, 4);
  EXPECT_EQ(logged().find("example.org"), std::string::npos) << "no text of a request is logged";
}

TEST_F(ImagesTest, WhatDoesNotFitIsCountedWithItsImages) {
  fake.limits.context = 40;
  claim_vision();
  std::vector<std::string> urls(12, std::string(kGif));  // 12 tokens as written, 36 as the model sees them
  const auto refused = ask("POST", "/v1/chat/completions", chat_with(urls, R"(,"max_tokens":5)"));
  EXPECT_EQ(refused->status, 400) << refused->body;
  EXPECT_EQ(refused->at("error", "code").text, "context_length_exceeded");
  EXPECT_EQ(fake.submitted, 0);
}

TEST_F(ImagesTest, CountingCountsWhatTheCallWouldHave) {
  claim_vision();
  const std::string body = messages_with(R"({"type":"url","url":"https://example.org/3"})");
  const auto counted = ask("POST", "/v1/messages/count_tokens", body);
  EXPECT_EQ(counted->status, 200) << counted->body;
  ask("POST", "/v1/messages", body);
  EXPECT_EQ(counted->at("input_tokens").as_int64(), int64_t(asked.at(0).ids.size()));
  const auto tokens = ask("POST", "/v1/tokenize", chat_with({std::string(kGif)}));
  ask("POST", "/v1/chat/completions", chat_with({std::string(kGif)}));
  EXPECT_EQ(tokens->at("count").as_int64(), int64_t(asked.at(1).ids.size()));
}

TEST_F(ImagesTest, WhatIsWrongWithAnImageIsToldInTheFormOfItsApi) {
  claim_vision();
  options.images.fetch = [](const std::string& url, const net::FetchLimits&, std::stop_token) {
    return Result<net::FetchedContent>(Error{ErrorCode::failed, "connection refused", url, ""});
  };
  options.images.limits.images = 2;
  const auto chat = ask("POST", "/v1/chat/completions", chat_with({std::string(kGif), "https://example.org/1"}));
  EXPECT_EQ(chat->status, 400);
  EXPECT_EQ(chat->at("error", "message").text, ".messages[0].image[1]: Failed to download image from URL");
  EXPECT_EQ(chat->at("error", "param").text, "messages[0].content[2]");
  const auto message = ask("POST", "/v1/messages", messages_with(R"({"type":"url","url":"https://example.org/1"})"));
  EXPECT_EQ(message->status, 400);
  EXPECT_EQ(message->at("error", "type").text, "invalid_request_error");
  EXPECT_NE(message->at("error", "message").text.find("Failed to download image"), std::string::npos) << message->body;
  const auto response = ask("POST", "/v1/responses", responses_with("data:image/png;base64,PGh0bWw+"));
  EXPECT_EQ(response->status, 400);
  EXPECT_NE(response->at("error", "message").text.find("unsupported image"), std::string::npos) << response->body;
  const std::string gif(kGif);
  const auto many = ask("POST", "/v1/chat/completions", chat_with({gif, gif, gif}));
  EXPECT_EQ(many->status, 400);
  EXPECT_EQ(many->at("error", "message").text, "Too many images: max 2 images per request, got 3");
  EXPECT_EQ(fake.submitted, 0);
}

TEST_F(ImagesTest, WhatTheModelCannotSeeIsTheAnswerToTheRequest) {
  claim_vision();
  options.see = [](Question& question) -> Result<void> {
    return Error{ErrorCode::bad_input, question.images[0].source + ": the image is damaged", question.images[0].part,
                 ""};
  };
  const auto answer = ask("POST", "/v1/chat/completions", chat_with({std::string(kGif)}));
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(answer->at("error", "param").text, "messages[0].content[1]");
}

TEST_F(ImagesTest, AClientThatGoesAwayStopsItsDownloads) {
  claim_vision();
  std::atomic<bool> began = false, stopped = false;
  options.images.fetch = [&](const std::string& url, const net::FetchLimits&, std::stop_token stop) {
    began = true;
    while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stopped = true;
    return Result<net::FetchedContent>(Error{ErrorCode::interrupted, "the download was stopped", url, ""});
  };
  Received received;
  send(received, request("POST", "/v1/chat/completions", chat_with({"https://example.org/1"})));
  for (int i = 0; i < 5000 && !began; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  received.go_away();
  for (int i = 0; i < 5000 && !stopped; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(logs("status=499"));
  EXPECT_EQ(fake.submitted, 0);
}

// Downloads have threads of their own: while they hang, other requests are served.
TEST_F(ImagesTest, DownloadsHoldUpNobodyElse) {
  claim_vision();
  options.workers = 1;
  std::atomic<bool> release = false;
  options.images.fetch = [&](const std::string& url, const net::FetchLimits&, std::stop_token) {
    while (!release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Result<net::FetchedContent>(net::FetchedContent{"GIF89a", "", url});
  };
  std::vector<std::unique_ptr<Received>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::make_unique<Received>());
    send(*waiting.back(), request("POST", "/v1/chat/completions", chat_with({"https://example.org/1"})));
  }
  EXPECT_EQ(ask("POST", "/v1/chat/completions", chat())->status, 200);
  release = true;
  for (const auto& one : waiting) {
    EXPECT_TRUE(one->wait());
    EXPECT_EQ(one->status, 200);
  }
}

}  // namespace
}  // namespace fathom
