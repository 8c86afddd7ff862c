#include "fathom/server/image_fetcher.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "fathom/net/data_url.h"
#include "fathom/net/http_message.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;
using recipe::ImageSource;

constexpr const char* kUnsupported =
    "You have uploaded an unsupported image. Please make sure your image is valid and has one of the following "
    "formats: "
    "webp, png, jpeg, and gif.";
constexpr const char* kNotDownloaded = "Failed to download image from URL";

std::string megabytes(int64_t bytes) { return std::to_string(bytes >> 20) + " MB"; }

/// A server that says it sends something else means it: a page of HTML is no image, however it begins.
bool may_be_image(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find_first_of("; "));
  if (type.empty() || net::equals_ignoring_case(type.substr(0, 6), "image/")) return true;
  return net::equals_ignoring_case(type, "application/octet-stream") ||
         net::equals_ignoring_case(type, "binary/octet-stream");
}

}  // namespace

/// The images of one request. Shared by the jobs that get them; the last one to go tells what came of it.
struct ImageFetcher::Gathering {
  const ImageFetcherOptions& options;
  Log& log;
  const std::string request;
  std::vector<ImageWanted> wanted;  // the data of each belongs to its job, the rest is read by all
  const Clock::time_point deadline;
  Done done;

  std::stop_source stop;
  std::optional<std::stop_callback<std::function<void()>>> client, fetcher;  // each stops this one

  std::mutex mutex;
  std::vector<std::optional<ImageData>> images;
  std::vector<std::optional<Error>> errors;
  int64_t bytes = 0;

  Gathering(const ImageFetcherOptions& o, Log& l, std::string r, std::vector<ImageWanted> w, Done d)
      : options(o),
        log(l),
        request(std::move(r)),
        wanted(std::move(w)),
        deadline(Clock::now() + o.limits.time_together),
        done(std::move(d)),
        images(wanted.size()),
        errors(wanted.size()) {}
  ~Gathering() {
    try {
      tell();
    } catch (const std::bad_alloc&) {  // what waits for the images goes, and with it its answer
    }
  }

  void tell();
  std::string name_of_source(size_t i) const;
  Error error_of(size_t i, ErrorCode code, const std::string& what) const;
  Result<std::string> bytes_of(size_t i);
  Result<std::string> download(size_t i);
  void run(size_t i);
};

void ImageFetcher::Gathering::tell() {
  client.reset();
  fetcher.reset();
  // When one fails the others are stopped: what they then say is not the reason.
  const auto reason = std::find_if(errors.begin(), errors.end(), [](const std::optional<Error>& error) {
    return error && error->code != ErrorCode::interrupted;
  });
  if (reason != errors.end()) return done(std::move(**reason));
  std::vector<ImageData> all;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!images[i])
      return done(error_of(i, ErrorCode::interrupted, "the server has no time for this image: try again later"));
    all.push_back(std::move(*images[i]));
  }
  done(std::move(all));
}

/// ".messages[0].image[1]": spec/recipe.md 5.
std::string ImageFetcher::Gathering::name_of_source(size_t i) const {
  const std::string& path = wanted[i].source.path;
  const auto same = [&](const ImageWanted& other) { return other.source.path == path; };
  const auto before = std::count_if(wanted.begin(), wanted.begin() + ptrdiff_t(i), same);
  return path + (path.empty() ? "image[" : ".image[") + std::to_string(before) + "]";
}

Error ImageFetcher::Gathering::error_of(size_t i, ErrorCode code, const std::string& what) const {
  return {code, name_of_source(i) + ": " + what, wanted[i].part, ""};
}

