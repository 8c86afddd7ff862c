#include "fathom/server/api_keys.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "fathom/base/sha256.h"

namespace fathom {
namespace {

using Digest = std::array<uint8_t, 32>;

constexpr std::string_view kBlanks = " \t\r";

Digest digest_of(std::string_view key) {
  Sha256 hash;
  hash.add({reinterpret_cast<const uint8_t*>(key.data()), key.size()});
  return hash.digest();
}

std::optional<Digest> digest_of_hex(std::string_view hex) {
  Digest digest{};
  if (hex.size() != 2 * digest.size()) return {};
  for (size_t i = 0; i < digest.size(); ++i) {
    const char* begin = hex.data() + 2 * i;
    const auto read = std::from_chars(begin, begin + 2, digest[i], 16);
    if (read.ec != std::errc() || read.ptr != begin + 2) return {};
  }
  return digest;
}

// No branch and no early end depends on the bytes.
bool same(const Digest& a, const Digest& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = uint8_t(difference | (a[i] ^ b[i]));
  return difference == 0;
}

std::string_view next_word(std::string_view& rest) {
  const size_t begin = std::min(rest.find_first_not_of(kBlanks), rest.size());
  const size_t end = std::min(rest.find_first_of(kBlanks, begin), rest.size());
  const std::string_view word = rest.substr(begin, end - begin);
  rest.remove_prefix(end);
  return word;
}

template <class T>
bool read_number(std::string_view text, T& out) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

/// What is wrong with it; empty: nothing.
std::string read_setting(std::string_view word, ApiKey& key) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  const auto limit = [&](int64_t& out) {
    return read_number(value, out) && out >= 0
               ? std::string()
               : std::string(name) + " needs a whole number, as in " + std::string(name) + "=60";
  };
  if (name == "tenant" && !value.empty()) return key.tenant = value, "";
  if (name == "salt" && !value.empty()) return key.salt = std::string(value), "";
  if (name == "requests") return limit(key.requests_per_minute);
  if (name == "tokens") return limit(key.tokens_per_minute);
  if (name == "concurrency") return limit(key.concurrency);
  if (name == "priority") return read_number(value, key.priority) ? "" : "priority needs a whole number";
  // The word may be a key that lost its line break: it is not repeated.
  return "a word is none of tenant=, requests=, tokens=, concurrency=, priority=, salt=";
}

}  // namespace

Result<ApiKeys> ApiKeys::parse(std::string_view text, const std::string& where) {
  ApiKeys keys;
  int line_number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++line_number;
    const auto wrong = [&](const std::string& what, const std::string& remedy) {
      return Error{ErrorCode::bad_input, what, where + ":" + std::to_string(line_number), remedy};
    };
    const std::string_view first = next_word(line);
    if (first.empty() || first.starts_with('#')) continue;
    ApiKey key;
    if (first.starts_with("sha256:")) {
      const auto digest = digest_of_hex(first.substr(7));
      if (!digest) return wrong("sha256: is not followed by 64 hexadecimal digits", "write the digest of the key");
      key.digest = *digest;
    } else if (first.size() < 8) {
      return wrong("this key has " + std::to_string(first.size()) + " characters", "use at least 8, better 32");
    } else {
      key.digest = digest_of(first);
    }
    for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
      if (word.starts_with('#')) break;
      if (std::string problem = read_setting(word, key); !problem.empty()) {
        return wrong(problem, "write KEY tenant=NAME requests=60 tokens=200000 concurrency=4 priority=0 salt=TEXT");
      }
    }
    if (key.tenant.empty()) key.tenant = "key-" + hex_text(key.digest).substr(0, 12);
    const auto twice = [&](const ApiKey& other) { return other.digest == key.digest; };
    if (std::any_of(keys.keys_.begin(), keys.keys_.end(), twice)) {
      return wrong("this key stands in the file twice", "delete one of the lines");
    }
    keys.keys_.push_back(std::move(key));
  }
  if (keys.keys_.empty()) {
    return Error{ErrorCode::bad_input, "there is no key in it, so nobody could ask", where,
                 "write one key a line, or leave the option out"};
  }
  return keys;
}

const ApiKey* ApiKeys::find(std::string_view presented) const {
  static const ApiKey everybody;
  if (!required()) return &everybody;
  const Digest digest = digest_of(presented);
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_) {
    if (same(key.digest, digest)) found = &key;
  }
  return presented.empty() ? nullptr : found;
}

std::string_view presented_key(const net::HttpRequest& request) {
  if (const std::string* value = request.find("authorization")) {
    std::string_view rest = *value;
    if (net::equals_ignoring_case(next_word(rest), "bearer")) return next_word(rest);
  }
  if (const std::string* value = request.find("x-api-key")) return *value;
  return {};
}

}  // namespace fathom
