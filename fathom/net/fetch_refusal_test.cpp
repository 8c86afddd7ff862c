// The ways in which a URL could reach the inner network (issue 6: at least 40): by its spelling, by the address that
// its name has, by a redirect. Each is refused, and no socket is ever opened.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>

#include "fathom/net/http/fetch.h"
#include "fathom/net/http/test_certificate.h"
#include "fathom/net/http_server.h"
#include "fathom/net/public_address.h"

namespace fathom::net {
namespace {

/// Counts the addresses that pass; a made-up DNS.
struct FetchRefusalTest : testing::Test {
  FetchPolicy policy;
  std::map<std::string, std::vector<std::string>> names;
  std::vector<std::string> called;

  FetchRefusalTest() {
    // Names that nobody thought of lead inside as well: the DNS belongs to whoever sends the URL.
    policy.resolve = [this](const std::string& host) {
      const auto found = names.find(host);
      return found != names.end() ? found->second : std::vector<std::string>{"127.0.0.1"};
    };
    policy.address_allowed = [this](std::string_view address) {
      if (!is_public_address(address)) return false;
      called.emplace_back(address);
      return false;  // nothing leaves this machine in a test
    };
  }
  Result<FetchedContent> get(const std::string& url) {
    return fetch(url, {.total = std::chrono::seconds(5)}, policy, {});
  }
};

TEST_F(FetchRefusalTest, ByTheSpellingOfTheUrl) {
  for (const char* url : {
           "https://127.0.0.1/",
           "https://127.0.0.1:443/",
           "https://127.1/",
           "https://127.0.1/",
           "https://2130706433/",        // decimal
           "https://0x7f000001/",        // hexadecimal
           "https://0x7f.0x0.0x0.0x1/",  // by parts
           "https://0177.0.0.01/",       // octal
           "https://017700000001/",
           "https://0x7f.1/",  // mixed
           "https://127.0.0.1./",
           "https://%31%32%37.0.0.1/",           // percent signs
           "https://\uff11\uff12\uff17.0.0.1/",  // full-width digits
           "https://127\u30020\u30020\u30021/",  // ideographic full stops
           "https://169.254.169.254/latest/meta-data/",
           "https://2852039166/",
           "https://0xa9fea9fe/",
           "https://0251.0376.0251.0376/",
           "https://169.254.43518/",
           "https://0/",
           "https://0.0.0.0/",
           "https://10.1.2.3/",
           "https://172.31.255.1/",
           "https://192.168.0.1/",
           "https://100.64.0.1/",
           "https://224.0.0.1/",
           "https://255.255.255.255/",
           "https://[::1]/",
           "https://[0:0:0:0:0:0:0:1]/",
           "https://[::]/",
           "https://[::127.0.0.1]/",
           "https://[::ffff:127.0.0.1]/",  // mapped
           "https://[::ffff:7f00:1]/",
           "https://[::ffff:a9fe:a9fe]/",
           "https://[2002:7f00:1::]/",       // 6to4
           "https://[64:ff9b::a9fe:a9fe]/",  // NAT64
           "https://[64:ff9b::127.0.0.1]/",
           "https://[fe80::1]/",
           "https://[fe80::1%25lo]/",  // a zone
           "https://[fd00::1]/",
           "https://[ff02::1]/",
           "https://localhost/",
           "https://LOCALHOST/",
           "https://localhost./",
           "https://ip6-localhost/",
           "https://user@127.0.0.1/",
           "https://example.org@127.0.0.1/",  // a user's name that looks like a host
           "https://example.org:443@127.0.0.1/",
           "https://127.0.0.1#@example.org/",
           "https://127.0.0.1?@example.org/",
           "https://example.org\\@127.0.0.1/",
           "https://127.0.0.1\\@example.org/",
           "https:127.0.0.1/",
           "https:///127.0.0.1/",
           "https:////127.0.0.1/",
           " https://127.0.0.1/",
           "https://127.0.0.1:80/",
           "https://127.0.0.1:22/",
           "http://127.0.0.1/",
           "HTTP://169.254.169.254/",
           "file:///etc/passwd",
           "gopher://127.0.0.1:6379/_INFO",
           "dict://127.0.0.1:11211/stat",
           "ftp://127.0.0.1/",
           "ldap://127.0.0.1/",
           "https://",
           "https://[::1/",
           "https://exa\nmple.org/",
           "https://example.org:65536/",
       }) {
    const auto content = get(url);
    EXPECT_FALSE(content.ok()) << url;
    EXPECT_TRUE(called.empty()) << url << " would call " << called.front();
    called.clear();
  }
}

TEST_F(FetchRefusalTest, ByTheAddressThatTheNameHas) {
  for (const char* address : {"127.0.0.1",
                              "127.255.255.254",
                              "0.0.0.0",
                              "10.0.0.1",
                              "172.16.0.1",
                              "192.168.1.1",
                              "169.254.169.254",
                              "100.100.100.200",
                              "192.0.0.192",
                              "198.18.0.1",
                              "224.0.0.251",
                              "240.0.0.1",
                              "::1",
                              "::",
                              "fe80::1",
                              "fd00:ec2::254",
                              "fc00::1",
                              "ff02::fb",
                              "::ffff:10.0.0.1",
                              "64:ff9b::a00:1",
                              "2002:a00:1::",
                              "2001:0:1::1",
                              "2001:db8::1",
                              "fec0::1"}) {
    names["inner.example"] = {address};
    const auto content = get("https://inner.example/image.png");
    ASSERT_FALSE(content.ok()) << address;
    EXPECT_EQ(content.error().code, ErrorCode::failed) << address;
    EXPECT_TRUE(called.empty()) << address;
  }
}

// One public address among them opens no door to the others: each is asked about by itself.
TEST_F(FetchRefusalTest, ANameWithAPublicAndAnInnerAddressReachesOnlyThePublicOne) {
  names["both.example"] = {"10.0.0.1", "8.8.8.8", "::1"};
  ASSERT_FALSE(get("https://both.example/").ok());
  EXPECT_EQ(called, std::vector<std::string>{"8.8.8.8"});
}

// The name is public when its URL is checked and has another address when it is called: what counts is the call.
TEST_F(FetchRefusalTest, ANameThatChangesItsAddressIsAskedAboutAtEachCall) {
  names["changing.example"] = {"8.8.8.8"};
  ASSERT_FALSE(get("https://changing.example/").ok());
  EXPECT_EQ(called.size(), 1u);
  names["changing.example"] = {"127.0.0.1"};
  ASSERT_FALSE(get("https://changing.example/").ok());
  EXPECT_EQ(called.size(), 1u);
}

TEST_F(FetchRefusalTest, ByARedirect) {
  const auto folder = std::filesystem::temp_directory_path() / ("fathom_refusal_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  policy.ca_file = folder / "certificate.pem";
  write_test_certificate(policy.ca_file, folder / "key.pem", "refusal");
  HttpServerOptions options;
  options.port = 0;
  options.tls_certificate_file = policy.ca_file;
  options.tls_key_file = folder / "key.pem";
  std::string location;
  std::atomic<bool> first = true;  // the server of the test itself may be called, once a URL
  HttpServer server(options, [&](const HttpRequest&, const std::shared_ptr<HttpResponder>& responder) {
    first = false;
    responder->respond(302, {{"Location", location}}, "");
  });
  ASSERT_TRUE(server.start().ok());
  const std::string base = "https://localhost:" + std::to_string(server.port()) + "/";
  policy.url_allowed = [&](const std::string& url) -> Result<void> {
    if (url == base) return {};
    return check_public_url(url);
  };
  const auto strict = policy.address_allowed;
  policy.address_allowed = [&](std::string_view address) { return first || strict(address); };
  names["inner.example"] = {"192.168.0.1"};
  names["metadata.example"] = {"169.254.169.254"};
  for (const char* to :
       {"https://127.0.0.1/", "https://2130706433/", "https://[::1]/", "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest/", "http://169.254.169.254/latest/", "//10.0.0.1/", "https://inner.example/",
        "https://metadata.example/", "https://localhost/", "https://user@example.org/", "https://example.org:8443/",
        "file:///etc/passwd", "gopher://127.0.0.1/", "data:image/png;base64,AA=="}) {
    location = to;
    first = true;
    const auto before = server.counts().connections_accepted;
    const auto content = get(base);
    EXPECT_FALSE(content.ok()) << to;
    EXPECT_TRUE(called.empty()) << to;
    EXPECT_EQ(server.counts().connections_accepted, before + 1) << to;
  }
  server.stop();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fathom::net