Result<std::string> ImageFetcher::Gathering::download(size_t i) {
  if (!options.addresses) {
    return error_of(i, ErrorCode::usage,
                    "this server downloads no images: send the image itself as a data URL, or start it with "
                    "--image-urls public");
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  net::FetchLimits limits;
  limits.bytes = options.limits.bytes_each;
  limits.total = std::clamp(left, std::chrono::milliseconds(1), options.limits.time_each);
  limits.connect = std::min(limits.connect, limits.total);
  auto got = options.fetch(wanted[i].source.data, limits, stop.get_token());
  if (!got) {
    const Error& error = got.error();
    if (error.code == ErrorCode::interrupted) return error_of(i, error.code, error.message);
    log.write(LogLevel::info, "an image was not downloaded",
              {{"request", request}, {"image", wanted[i].part}, {"error", to_string(error)}});
    // A URL's own mistakes and what a public host says are no secrets.
    const bool told = error.code == ErrorCode::bad_input || error.code == ErrorCode::out_of_range;
    return error_of(i, error.code == ErrorCode::out_of_range ? error.code : ErrorCode::bad_input,
                    kNotDownloaded + (told ? ": " + error.message : std::string()));
  }
  if (!may_be_image(got->content_type)) return error_of(i, ErrorCode::bad_input, kUnsupported);
  return std::move(got->bytes);
}

Result<std::string> ImageFetcher::Gathering::bytes_of(size_t i) {
  switch (wanted[i].source.kind) {
    case ImageSource::Kind::url: return download(i);
    case ImageSource::Kind::bytes: return std::move(wanted[i].source.data);
    case ImageSource::Kind::data_url: break;
  }
  const std::string url = std::move(wanted[i].source.data);  // goes as soon as it is decoded
  auto read = net::read_data_url(url, options.limits.bytes_each);
  if (read) return std::move(read->bytes);
  const bool large = read.error().code == ErrorCode::out_of_range;
  return error_of(
      i, read.error().code,
      large ? "image file size exceeds limit " + megabytes(options.limits.bytes_each) : "Invalid base64 data");
}

void ImageFetcher::Gathering::run(size_t i) {
  if (stop.stop_requested()) return;
  auto content = bytes_of(i);
  const std::lock_guard lock(mutex);
  const auto fail = [&](Error error) {
    errors[i] = std::move(error);
    stop.request_stop();
  };
  if (!content) return fail(content.error());
  const auto format = image_format_of(*content);
  const ImageLimits& limits = options.limits;
  if (content->empty()) return fail(error_of(i, ErrorCode::bad_input, "the image is empty"));
  if (int64_t(content->size()) > limits.bytes_each) {
    return fail(error_of(i, ErrorCode::out_of_range, "image file size exceeds limit " + megabytes(limits.bytes_each)));
  }
  if (!format) return fail(error_of(i, ErrorCode::bad_input, kUnsupported));
  bytes += int64_t(content->size());
  if (bytes > limits.bytes_together) {
    return fail(error_of(i, ErrorCode::out_of_range,
                         "Total image size exceeds the limit: max " + megabytes(limits.bytes_together) +
                             " per request, got " + megabytes(bytes + (1 << 20) - 1)));
  }
  images[i] = ImageData{*format, std::move(*content), wanted[i].source.detail, name_of_source(i), wanted[i].part};
}

ImageFetcher::ImageFetcher(ImageFetcherOptions options, Log& log)
    : options_(std::move(options)), log_(log), threads_(options_.threads, options_.most_waiting) {}

ImageFetcher::~ImageFetcher() { stop(); }

void ImageFetcher::get(std::vector<ImageWanted> images, std::string request, std::stop_token stop, Done done) {
  const auto count = int64_t(images.size());
  if (count > options_.limits.images) {
    return done(Error{ErrorCode::usage,
                      "Too many images: max " + std::to_string(options_.limits.images) + " images per request, got " +
                          std::to_string(count),
                      images[size_t(options_.limits.images)].part, ""});
  }
  const auto all = std::make_shared<Gathering>(options_, log_, std::move(request), std::move(images), std::move(done));
  const auto cut = [gathering = all.get()] { gathering->stop.request_stop(); };
  all->client.emplace(std::move(stop), cut);
  all->fetcher.emplace(all_.get_token(), cut);
  for (size_t i = 0; i < size_t(count); ++i) {
    if (!threads_.add([all, i] { all->run(i); })) {
      all->stop.request_stop();
      return;
    }
  }
}

void ImageFetcher::stop() {
  all_.request_stop();
  threads_.stop();
}

}  // namespace fathom
