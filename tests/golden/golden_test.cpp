// Every tensor that the PyTorch reference wrote, on every backend of this machine. The compressed vocabulary is derived
// from the checkpoint's tokenizer, as the program does it, so a wrong map shows as wrong Engram rows.
#include "fathom/model/golden/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "fathom/base/test_size.h"
#include "fathom/tokenizer/compressed_vocabulary.h"

namespace fathom {
namespace {

std::string shared_folder() {
  const char* set = std::getenv("FATHOM_SHARED");
  return set ? set : "../shared";
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, EveryStageIsWithinItsTolerance) {
  const std::string folder = shared_folder() + "/golden";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no golden tensors at " << folder << "; set FATHOM_SHARED";
  const auto backend = open_backend(GetParam());
  ASSERT_TRUE(backend.ok());
  GoldenOptions options;
  options.folder = folder;
  // The definition is slow and runs on one thread: under a sanitizer one case of each model says the same.
  const bool one_case = GetParam() == "reference" && by_test_size(true, false, false);
  if (one_case) options.case_filter = "replay_f32";
  options.token_map = [](const std::string& checkpoint) -> Result<std::vector<int32_t>> {
    const auto tokenizer = Tokenizer::open(checkpoint + "/tokenizer.json");
    if (!tokenizer) return tokenizer.error();
    auto compressed = compress_vocabulary(*tokenizer);
    if (!compressed) return compressed.error();
    return std::move(compressed->map);
  };
  const auto report = check_golden(*backend, options);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_GT(report->rows.size(), one_case ? 20u : 200u);
  for (const GoldenRow& row : report->rows) {
    EXPECT_NE(row.verdict, Verdict::fail) << row.golden << "/" << row.case_name << " " << row.stage << ": max "
                                          << row.max_abs << " at " << row.place << ", tolerance " << row.tolerance;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenTest, testing::ValuesIn(present_backends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fathom
