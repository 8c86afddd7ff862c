// Every row of vectors/recipe under both policies. What the default policy changes is written down, row by row, in
// tests/conformance/default_policy.jsonl; each of its lines must fall under a rule of spec/codec-policy.md, which this
// file repeats. FATHOM_WRITE_EXPECTATIONS=1 writes that file anew, to be read before it is committed.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "fathom/base/mapped_file.h"
#include "fathom/base/sha256.h"
#include "fathom/recipe/conformance/check_row.h"
#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::recipe {
namespace {

constexpr std::array kFiles = {"images",        "invalid", "prompt_tokens", "requests",
                               "stream_splits", "streams", "token_streams"};
constexpr const char* kExpectations = "tests/conformance/default_policy.jsonl";

std::string vectors(const std::string& file) { return sample::shared("vectors/recipe/" + file + ".jsonl"); }

class RecipeVectors : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(vectors("requests"))) GTEST_SKIP() << "no vectors: set FATHOM_SHARED";
    const auto text = read_file(sample::v4_tokenizer(), int64_t(1) << 28);
    if (!text) return;  // rows that need it are counted as skipped
    const auto derived = derive_v41_json(*text);
    ASSERT_TRUE(derived);
    EXPECT_EQ(sha256_text(std::span(reinterpret_cast<const uint8_t*>(derived->data()), derived->size())),
              "fc63521f58783bbd0231fdbe27ba314723949c1b0377afaa4ad9a18c83e27335");  // as the rows say
    auto v4 = Tokenizer::parse(*text, "v4");
    auto v41 = derive_v41_tokenizer(*text);
    ASSERT_TRUE(v4 && v41);
    v4_.emplace(std::move(*v4)), v41_.emplace(std::move(*v41));
  }

  RowCheck check(Policy policy) {
    return {policy, [this](std::string_view name) -> const Tokenizer* {
              const auto& found = name == "v4" ? v4_ : v41_;
              return found ? &*found : nullptr;
            }};
  }

  /// Calls `visit(file, row)` for every row.
  template <class Visit>
  void each_row(Visit visit) {
    for (const char* file : kFiles) {
      for (Json& row : sample::json_lines(vectors(file))) visit(std::string(file), row);
    }
  }

  std::optional<Tokenizer> v4_, v41_;
};

const std::string& name_of(const Json& row) { return row.find("name")->text; }

/// The rules of codec-policy.md with the rows that they name. `*` stands for the rest of a name; an API prefix may
/// stand before it. D-13 also names "usage of every text-chunk row with thinking on"; D-10 and D-11 also change the
/// times of deltas, not their sum, in rows that are fed in small pieces.
struct Rule {
  const char* id;
  std::vector<std::string> rows;
};
const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
      {"D-2", {"responses/split-output"}},
      {"D-4", {"chat/field-messages-74"}},
      {"D-11",
       {"tools-no-string-attr", "tools-string-flag-odd", "tools-extra-attr", "chat/quirk-key-space",
        "chat/quirk-key-newline", "chat/quirk-key-quote", "chat/quirk-key-tab-attr", "sweep/tool-v4"}},
      {"D-10",
       {"tools-bad-json-value", "responses/tool-search-bad-json", "one-tool", "tools-after-close", "chat/tools-chars",
        "random-cuts-*", "tokens/*"}},
      {"D-12", {"tools-truncated-value", "tools-filter"}},
      {"D-14",
       {"empty-text-chunks", "json-fence", "json-fence-plain", "json-raw", "json-none", "json-split-fence",
        "json-tools", "chat/json-stop", "sweep/json"}},
  };
  return table;
}

