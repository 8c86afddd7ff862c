// The table of addresses that a request for an image must not reach (issue 6: at least 40), and those it may.
#include "fathom/net/public_address.h"

#include <gtest/gtest.h>

#include <string>

namespace fathom::net {
namespace {

TEST(PublicAddressTest, NoSpecialAddressIsPublic) {
  for (const char* address : {
           "0.0.0.0",
           "0.1.2.3",  // this network
           "10.0.0.1",
           "10.255.255.255",
           "172.16.0.1",
           "172.31.255.255",
           "192.168.0.1",  // private
           "192.168.255.255",
           "100.64.0.1",
           "100.127.255.255",  // carrier-grade NAT
           "127.0.0.1",
           "127.255.255.254",  // loopback
           "169.254.169.254",
           "169.254.0.1",  // metadata, link-local
           "192.0.0.1",
           "192.0.0.170",
           "192.0.2.1",
           "198.51.100.7",
           "203.0.113.9",  // assignments, documentation
           "192.88.99.1",
           "192.31.196.1",
           "192.52.193.1",
           "192.175.48.1",  // relays
           "198.18.0.1",
           "198.19.255.255",  // benchmarks
           "224.0.0.1",
           "239.255.255.255",
           "240.0.0.1",
           "255.255.255.255",  // multicast, reserved
           "::",
           "::1",  // unspecified, loopback
           "::ffff:127.0.0.1",
           "::ffff:8.8.8.8",
           "::ffff:a9fe:a9fe",
           "::127.0.0.1",  // IPv4 inside
           "64:ff9b::7f00:1",
           "64:ff9b::8.8.8.8",
           "64:ff9b:1::1",  // NAT64
           "2002:7f00:1::",
           "2002:a00:1::1",
           "2002:808:808::1",  // 6to4
           "2001:0:1::1",
           "2001:0:4136:e378:8000:63bf:3fff:fdd2",  // Teredo
           "2001:2::1",
           "2001:10::1",
           "2001:20::1",
           "2001:db8::1",
           "3fff::1",  // benchmarks, documentation
           "2600:1:2:3:0:5efe:7f00:1",
           "2600:1:2:3:200:5efe:10.0.0.1",  // ISATAP
           "100::1",
           "5f00::1",
           "fc00::1",
           "fd12:3456:789a::1",  // discard, segments, unique local
           "fe80::1",
           "fe80::1%eth0",
           "febf::1",
           "fec0::1",
           "ff02::1",
           "ff0e::1",  // link-local, site, multicast
           "4000::1",
           "2620:4f:8000::1",
           "",
           "localhost",
           "8.8.8",
           "8.8.8.8.8",
           "1.2.3.4 ",
           "0x7f.0.0.1",
           "[::1]",  // no addresses
       }) {
    EXPECT_FALSE(is_public_address(address)) << address;
  }
}

TEST(PublicAddressTest, OrdinaryAddressesArePublicUpToTheEdgesOfTheBlocks) {
  for (const char* address : {"1.1.1.1",
                              "8.8.8.8",
                              "9.255.255.255",
                              "11.0.0.0",
                              "100.63.255.255",
                              "100.128.0.0",
                              "126.255.255.255",
                              "128.0.0.0",
                              "169.253.255.255",
                              "169.255.0.0",
                              "172.15.255.255",
                              "172.32.0.0",
                              "191.255.255.255",
                              "192.0.1.0",
                              "192.0.3.0",
                              "192.167.255.255",
                              "192.169.0.0",
                              "198.17.255.255",
                              "198.20.0.0",
                              "203.0.112.255",
                              "203.0.114.0",
                              "223.255.255.255",
                              "2001:4860:4860::8888",
                              "2001:200::1",
                              "2001:db7::1",
                              "2001:db9::1",
                              "2003::1",
                              "2606:4700::1111",
                              "3ffe::1",
                              "2a00:1450:4001:81b::200e"}) {
    EXPECT_TRUE(is_public_address(address)) << address;
  }
}

TEST(PublicAddressTest, OnlyPlainHttpsUrlsOfPublicHostsPass) {
  for (const char* url : {"https://example.org/a.png", "https://example.org:443/a?b#c", "HTTPS://EXAMPLE.ORG",
                          "https://8.8.8.8/x", "https://[2606:4700::1111]/x"}) {
    EXPECT_TRUE(check_public_url(url).ok()) << url << ": " << to_string(check_public_url(url).error());
  }
  for (const char* url : {"http://example.org/a.png",
                          "file:///some/file",
                          "ftp://example.org/",
                          "gopher://example.org/",
                          "data:image/png;base64,AA==",
                          "javascript:1",
                          "",
                          "example.org/a.png",
                          "//example.org/",
                          "https://",

                          "https://user@example.org/",
                          "https://user:word@example.org/",
                          "https://:word@example.org/",
                          "https://example.org:8443/",
                          "https://example.org:80/",
                          "http://169.254.169.254/latest/meta-data/",
                          "http://127.0.0.1:8000/metrics",
                          "http://[::1]/",  // cases sec-01
                          "https://127.0.0.1/",
                          "https://127.1/",
                          "https://2130706433/",
                          "https://0x7f000001/",
                          "https://0177.0.0.1/",
                          "https://0x7f.1/",
                          "https://[::1]/",
                          "https://[::ffff:127.0.0.1]/",
                          "https://[fe80::1%25eth0]/",
                          "https://[fe80::1]/",
                          "https://10.0.0.1/",
                          "https://169.254.169.254/",
                          "https://0/",
                          "https://example.org\r\nHost: x/",
                          "https://exa mple.org/"}) {
    EXPECT_FALSE(check_public_url(url).ok()) << url;
  }
}

}  // namespace
}  // namespace fathom::net
