// The fuzzer's corpus: each file as it is, thousands of files made from them, and each over a socket.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "fathom/base/philox.h"
#include "fathom/net/http/request_properties.h"
#include "fathom/net/http/server_fixture.h"

namespace fathom::net {
namespace {

std::map<std::string, std::string> corpus() {
  std::map<std::string, std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(FATHOM_SOURCE_DIR "/fathom/net/http/request_reader_corpus")) {
    if (entry.path().extension() != ".http") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().stem()] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

TEST(RequestCorpusTest, EveryFileIsReadOrRefusedAsItsNameSays) {
  const auto files = corpus();
  ASSERT_EQ(files.size(), 39u);
  for (const auto& [name, bytes] : files) {
    const auto [requests, status] = check_request_properties(bytes);
    if (name.starts_with("smuggle_") || name.starts_with("length_") || name.starts_with("two_")) {
      EXPECT_EQ(requests.size(), 0u) << name;
      EXPECT_TRUE(status == 400 || status == 413 || status == 501) << name << " " << status;
    }
    if (name.starts_with("get") || name.starts_with("post_")) {
      EXPECT_EQ(requests.size(), 1u) << name;
    }
    if (name == "pipelined") {
      EXPECT_EQ(requests.size(), 3u);
    }
  }
}

TEST(RequestCorpusTest, MixedAndDamagedFilesKeepTheProperties) {
  const auto files = corpus();
  std::vector<std::string> all;
  for (const auto& [name, bytes] : files) all.push_back(bytes);
  for (uint32_t round = 0; round < 20'000; ++round) {
    const auto random = philox(6, {round, 0, 0, 0}), more = philox(6, {round, 1, 0, 0});
    std::string bytes = all[random[0] % all.size()];
    const std::string& other = all[random[1] % all.size()];
    const size_t at = random[2] % bytes.size();
    switch (random[3] % 5) {
      case 0: bytes[at] = char(more[0]); break;
      case 1: bytes.erase(at, 1 + more[0] % 8); break;
      case 2: bytes.insert(at, other, more[0] % other.size(), more[1] % 64); break;
      case 3: bytes = bytes.substr(0, at) + other.substr(more[0] % other.size()); break;
      case 4: bytes.insert(at, 1 + more[0] % 8, "\r\n :;,0Ff"[more[1] % 10]); break;
    }
    check_request_properties(bytes);
  }
}

TEST(RequestCorpusTest, AServerAnswersOrClosesAndLivesOn) {
  ServerFixture fixture;
  fixture.options.header_bytes = 2048;
  fixture.options.body_bytes = 512;
  fixture.options.header_deadline = fixture.options.body_deadline = fixture.options.idle_deadline = 100ms;
  const int port = fixture.start();
  for (const auto& [name, bytes] : corpus()) {
    RawClient client(port);
    client.send(std::string_view(bytes).substr(1));
    client.end_sending();
    EXPECT_TRUE(client.closed_by_server(5s)) << name;
  }
  RawClient client(port);
  client.request("GET", "/hello");
  EXPECT_EQ(client.read_answer().status, 200);
  client.close();
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().connections == 0; }));
}

}  // namespace
}  // namespace fathom::net
