// fathom/net/http/fetch.h
// fetch_public with its rules as values, so that tests can fetch from this machine.
#pragma once
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "fathom/net/http_client.h"

namespace fathom::net {

/// What may be called. As it is made, the public internet.
struct FetchPolicy {
  std::function<Result<void>(const std::string& url)> url_allowed;  // empty: check_public_url
  std::function<bool(std::string_view address)> address_allowed;    // empty: is_public_address
  std::string ca_file;                                              // empty: the system's
  /// Answers for the DNS, for port 443; empty, or an empty list: the system's. What it says is checked like any other.
  std::function<std::vector<std::string>(const std::string& host)> resolve;

  bool allows(std::string_view address) const;
};

Result<FetchedContent> fetch(const std::string& url, const FetchLimits& limits, const FetchPolicy& policy,
                             std::stop_token stop);

}  // namespace fathom::net