bool matches(std::string_view name, std::string_view pattern) {
  for (std::string_view prefix : {"chat/", "responses/", "messages/"}) {
    if (name.starts_with(prefix) && !pattern.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  if (!pattern.ends_with('*')) return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool only_usage(const std::vector<JsonChange>& changes) {
  for (const JsonChange& change : changes) {
    if (change.pointer.find("/usage") == std::string::npos) return false;
  }
  return true;
}

/// Are they the same deltas at other times? Final bodies are equal but for usage.
bool only_times(const std::vector<JsonChange>& changes) {
  for (const JsonChange& change : changes) {
    if (change.pointer.starts_with("/final") && change.pointer.find("/usage") == std::string::npos) return false;
  }
  return true;
}

/// The rule that allows these changes of a row; empty: none does.
std::string allowed_by(const std::string& name, const std::vector<JsonChange>& changes) {
  if (only_usage(changes)) return "D-13";
  if (name.ends_with("/truncated-utf8")) return "D-13";
  for (const Rule& rule : rules()) {
    for (const std::string& pattern : rule.rows) {
      if (matches(name, pattern)) return rule.id;
    }
  }
  // Fed by characters: a raw value is held to its end (D-10), a quoted value ends one character later (D-11).
  if (only_times(changes) && name == "sweep/tool-v41") return "D-10";
  if (only_times(changes) && name == "responses/apply-patch-chars") return "D-11";
  return "";
}

TEST_F(RecipeVectors, EveryRowAgreesUnderStrict) {
  int rows = 0, skipped = 0;
  each_row([&](const std::string& file, const Json& row) {
    const auto verdict = check_row(row, check(Policy::strict));
    ASSERT_TRUE(verdict) << name_of(row) << ": " << verdict.error().message;
    ++rows;
    skipped += verdict->kind == RowVerdict::Kind::skipped;
    if (verdict->difference) {
      ADD_FAILURE() << file << " " << name_of(row) << " at " << verdict->difference->pointer << "\n  expected "
                    << verdict->difference->expected << "\n  found    " << verdict->difference->found;
    }
  });
  EXPECT_EQ(rows, 958);
  if (skipped > 0) std::cout << skipped << " rows skipped: run scripts/fetch-test-files\n";
}

TEST_F(RecipeVectors, TheDefaultPolicyDiffersExactlyWhereItsRulesSaySo) {
  if (!v4_) GTEST_SKIP() << "run scripts/fetch-test-files";
  const bool writes = std::getenv("FATHOM_WRITE_EXPECTATIONS") != nullptr;
  std::string written;
  const auto text = read_file(kExpectations);
  const auto expectations = Expectations::parse(text ? *text : "", kExpectations);
  ASSERT_TRUE(expectations) << expectations.error().message;
  size_t listed = 0;
  each_row([&](const std::string& file, Json& row) {
    const auto found = observe(row, check(Policy::lenient));
    ASSERT_TRUE(found) << name_of(row) << ": " << found.error().message;
    const auto changes = changes_between(*row.find("expect"), *found);
    if (!changes.empty()) {
      const std::string rule = allowed_by(name_of(row), changes);
      EXPECT_NE(rule, "") << file << " " << name_of(row) << " differs and no rule allows it, at " << changes[0].pointer
                          << ": " << to_string(changes[0].value);
      Json line = Json::object(), set = Json::object();
      for (const JsonChange& change : changes) set.set(change.pointer, change.value);
      line.set("file", Json::of(file));
      line.set("name", Json::of(name_of(row)));
      line.set("rule", Json::of(rule));
      line.set("set", std::move(set));
      written += to_string(line) + "\n";
      if (!writes) {
        EXPECT_EQ(expectations->rule(file, name_of(row)), rule) << file << " " << name_of(row);
      }
    }
    if (writes) return;
    listed += !expectations->rule(file, name_of(row)).empty();
    ASSERT_TRUE(expectations->amend(file, row));
    if (const auto difference = first_difference(*row.find("expect"), *found, KeyOrder::matters)) {
      ADD_FAILURE() << file << " " << name_of(row) << " at " << difference->pointer << "\n  expected "
                    << difference->expected << "\n  found    " << difference->found;
    }
  });
  if (writes)
    ASSERT_TRUE(write_file(kExpectations, written));
  else
    EXPECT_EQ(listed, expectations->size()) << "lines of rows that do not exist";
}

}  // namespace
}  // namespace fathom::recipe
