// fathom/net/public_address.h
// Which addresses a server may call on behalf of a stranger. It stands inside its owner's network, so whatever is not
// plainly the public internet is refused: an image URL must not reach a metadata service, a router or ourselves.
// Source: IANA's special-purpose address registries for IPv4 (RFC 6890 and successors) and IPv6, "globally reachable".
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fathom/base/result.h"

namespace fathom::net {

/// `address` in host order: 127.0.0.1 is 0x7f000001.
bool is_public_ipv4(uint32_t address);

/// Only 2000::/3 without its special blocks. Addresses that carry an IPv4 address (mapped, NAT64, 6to4, Teredo, ISATAP)
/// are refused whatever they carry: no public server needs them.
bool is_public_ipv6(const std::array<uint8_t, 16>& address);

/// Of an address in text ("192.0.2.1", "2001:db8::1", with or without a zone "%eth0"). False for anything else.
bool is_public_address(std::string_view address);

/// Whether a URL may be asked at all, before any name is resolved: https, no user or password, port 443, a host, and if
/// the host is an address, a public one (also when it is spelt as one number, in octal or in hexadecimal).
/// Errors: bad_input with what is wrong.
Result<void> check_public_url(std::string_view url);

/// The host of a URL as libcurl calls it: without brackets, numbers in dotted form; empty: there is none.
std::string host_of(std::string_view url);

}  // namespace fathom::net
