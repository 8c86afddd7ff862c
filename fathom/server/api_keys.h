// fathom/server/api_keys.h
// Who may ask, and how much. Keys are kept as SHA-256 digests and compared in constant time: neither a memory dump nor
// a stopwatch gives one away. The file has one key a line:
//
//   # KEY or sha256:HEX   [tenant=NAME] [requests=N] [tokens=N] [concurrency=N] [priority=N] [salt=TEXT]
//   sk-alice-4f7d…        tenant=alice requests=60 tokens=200000 concurrency=4
//   sha256:9f86d0…        tenant=batch priority=-1
//
// requests and tokens are limits a minute, tokens counting prompt and answer; 0 or absent: no limit. Requests of one
// tenant share prefixes of the cache and its fair share of the engine; two tenants never do, so that nobody can tell
// from times or usage what another has asked. Keys that name the same `salt` share prefixes across tenants. Without
// tenant= a key is a tenant of its own.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/net/http_message.h"

namespace fathom {

struct ApiKey {
  std::array<uint8_t, 32> digest{};
  std::string tenant;  // empty only when no keys are asked for
  std::optional<std::string> salt;
  int64_t requests_per_minute = 0, tokens_per_minute = 0, concurrency = 0;  // 0: no limit
  int priority = 0;                                                         // higher is served first
};

/// Immutable; any number of threads may ask.
class ApiKeys {
 public:
  /// No keys: everybody may ask, as tenant "".
  ApiKeys() = default;
  /// `where` names the file in errors. Errors: bad_input with the line; usage of an unknown word; no key at all; the
  /// same key twice.
  static Result<ApiKeys> parse(std::string_view text, const std::string& where);

  bool required() const { return !keys_.empty(); }
  size_t size() const { return keys_.size(); }
  /// The key's entry; nullptr when there is none. Takes the same time for every text of one length.
  const ApiKey* find(std::string_view presented) const;

 private:
  std::vector<ApiKey> keys_;
};

/// The key that a request shows: `Authorization: Bearer KEY`, or `x-api-key: KEY`. Empty: none.
std::string_view presented_key(const net::HttpRequest& request);

}  // namespace fathom
