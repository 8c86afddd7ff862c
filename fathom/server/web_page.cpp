#include "fathom/server/web_page.h"

#include <algorithm>
#include <string>

namespace fathom {
namespace {

// Nothing from elsewhere, no script or style inside the page, no frame around it. Images are those that the user
// attaches.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// If-None-Match: a list of tags, or *; a weak tag counts as its strong one (RFC 9110, 13.1.2).
bool has_tag(std::string_view list, std::string_view etag) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view tag = list.substr(0, comma);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    while (!tag.empty() && (tag.front() == ' ' || tag.front() == '\t')) tag.remove_prefix(1);
    while (!tag.empty() && (tag.back() == ' ' || tag.back() == '\t')) tag.remove_suffix(1);
    if (tag.starts_with("W/")) tag.remove_prefix(2);
    if (tag == "*" || tag == etag) return true;
  }
  return false;
}

}  // namespace

std::optional<net::HttpAnswer> web_page(const net::HttpRequest& request) {
  const auto files = web_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const WebFile& f) { return f.path == request.path; });
  if (file == files.end()) return {};
  net::HttpAnswer answer;
  // A new version of the program has other files under the same names: the browser asks each time, and mostly gets 304.
  answer.fields.add("ETag", file->etag).add("Cache-Control", "no-cache");
  answer.fields.add("Content-Security-Policy", kPolicy).add("X-Content-Type-Options", "nosniff");
  answer.fields.add("Referrer-Policy", "no-referrer").add("Cross-Origin-Opener-Policy", "same-origin");
  const std::string* known = request.find("if-none-match");
  if (known != nullptr && has_tag(*known, file->etag)) {
    answer.status = 304;
    return answer;
  }
  answer.fields.add("Content-Type", file->type);
  answer.body = std::string(file->text);
  return answer;
}

}  // namespace fathom
