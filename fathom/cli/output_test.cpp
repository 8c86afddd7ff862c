#include "fathom/cli/batch_file.h"

#include <gtest/gtest.h>

#include "fathom/cli/bench_report.h"
#include "fathom/cli/hardware.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

std::vector<std::string> ids_of(const std::vector<BatchLine>& lines) {
  std::vector<std::string> ids;
  for (const BatchLine& line : lines) ids.push_back(line.id);
  return ids;
}

TEST(BatchLines, EachHasAnIdOfItsOwn) {
  // Line 2 has no id and line 3 claims the number that line 2 got; line 5 repeats the id of line 1.
  const auto lines = read_batch_lines("{\"id\":\"a\"}\n{}\n{\"id\":2}\n\n{\"id\":\"a\"}\n{\"id\":\"2\"}", "f");
  EXPECT_EQ(ids_of(lines), (std::vector<std::string>{"\"a\"", "2", "3", "5", "\"2\""}));
  EXPECT_TRUE(lines[2].error);
  EXPECT_TRUE(lines[3].error);
  EXPECT_EQ(lines[4].number, 6);
}

TEST(BatchLines, WhatIsNoObjectIsAnErrorOfThatLine) {
  const auto lines = read_batch_lines("{broken\r\n[1]\r\n{\"id\":{}}\n", "f");
  ASSERT_EQ(lines.size(), 3u);
  for (const BatchLine& line : lines) {
    ASSERT_TRUE(line.error);
    EXPECT_NE(line.error->where.find("line " + std::to_string(line.number)), std::string::npos);
  }
}

TEST(Progress, SaysDoneTotalRateAndTimeLeft) {
  EXPECT_EQ(Progress::line("answers", "lines", 50, 200, 40, 10, "", 120),
            "answers 50/200 lines, 25 %, 4.00/s, 38 s left");
  EXPECT_EQ(Progress::line("reading", "bytes", 5, 0, 5, 0.1, "", 120), "reading 5 bytes");
  EXPECT_EQ(Progress::line("answers", "lines", 50, 200, 40, 10, "", 20).size(), 19u);
}

TEST(DurationText, IsToldInTheUnitThatSaysSomething) {
  EXPECT_EQ(duration_text(0), "0.00 s");
  EXPECT_EQ(duration_text(0.00321), "3.21 ms");
  EXPECT_EQ(duration_text(0.1), "0.10 s");
  EXPECT_EQ(duration_text(59.2), "59 s");
  EXPECT_EQ(duration_text(185), "3 min 05 s");
  EXPECT_EQ(duration_text(7800), "2 h 10 min");
}

TEST(Table, PadsByWhatATerminalShows) {
  Table table({{"a"}, {"n", Table::Side::right}});
  table.add({"你", "1"});
  table.add({"xyz", "22"});
  EXPECT_EQ(table.text(), "a     n\n你    1\nxyz  22\n");
}

TEST(BenchReport, CsvReadsBackWhatItWrote) {
  BenchRow row;
  row.bench = "decode", row.length = 64, row.batch = 2, row.replay = "off", row.numerics = "reference";
  row.backend = "cpu", row.threads = 2, row.tokens_per_s = 123.5, row.machine = "A, \"B\"";
  const auto read = read_bench_csv(to_csv(std::span(&row, 1)), "f");
  ASSERT_TRUE(read.ok());
  const auto pairs = compare_rows(std::span(&row, 1), *read);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].slowdown(), 0);
}

TEST(Hardware, EveryFileThatIsCompiledInIsRight) {
  ASSERT_FALSE(machine_files().empty());
  for (const MachineFile& file : machine_files()) EXPECT_TRUE(parse_hardware(file.text, "f").ok()) << file.name;
}

}  // namespace
}  // namespace fathom::cli
