// docs/engine-acceptance.md names the tests that show what the specification wants. Here: that they exist.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "fathom/base/mapped_file.h"

namespace fathom {
namespace {

TEST(EngineAcceptance, NamesTestsThatExist) {
  const std::filesystem::path source = FATHOM_SOURCE_DIR;
  std::set<std::string> suites, tests;
  for (const char* folder : {"fathom", "tests"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source / folder)) {
      if (!entry.path().string().ends_with("_test.cpp")) continue;
      const auto text = read_file(entry.path().string());
      ASSERT_TRUE(text.ok()) << to_string(text.error());
      const std::regex definition(R"(TEST(?:_F|_P)?\((\w+),\s*(\w+)\))");
      for (std::sregex_iterator at(text->begin(), text->end(), definition), end; at != end; ++at) {
        suites.insert((*at)[1].str());
        tests.insert((*at)[1].str() + "." + (*at)[2].str());
      }
    }
  }
  const auto page = read_file((source / "docs/engine-acceptance.md").string());
  ASSERT_TRUE(page.ok()) << to_string(page.error());
  int named = 0;
  const std::regex name(R"(`([A-Z]\w*[a-z]\w*)(?:\.([A-Z]\w+))?`)");
  for (std::sregex_iterator at(page->begin(), page->end(), name), end; at != end; ++at, ++named) {
    const std::string suite = (*at)[1], test = (*at)[2];
    EXPECT_TRUE(test.empty() ? suites.contains(suite) : tests.contains(suite + "." + test)) << at->str();
  }
  EXPECT_GT(named, 100);
}

}  // namespace
}  // namespace fathom
