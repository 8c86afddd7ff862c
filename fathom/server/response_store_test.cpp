#include "fathom/server/response_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "fathom/base/mapped_file.h"
#include "fathom/server/service_fixture.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

StoredResponse one(const std::string& tenant = "alice") {
  return {tenant, R"([{"role":"user"}])", R"({"id":"resp_1","output":[]})"};
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("fathom-store-" + Service::new_id(""));
  ~Folder() { fs::remove_all(path); }
};

std::unique_ptr<ResponseStore> open_store(ResponseStoreOptions options) {
  auto opened = ResponseStore::open(std::move(options));
  EXPECT_TRUE(opened.ok());
  return std::move(*opened);
}

TEST(ResponseStoreTest, WhatOneTenantKeepsIsNotThereForAnother) {
  auto store = open_store({});
  store->put("resp_1", one());
  ASSERT_TRUE(store->get("resp_1", "alice"));
  EXPECT_EQ(store->get("resp_1", "alice")->response, R"({"id":"resp_1","output":[]})");
  EXPECT_FALSE(store->get("resp_1", "bob"));
  EXPECT_FALSE(store->remove("resp_1", "bob"));
  EXPECT_TRUE(store->remove("resp_1", "alice"));
  EXPECT_FALSE(store->get("resp_1", "alice"));
  EXPECT_EQ(store->bytes(), 0);
}

TEST(ResponseStoreTest, TheOldestGoWhenThereAreTooManyOrTheyAreTooLarge) {
  auto store = open_store({.most_responses = 2});
  for (const char* id : {"a", "b", "c"}) store->put(id, one());
  EXPECT_FALSE(store->get("a", "alice"));
  EXPECT_TRUE(store->get("c", "alice"));
  EXPECT_EQ(store->size(), 2);
  auto small = open_store({.most_bytes = 100});
  small->put("a", one());
  small->put("b", one());
  EXPECT_EQ(small->size(), 1);
  EXPECT_LE(small->bytes(), 100);
}

TEST(ResponseStoreTest, AFolderSurvivesARestartAndForgetsWhatWasDropped) {
  Folder folder;
  {
    auto store = open_store({.folder = folder.path, .most_responses = 2});
    for (const char* id : {"a", "b", "c"}) store->put(id, one());
    EXPECT_TRUE(store->get("c", "alice"));  // at once, whether it is written or not
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 2);
  auto store = open_store({.folder = folder.path});
  EXPECT_EQ(store->size(), 2);
  EXPECT_FALSE(store->get("a", "alice"));
  ASSERT_TRUE(store->get("b", "alice"));
  EXPECT_EQ(store->get("b", "alice")->input, R"([{"role":"user"}])");
}

TEST(ResponseStoreTest, AFullDiskLosesTheResponseAndNothingElse) {
  Folder folder;
  auto store = open_store({.folder = folder.path});
  fs::remove_all(folder.path);  // as good as full: no file can be made
  store->put("a", one());
  for (int i = 0; i < 5000 && store->failures() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(store->failures(), 1);
  EXPECT_FALSE(store->get("a", "alice"));
}

TEST(ResponseStoreTest, WhatAKilledProcessLeftHalfWrittenIsRemovedAndWhatIsDamagedIsNotThere) {
  Folder folder;
  { open_store({.folder = folder.path})->put("whole", one()); }
  ASSERT_TRUE(write_file((folder.path / "cut.json").string(), R"({"tenant":"alice","input":[)"));
  ASSERT_TRUE(write_file((folder.path / "empty.json").string(), ""));
  ASSERT_TRUE(write_file((folder.path / "half.json.part").string(), R"({"tenant":"al)"));
  ASSERT_TRUE(write_file((folder.path / "notes.txt").string(), "somebody else's"));
  auto store = open_store({.folder = folder.path});
  EXPECT_TRUE(store->get("whole", "alice"));
  for (const char* id : {"cut", "empty", "half"}) EXPECT_FALSE(store->get(id, "alice")) << id;
  EXPECT_FALSE(fs::exists(folder.path / "half.json.part"));
  EXPECT_TRUE(fs::exists(folder.path / "notes.txt"));
}

TEST(ResponseStoreTest, AnIdNeverLeavesTheFolder) {
  Folder folder;
  auto store = open_store({.folder = folder.path});
  store->put("../escape", one());
  EXPECT_FALSE(store->get("../escape", "alice"));
  EXPECT_EQ(store->size(), 0);
}

struct PreviousResponseTest : ServiceTest {};

TEST_F(PreviousResponseTest, WithoutAStoreItIsRefusedByName) {
  const auto refused = ask("POST", "/v1/responses", responses(R"(,"previous_response_id":"resp_x")"));
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(refused->at("error", "param").text, "previous_response_id");
  EXPECT_EQ(ask("POST", "/v1/responses", responses(R"(,"previous_response_id":null)"))->status, 200);
}

TEST_F(PreviousResponseTest, AConversationGoesOnWhereItWas) {
  options.store = ResponseStoreOptions{};
  std::string prompt;
  fake.answer = [&](const Request& request) {
    prompt = mini_tokenizer().decode(request.ids);
    return says("Blue.");
  };
  for (const bool stream : {false, true}) {
    const auto first = ask("POST", "/v1/responses", responses(stream ? R"(,"stream":true)" : ""));
    std::string id;
    if (stream) {
      const auto last = parse_json(first->events().back().data, "event");
      ASSERT_TRUE(last);
      id = last->find("response")->find("id")->text;
    } else {
      id = first->at("id").text;
    }
    const auto second =
        ask("POST", "/v1/responses",
            R"({"model":"DeepSeek-V4.1-Flash","reasoning":{"effort":"none"},"input":"Why?","previous_response_id":")" +
                id + "\"}");
    EXPECT_EQ(second->status, 200) << second->body;
    EXPECT_NE(prompt.find("<｜User｜>hi<｜Assistant｜></think>Blue.<｜end▁of▁sentence｜><｜User｜>Why?"),
              std::string::npos)
        << prompt;
    EXPECT_EQ(ask("GET", "/v1/responses/" + id)->at("id").text, id);
    EXPECT_EQ(ask("DELETE", "/v1/responses/" + id)->at("deleted").as_bool(), true);
    EXPECT_EQ(ask("GET", "/v1/responses/" + id)->status, 404);
  }
}

TEST_F(PreviousResponseTest, StoreFalseKeepsNothing) {
  options.store = ResponseStoreOptions{};
  const auto answer = ask("POST", "/v1/responses", responses(R"(,"store":false)"));
  EXPECT_EQ(ask("GET", "/v1/responses/" + answer->at("id").text)->status, 404);
  EXPECT_EQ(ask("POST", "/v1/responses", responses(R"(,"previous_response_id":"resp_gone")"))->status, 400);
}

}  // namespace
}  // namespace fathom
