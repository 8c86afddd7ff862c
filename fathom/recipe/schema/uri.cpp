#include "fathom/recipe/schema/uri.h"

#include <algorithm>
#include <utility>

namespace fathom::recipe::schema {
namespace {

int value_of_hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = char(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

// Length of "scheme:", 0 when there is none.
size_t scheme_length(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == ':') return i == 0 ? 0 : i + 1;
    if (!letter && !(i > 0 && ((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'))) return 0;
  }
  return 0;
}

std::string without_dots(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/', 1), path.size());
    const std::string_view segment = path.substr(0, end);
    path.remove_prefix(end);
    const bool up = segment == "/.." || segment == "..";
    if (up) out.resize(out.rfind('/') == std::string::npos ? 0 : out.rfind('/'));
    if (up || segment == "/." || segment == ".") {
      if (path.empty()) out += '/';
      continue;
    }
    out += segment;
  }
  return out;
}

}  // namespace

bool valid_uri_reference(std::string_view text) {
  const size_t authority = text.find("//");
  const size_t path = authority == std::string_view::npos ? 0 : std::min(text.find('/', authority + 2), text.size());
  bool fragment = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size() || value_of_hex(text[i + 1]) < 0 || value_of_hex(text[i + 2]) < 0) return false;
    } else if (c == '#') {
      if (std::exchange(fragment, true)) return false;
    } else if (c == '[' || c == ']') {
      if (i >= path) return false;
    } else if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 std::string_view("-._~:/?@!$&'()*+,;=").find(c) != std::string_view::npos)) {
      return false;
    }
  }
  const size_t open = text.find('[');
  return open == std::string_view::npos || text.find(']', open) != std::string_view::npos;
}

std::string resolve_uri(std::string_view base, std::string_view reference) {
  if (scheme_length(reference) > 0) return std::string(reference);
  const size_t scheme = scheme_length(base);
  if (reference.starts_with("//")) return std::string(base.substr(0, scheme)) + std::string(reference);
  size_t path = scheme;
  if (base.substr(scheme).starts_with("//")) path = std::min(base.find('/', scheme + 2), base.size());
  if (reference.empty()) return std::string(base);
  const size_t query = std::min(reference.find('?'), reference.size());
  std::string merged;
  if (reference.front() != '/') {
    const std::string_view old = base.substr(path, std::min(base.find('?', path), base.size()) - path);
    merged = query == 0 ? old : old.substr(0, old.rfind('/') + 1);
    if (merged.empty() && path > scheme) merged = "/";
  }
  merged += reference.substr(0, query);
  return std::string(base.substr(0, path)) + without_dots(merged) + std::string(reference.substr(query));
}

}  // namespace fathom::recipe::schema
