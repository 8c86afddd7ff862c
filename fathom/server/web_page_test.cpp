// The page at /: what a browser gets. The page itself is looked at in a browser: tests/server/web/.
#include "fathom/server/web_page.h"

#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "fathom/base/mapped_file.h"
#include "fathom/server/service_fixture.h"

namespace fathom {
namespace {

class WebPageTest : public ServiceTest {
 protected:
  WebPageTest() { options.page = web_page; }
};

TEST_F(WebPageTest, TheRootIsThePage) {
  const auto got = ask("GET", "/");
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->field("content-type"), "text/html; charset=utf-8");
  EXPECT_TRUE(got->body.starts_with("<!doctype html>")) << got->body.substr(0, 60);
}

TEST_F(WebPageTest, HeadIsAnsweredAsGet) { EXPECT_EQ(ask("HEAD", "/")->status, 200); }

TEST_F(WebPageTest, EveryFileHasTheTypeOfItsName) {
  std::set<std::string_view> endings;
  for (const WebFile& file : web_files().subspan(1)) {
    const auto got = ask("GET", std::string(file.path));
    EXPECT_EQ(got->status, 200) << file.path;
    const std::string_view ending = file.path.substr(file.path.rfind('.'));
    const std::string_view type = ending == ".css"   ? "text/css; charset=utf-8"
                                  : ending == ".js"  ? "text/javascript; charset=utf-8"
                                  : ending == ".svg" ? "image/svg+xml"
                                                     : "none";
    EXPECT_EQ(got->field("content-type"), type) << file.path;
    EXPECT_EQ(got->field("x-content-type-options"), "nosniff") << file.path;
    EXPECT_GT(got->body.size(), 100u) << file.path;
    endings.insert(ending);
  }
  EXPECT_EQ(endings, (std::set<std::string_view>{".css", ".js", ".svg"}));
}

TEST_F(WebPageTest, FilesAreTheOnesOfTheCheckout) {
  for (const WebFile& file : web_files()) {
    const std::string name = file.path == "/" ? "index.html" : std::string(file.path.substr(5));
    const auto text = read_file(std::string(FATHOM_SOURCE_DIR "/fathom/server/web/") + name, 1 << 20);
    ASSERT_TRUE(text.ok()) << name;
    EXPECT_EQ(file.text, *text) << name;
  }
}

TEST_F(WebPageTest, ABrowserThatHasTheFileIsToldSo) {
  const auto first = ask("GET", "/web/style.css");
  const std::string tag = first->field("etag");
  ASSERT_GE(tag.size(), 3u);
  EXPECT_TRUE(tag.front() == '"' && tag.back() == '"') << tag;
  EXPECT_EQ(first->field("cache-control"), "no-cache") << "a new program has other files of the same names";
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    net::HttpFields fields;
    fields.add("If-None-Match", known);
    const auto again = ask("GET", "/web/style.css", "", fields);
    EXPECT_EQ(again->status, 304) << known;
    EXPECT_EQ(again->body, "");
    EXPECT_EQ(again->field("etag"), tag);
  }
  net::HttpFields other;
  other.add("If-None-Match", "\"other\"");
  EXPECT_EQ(ask("GET", "/web/style.css", "", other)->status, 200);
}

TEST_F(WebPageTest, TagsDifferBetweenFiles) {
  std::set<std::string_view> tags;
  for (const WebFile& file : web_files()) tags.insert(file.etag);
  EXPECT_EQ(tags.size(), web_files().size());
}

TEST_F(WebPageTest, ThePolicyAllowsNothingFromElsewhereAndNoScriptInThePage) {
  for (const WebFile& file : web_files()) {
    const std::string policy = ask("GET", std::string(file.path))->field("content-security-policy");
    EXPECT_TRUE(policy.starts_with("default-src 'none';")) << policy;
    for (const char* rule : {"script-src 'self';", "style-src 'self';", "connect-src 'self';", "base-uri 'none';",
                             "form-action 'none';", "frame-ancestors 'none'"}) {
      EXPECT_NE(policy.find(rule), std::string::npos) << rule;
    }
    for (const char* hole : {"unsafe", "http:", "https:", "*"}) EXPECT_EQ(policy.find(hole), std::string::npos) << hole;
  }
}

TEST_F(WebPageTest, ThePageKeepsToItsPolicy) {
  for (const WebFile& file : web_files()) {
    // An address of elsewhere may stand in the name of an XML namespace only.
    std::string text(file.text);
    for (const char* name : {"http://www.w3.org/2000/svg"}) {
      for (size_t at = text.find(name); at != std::string::npos; at = text.find(name))
        text.erase(at, std::string(name).size());
    }
    static const std::regex address("https?://[a-z]");
    EXPECT_FALSE(std::regex_search(text, address)) << file.path << " names another server";
    for (const char* hole : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
                             " style=\"", " onclick=\"", "<style", "javascript:"}) {
      EXPECT_EQ(text.find(hole), std::string::npos) << file.path << ": " << hole;
    }
  }
}

TEST_F(WebPageTest, WhatThePageLoadsIsThere) {
  static const std::regex reference("(?:src|href)=\"(web/[^\"]+)\"|from \"\\./([^\"]+)\"");
  for (const WebFile& file : web_files()) {
    const std::string text(file.text);
    for (std::sregex_iterator found(text.begin(), text.end(), reference), end; found != end; ++found) {
      const std::string path = (*found)[1].matched ? "/" + (*found)[1].str() : "/web/" + (*found)[2].str();
      const auto files = web_files();
      EXPECT_TRUE(std::any_of(files.begin(), files.end(), [&](const WebFile& f) { return f.path == path; }))
          << file.path << " loads " << path;
    }
  }
}

TEST_F(WebPageTest, ItNeedsNoKeyButTheApiStillDoes) {
  start();
  service->set_keys(*ApiKeys::parse("a-key-of-one\n", "test"));
  EXPECT_EQ(ask("GET", "/")->status, 200);
  EXPECT_EQ(ask("GET", "/web/chat.js")->status, 200);
  EXPECT_EQ(ask("GET", "/v1/models")->status, 401);
}

TEST_F(WebPageTest, OtherPathsAreNotFound) {
  for (const char* path : {"/index.html", "/web/", "/web/none.js", "/web/../style.css", "/favicon.ico"}) {
    EXPECT_EQ(ask("GET", path)->status, 404) << path;
  }
  EXPECT_EQ(ask("POST", "/")->status, 405) << "the path is known, the method is not its own";
}

TEST_F(WebPageTest, WithoutThePageTheRootIsNotFound) {
  options.page = nullptr;
  EXPECT_EQ(ask("GET", "/")->status, 404);
}

}  // namespace
}  // namespace fathom
