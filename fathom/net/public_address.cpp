#include "fathom/net/public_address.h"

#include <arpa/inet.h>
#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <string>

namespace fathom::net {

namespace {

struct Ipv4Block {
  uint32_t address;
  int bits;
};

// IANA IPv4 Special-Purpose Address Registry, all that is not globally reachable, and what is no unicast address.
// 192.88.99.0/24 (6to4 relays, given up) and 192.31.196.0/24, 192.52.193.0/24, 192.175.48.0/24 (AS112, AMT) hold no
// web servers: refused as well.
constexpr Ipv4Block kNotPublic[] = {
    {0x00000000, 8},   // 0.0.0.0/8 this network
    {0x0a000000, 8},   // 10.0.0.0/8 private
    {0x64400000, 10},  // 100.64.0.0/10 carrier-grade NAT
    {0x7f000000, 8},   // 127.0.0.0/8 loopback
    {0xa9fe0000, 16},  // 169.254.0.0/16 link-local, metadata services
    {0xac100000, 12},  // 172.16.0.0/12 private
    {0xc0000000, 24},  // 192.0.0.0/24 protocol assignments
    {0xc0000200, 24},  // 192.0.2.0/24 documentation
    {0xc01fc400, 24},  // 192.31.196.0/24 AS112
    {0xc034c100, 24},  // 192.52.193.0/24 AMT
    {0xc0586300, 24},  // 192.88.99.0/24 6to4 relays
    {0xc0a80000, 16},  // 192.168.0.0/16 private
    {0xc0af3000, 24},  // 192.175.48.0/24 AS112
    {0xc6120000, 15},  // 198.18.0.0/15 benchmarks
    {0xc6336400, 24},  // 198.51.100.0/24 documentation
    {0xcb007100, 24},  // 203.0.113.0/24 documentation
    {0xe0000000, 4},   // 224.0.0.0/4 multicast
    {0xf0000000, 4},   // 240.0.0.0/4 reserved, broadcast
};

struct Ipv6Block {
  std::array<uint8_t, 16> address;
  int bits;
};

// Within 2000::/3, the only block from which unicast addresses are given.
constexpr Ipv6Block kNotPublic6[] = {
    {{0x20, 0x01}, 23},                    // 2001::/23 protocol assignments: Teredo, ORCHID, benchmarks, ...
    {{0x20, 0x01, 0x0d, 0xb8}, 32},        // 2001:db8::/32 documentation
    {{0x20, 0x02}, 16},                    // 2002::/16 6to4: carries an IPv4 address
    {{0x26, 0x20, 0, 0x4f, 0x80, 0}, 48},  // 2620:4f:8000::/48 AS112
    {{0x3f, 0xff}, 20},                    // 3fff::/20 documentation
};

bool begins_with(const std::array<uint8_t, 16>& address, const Ipv6Block& block) {
  for (int bit = 0; bit < block.bits; bit += 8) {
    const int rest = std::min(8, block.bits - bit);
    const auto mask = uint8_t(0xff << (8 - rest));
    if ((address[size_t(bit / 8)] & mask) != (block.address[size_t(bit / 8)] & mask)) return false;
  }
  return true;
}

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

std::string part_of(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return {};
  std::string copy = text;
  curl_free(text);
  return copy;
}

bool is_address(const std::string& host) {
  in6_addr bytes{};
  const std::string without_zone = host.substr(0, host.find('%'));
  return inet_pton(AF_INET, host.c_str(), &bytes) == 1 || inet_pton(AF_INET6, without_zone.c_str(), &bytes) == 1;
}

}  // namespace

bool is_public_ipv4(uint32_t address) {
  return std::ranges::none_of(
      kNotPublic, [address](const Ipv4Block& block) { return (address ^ block.address) >> (32 - block.bits) == 0; });
}

bool is_public_ipv6(const std::array<uint8_t, 16>& address) {
  if ((address[0] & 0xe0) != 0x20) return false;
  // ISATAP: an interface identifier 0000:5efe or 0200:5efe before an IPv4 address.
  if ((address[8] & 0xfd) == 0 && address[9] == 0 && address[10] == 0x5e && address[11] == 0xfe) return false;
  return std::ranges::none_of(kNotPublic6, [&](const Ipv6Block& block) { return begins_with(address, block); });
}

bool is_public_address(std::string_view text) {
  const std::string address(text);
  uint32_t four = 0;
  if (inet_pton(AF_INET, address.c_str(), &four) == 1) return is_public_ipv4(ntohl(four));
  std::array<uint8_t, 16> six{};
  // A zone names an interface of this machine: link-local.
  return inet_pton(AF_INET6, address.c_str(), six.data()) == 1 && is_public_ipv6(six);
}

std::string host_of(std::string_view text) {
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  const std::string url_text(text);
  if (!url || curl_url_set(url.get(), CURLUPART_URL, url_text.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
    return {};
  const std::string host = part_of(url.get(), CURLUPART_HOST);
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

Result<void> check_public_url(std::string_view text) {
  const std::string url_text(text);
  const auto refused = [&](const char* what) {
    return Error{ErrorCode::bad_input, what, url_text.size() > 200 ? url_text.substr(0, 200) + "..." : url_text,
                 "pass an https URL of a public host, or the image itself as a data URL"};
  };
  // libcurl's own reading: what is checked here is what it will call, and it turns 0x7f.1 or 2130706433 into 127.0.0.1.
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  if (!url) return Error{ErrorCode::out_of_memory, "no memory for a URL", "", ""};
  if (curl_url_set(url.get(), CURLUPART_URL, url_text.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK) {
    return refused("the URL cannot be read");
  }
  if (part_of(url.get(), CURLUPART_SCHEME) != "https") return refused("the URL is not https");
  if (!part_of(url.get(), CURLUPART_USER).empty() || !part_of(url.get(), CURLUPART_PASSWORD).empty()) {
    return refused("the URL has a user or a password");
  }
  if (part_of(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT) != "443")
    return refused("the URL has a port other than 443");
  std::string host = part_of(url.get(), CURLUPART_HOST);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return refused("the URL has no host");
  if (!part_of(url.get(), CURLUPART_ZONEID).empty() || (is_address(host) && !is_public_address(host))) {
    return refused("the URL's address is not a public one");
  }
  return {};
}

}  // namespace fathom::net
