// fathom/server/image_fetcher.h
// From the image sources of a conversation to bytes: data URLs are decoded, addresses are downloaded, both checked and
// counted. On a few threads of its own, because a download may take seconds and must hold up neither io nor the workers
// that read requests. What may be called is net/http_client.h's fetch_public: https, port 443, public addresses, looked
// at again after each name lookup and each redirect.
//
// Limits and texts of errors are those of spec/recipe.md 5. What went wrong on the way to an address is not told but
// for a status or a length: a stranger must not learn from errors which names of the inner network exist. The log has
// it.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include "fathom/base/log.h"
#include "fathom/net/http_client.h"
#include "fathom/server/image_data.h"
#include "fathom/server/work_queue.h"

namespace fathom {

struct ImageLimits {
  int64_t images = 600;                             // of a request
  int64_t bytes_each = int64_t(32) << 20;           // encoded
  int64_t bytes_together = int64_t(64) << 20;       // of a request, encoded
  std::chrono::milliseconds time_each{10'000};      // of a download
  std::chrono::milliseconds time_together{30'000};  // of all downloads of a request
};

struct ImageFetcherOptions {
  ImageLimits limits = {};
  int threads = 4;
  int64_t most_waiting = 1024;  // images that wait for a thread; then a request gets `interrupted`
  bool addresses = false;       // images by address are downloaded; else refused
  /// How; tests have their own.
  std::function<Result<net::FetchedContent>(const std::string& url, const net::FetchLimits&, std::stop_token)> fetch =
      net::fetch_public;
};

class ImageFetcher {
 public:
  using Done = std::function<void(Result<std::vector<ImageData>>)>;

  /// `log` must outlive it.
  ImageFetcher(ImageFetcherOptions options, Log& log);
  ~ImageFetcher();  // stop()

  /// Any thread; returns at once. `done` is called once: with all `images` in their order, or with what is
  /// wrong with the first that is bad. On a thread of the fetcher, or the caller's when nothing needs to be waited for.
  /// `request` names the request in the log. Errors: usage (too many; addresses are not fetched), bad_input (no image,
  /// not found), out_of_range (too large), interrupted (`stop`, no thread in time); `where` is the part's path.
  void get(std::vector<ImageWanted> images, std::string request, std::stop_token stop, Done done);

  /// Cuts what runs, drops what waits, and tells each request so; then waits for the threads. May be called again.
  void stop();

 private:
  struct Gathering;
  const ImageFetcherOptions options_;
  Log& log_;
  std::stop_source all_;
  WorkQueue threads_;
};

}  // namespace fathom
