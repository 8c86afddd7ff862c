#include "fathom/server/image_fetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

namespace fathom {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using recipe::ImageSource;
using Images = Result<std::vector<ImageData>>;

const std::string kPng = "\x89PNG\r\n\x1a\n and more"s;
const std::string kGif = "GIF89a and more"s;

ImageWanted at(const std::string& url, const std::string& part = "messages[0].content[1]") {
  ImageSource source;
  source.kind = url.starts_with("data:") ? ImageSource::Kind::data_url : ImageSource::Kind::url;
  source.data = url;
  source.path = ".messages[0]";
  return {source, part};
}

struct ImageFetcherTest : testing::Test {
  std::mutex mutex;
  std::string logged;
  Log log{{.level = LogLevel::info, .times = false, .write = [this](std::string_view line) {
             const std::lock_guard lock(mutex);
             logged += line;
           }}};
  ImageFetcherOptions options;
  std::atomic<int> fetches = 0;

  ImageFetcherTest() {
    options.addresses = true;
    options.fetch = [this](const std::string& url, const net::FetchLimits&, std::stop_token) {
      ++fetches;
      return Result<net::FetchedContent>(net::FetchedContent{kPng, "image/png", url});
    };
  }
  void fails(ErrorCode code, const std::string& message) {
    options.fetch = [code, message](const std::string&, const net::FetchLimits&, std::stop_token) {
      return Result<net::FetchedContent>(Error{code, message, "https://inner.example/", "a remedy"});
    };
  }
  Images get(std::vector<ImageWanted> sources, std::stop_token stop = {}) {
    ImageFetcher fetcher(options, log);
    std::promise<Images> done;
    fetcher.get(std::move(sources), "req_1", std::move(stop),
                [&](Images images) { done.set_value(std::move(images)); });
    return done.get_future().get();
  }
  Error refused(std::vector<ImageWanted> sources) {
    const Images images = get(std::move(sources));
    EXPECT_FALSE(images.ok());
    return images ? Error() : images.error();
  }
};

TEST_F(ImageFetcherTest, ImagesComeInTheirOrderWithTheFormatThatTheirBytesHave) {
  auto low = at("data:image/png;base64,R0lGODlhIGFuZCBtb3Jl", "messages[0].content[0]");  // a GIF that says PNG
  low.source.detail = recipe::ImageDetail::low;
  const auto images = get({low, at("https://example.org/a.png"), at("https://example.org/b.png")});
  ASSERT_TRUE(images) << to_string(images.error());
  ASSERT_EQ(images->size(), 3u);
  EXPECT_EQ((*images)[0].format, ImageFormat::gif);
  EXPECT_EQ((*images)[0].bytes, kGif);
  EXPECT_EQ((*images)[0].detail, recipe::ImageDetail::low);
  EXPECT_EQ((*images)[0].part, "messages[0].content[0]");
  EXPECT_EQ((*images)[1].format, ImageFormat::png);
  EXPECT_EQ((*images)[1].source, ".messages[0].image[1]");
  EXPECT_EQ(fetches, 2);
}

TEST_F(ImageFetcherTest, EachFormatIsKnownByItsFirstBytes) {
  EXPECT_EQ(image_format_of(kPng), ImageFormat::png);
  EXPECT_EQ(image_format_of("\xff\xd8\xff\xe0..."), ImageFormat::jpeg);
  EXPECT_EQ(image_format_of("GIF87a..."), ImageFormat::gif);
  EXPECT_EQ(image_format_of("RIFF....WEBPVP8 "), ImageFormat::webp);
  for (const char* other :
       {"", "RIFF....WAVE", "RIFF....WEB", "BM....", "II*\0", "<svg/>", "<html>", "%PDF-1.7", "GIF88a"}) {
    EXPECT_FALSE(image_format_of(other)) << other;
  }
}

TEST_F(ImageFetcherTest, WhatIsNoImageIsRefusedWithItsPlace) {
  for (const char* url : {"data:image/png;base64,PGh0bWw+", "data:image/png;base64,", "data:image/png;base64,!!!!"}) {
    const Error error = refused({at("https://example.org/a.png"), at(url, "messages[0].content[2]")});
    EXPECT_EQ(error.code, ErrorCode::bad_input) << url;
    EXPECT_EQ(error.where, "messages[0].content[2]") << url;
    EXPECT_TRUE(error.message.starts_with(".messages[0].image[1]: ")) << error.message;
  }
  const Error error = refused({at("data:image/png;base64,PGh0bWw+")});
  EXPECT_EQ(
      error.message,
      ".messages[0].image[0]: You have uploaded an unsupported image. Please make sure your image is valid and has "
      "one of the following formats: webp, png, jpeg, and gif.");
}

TEST_F(ImageFetcherTest, AServerThatSendsAPageIsNotBelieved) {
  for (const char* type : {"text/html", "text/html; charset=utf-8", "application/json"}) {
    options.fetch = [type](const std::string& url, const net::FetchLimits&, std::stop_token) {
      return Result<net::FetchedContent>(net::FetchedContent{kPng, type, url});
    };
    EXPECT_EQ(refused({at("https://example.org/")}).code, ErrorCode::bad_input) << type;
  }
  for (const char* type : {"", "image/webp", "IMAGE/PNG; q=1", "application/octet-stream", "binary/octet-stream"}) {
    options.fetch = [type](const std::string& url, const net::FetchLimits&, std::stop_token) {
      return Result<net::FetchedContent>(net::FetchedContent{kPng, type, url});
    };
    EXPECT_TRUE(get({at("https://example.org/")})) << type;
  }
}

// Texts of spec/recipe.md 5.
TEST_F(ImageFetcherTest, NumberAndBytesAreLimited) {
  options.limits = {.images = 2, .bytes_each = 2 << 20, .bytes_together = 3 << 20};
  const auto three = refused({at("https://a/"), at("https://b/"), at("https://c/", "messages[0].content[9]")});
  EXPECT_EQ(three.message, "Too many images: max 2 images per request, got 3");
  EXPECT_EQ(three.where, "messages[0].content[9]");
  EXPECT_EQ(fetches, 0);
  options.fetch = [](const std::string& url, const net::FetchLimits& limits, std::stop_token) {
    EXPECT_EQ(limits.bytes, 2 << 20);
    return Result<net::FetchedContent>(net::FetchedContent{kPng + std::string(2'000'000, 'x'), "", url});
  };
  EXPECT_TRUE(get({at("https://a/")}));
  const auto together = refused({at("https://a/"), at("https://b/")});
  EXPECT_EQ(together.code, ErrorCode::out_of_range);
  EXPECT_NE(together.message.find("Total image size exceeds the limit: max 3 MB per request, got 4 MB"),
            std::string::npos)
      << together.message;
  const auto large = refused({at("data:image/png;base64," + std::string(4 << 20, 'A'))});
  EXPECT_EQ(large.message, ".messages[0].image[0]: image file size exceeds limit 2 MB");
}

TEST_F(ImageFetcherTest, AddressesAreRefusedUnlessTheOperatorAllowsThem) {
  options.addresses = false;
  const Error error = refused({at("https://example.org/a.png")});
  EXPECT_EQ(error.code, ErrorCode::usage);
  EXPECT_NE(error.message.find("data URL"), std::string::npos);
  EXPECT_EQ(fetches, 0);
  EXPECT_TRUE(get({at("data:image/gif;base64,R0lGODlhIGFuZCBtb3Jl")}));
}

// An error must not tell a name of the inner network that exists from one that does not; the log may.
TEST_F(ImageFetcherTest, WhyAnAddressWasNotReachedIsForTheLogOnly) {
  fails(ErrorCode::failed, "the host's address is not a public one");
  const Error inner = refused({at("https://inner.example/")});
  fails(ErrorCode::failed, "Could not resolve host");
  const Error none = refused({at("https://none.example/")});
  EXPECT_EQ(inner.message, ".messages[0].image[0]: Failed to download image from URL");
  EXPECT_EQ(inner.message, none.message);
  EXPECT_EQ(inner.code, none.code);
  log.flush();
  EXPECT_NE(logged.find("not a public one"), std::string::npos) << logged;
  EXPECT_NE(logged.find("request=req_1"), std::string::npos) << logged;
  fails(ErrorCode::bad_input, "the host answers with status 404");
  EXPECT_EQ(refused({at("https://example.org/")}).message,
            ".messages[0].image[0]: Failed to download image from URL: the host answers with status 404");
}

TEST_F(ImageFetcherTest, TheRealDownloadRefusesWhatPointsInside) {
  options.fetch = ImageFetcherOptions().fetch;
  for (const char* url :
       {"http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:8000/metrics", "http://[::1]/",
        "https://127.0.0.1/", "https://2130706433/", "https://localhost/", "https://[::ffff:10.0.0.1]/"}) {
    const Error error = refused({at(url)});
    EXPECT_EQ(error.code, ErrorCode::bad_input) << url;
    EXPECT_NE(error.message.find("Failed to download image from URL"), std::string::npos) << url;
  }
}

TEST_F(ImageFetcherTest, ABadImageStopsTheOthersAndAClientThatGoesStopsAll) {
  std::atomic<int> stopped = 0;
  options.fetch = [&](const std::string& url, const net::FetchLimits&,
                      std::stop_token stop) -> Result<net::FetchedContent> {
    if (url == "https://bad/") return Error{ErrorCode::bad_input, "the host answers with status 404", url, ""};
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
    ++stopped;
    return Error{ErrorCode::interrupted, "the download was stopped", url, ""};
  };
  const Error error = refused({at("https://hangs/"), at("https://bad/", "messages[1].content[0]")});
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_EQ(error.where, "messages[1].content[0]");

  std::stop_source client;
  std::thread leaves([&] {
    std::this_thread::sleep_for(20ms);
    client.request_stop();
  });
  const Images images = get({at("https://hangs/"), at("https://hangs/")}, client.get_token());
  leaves.join();
  ASSERT_FALSE(images);
  EXPECT_EQ(images.error().code, ErrorCode::interrupted);
}

TEST_F(ImageFetcherTest, StoppingTellsEveryRequestOnce) {
  options.threads = 1;
  options.fetch = [](const std::string& url, const net::FetchLimits&,
                     std::stop_token stop) -> Result<net::FetchedContent> {
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
    return Error{ErrorCode::interrupted, "the download was stopped", url, ""};
  };
  ImageFetcher fetcher(options, log);
  std::atomic<int> told = 0;
  for (int i = 0; i < 5; ++i) {  // one runs, four wait
    fetcher.get({at("https://hangs/")}, "r", {}, [&](Images images) {
      EXPECT_FALSE(images);
      ++told;
    });
  }
  fetcher.stop();
  EXPECT_EQ(told, 5);
}

TEST_F(ImageFetcherTest, AFullQueueIsToldAndAllDownloadsOfARequestShareTheirTime) {
  options.threads = 1;
  options.most_waiting = 0;
  EXPECT_EQ(refused({at("https://a/")}).code, ErrorCode::interrupted);
  options.most_waiting = 10;
  options.limits.time_together = 50ms;
  options.limits.time_each = 30ms;
  std::vector<int64_t> given;
  options.fetch = [&](const std::string& url, const net::FetchLimits& limits, std::stop_token) {
    given.push_back(limits.total.count());
    std::this_thread::sleep_for(25ms);
    return Result<net::FetchedContent>(net::FetchedContent{kPng, "", url});
  };
  (void)get({at("https://a/"), at("https://b/"), at("https://c/"), at("https://d/")});
  ASSERT_EQ(given.size(), 4u);
  EXPECT_LE(given[0], 30);
  EXPECT_LT(given[1], 30);
  EXPECT_EQ(given[3], 1) << "nothing is left";
}

}  // namespace
}  // namespace fathom
