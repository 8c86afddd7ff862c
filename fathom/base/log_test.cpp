#include "fathom/base/log.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <future>
#include <mutex>
#include <thread>

#include "fathom/base/json.h"

namespace fathom {
namespace {

struct Lines {
  std::mutex mutex;
  std::vector<std::string> all;
  LogOptions options() {
    LogOptions out;
    out.times = false;
    out.write = [this](std::string_view line) {
      const std::lock_guard lock(mutex);
      all.emplace_back(line);
    };
    return out;
  }
};

std::string human(std::string_view text, std::vector<LogField> fields) {
  return log_line(LogFormat::human, "", LogLevel::info, text, fields);
}

TEST(Log, ALineHasLevelTextAndPairsWithUnitsInTheirKeys) {
  EXPECT_EQ(human("", {{"step", 8123}, {"step_ms", 11.9}, {"full", true}, {"reason", "stop"}}),
            "level=info step=8123 step_ms=11.9 full=true reason=stop");
  EXPECT_EQ(human("model=mini threads=2", {}), "level=info model=mini threads=2");
  EXPECT_EQ(log_line(LogFormat::human, "2026-11-30T07:00:00.000Z", LogLevel::warn, "a sentence", {}),
            "time=2026-11-30T07:00:00.000Z level=warn a sentence");
}

TEST(Log, WhatAnybodyPutsIntoAValueStaysInItsLineAndItsPair) {
  EXPECT_EQ(human("", {{"path", "a b"}}), R"(level=info path="a b")");
  EXPECT_EQ(human("", {{"path", "x\nlevel=error forged=1"}}), R"(level=info path="x\nlevel=error forged=1")");
  EXPECT_EQ(human("", {{"path", "a=\"b\\\""}}), R"(level=info path="a=\"b\\\"")");
  EXPECT_EQ(human("", {{"path", ""}}), R"(level=info path="")");
  EXPECT_EQ(human("one\ntwo\r\x1b[0m\x7f", {}), R"(level=info one\ntwo\r\u001b[0m\u007f)");
  EXPECT_EQ(human("", {{"name", "Zoë"}}), "level=info name=Zoë");
}

TEST(Log, ALineOfJsonIsOneObjectWithTheSameValues) {
  const LogField fields[] = {
      {"step", int64_t(1) << 60}, {"rate", 0.25}, {"bad", HUGE_VAL}, {"on", false}, {"text", "a\n\"b\""}};
  const auto read = parse_json(log_line(LogFormat::json, "T", LogLevel::debug, "message", fields), "test");
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  EXPECT_EQ(
      to_string(*read),
      R"({"time":"T","level":"debug","message":"message","step":1152921504606846976,"rate":0.25,"bad":null,"on":false,"text":"a\n\"b\""})");
}

TEST(Log, LevelsGoByName) {
  for (const char* name : {"error", "warn", "info", "debug", "trace"}) {
    ASSERT_TRUE(log_level_of(name));
    EXPECT_STREQ(name_of(*log_level_of(name)), name);
  }
  EXPECT_FALSE(log_level_of("loud"));
}

TEST(Log, ALevelThatIsOffWritesNothing) {
  Lines lines;
  Log log(lines.options());
  EXPECT_TRUE(log.on(LogLevel::info));
  EXPECT_FALSE(log.on(LogLevel::debug));
  log.write(LogLevel::debug, "hidden");
  log.write(LogLevel::info, "", {{"a", 1}});
  log.set_level(LogLevel::debug);
  log.write(LogLevel::debug, "shown");
  log.flush();
  EXPECT_EQ(lines.all, (std::vector<std::string>{"level=info a=1\n", "level=debug shown\n"}));
  EXPECT_EQ(log.dropped(), 0);
}

TEST(Log, ASlowWriterLosesTheOldestLinesAndSaysHowMany) {
  std::promise<void> stuck, go_on;
  std::vector<std::string> written;
  LogOptions options;
  options.times = false;
  options.queue_lines = 4;
  options.write = [&](std::string_view line) {
    written.emplace_back(line);
    if (written.size() == 1) stuck.set_value(), go_on.get_future().wait();
  };
  {
    Log log(options);
    log.write(LogLevel::info, "0");
    stuck.get_future().wait();
    for (int i = 1; i <= 10; ++i) log.write(LogLevel::info, std::to_string(i));
    EXPECT_EQ(log.dropped(), 6);
    go_on.set_value();
  }  // its end writes what waits
  EXPECT_EQ(written, (std::vector<std::string>{"level=info 0\n", "level=warn dropped_lines=6\n", "level=info 7\n",
                                               "level=info 8\n", "level=info 9\n", "level=info 10\n"}));
}

TEST(Log, ManyThreadsWriteWholeLines) {
  Lines lines;
  {
    Log log(lines.options());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 500; ++i) log.write(LogLevel::info, "", {{"thread", t}, {"line", i}});
      });
    }
    for (auto& thread : threads) thread.join();
    log.flush();
    EXPECT_EQ(lines.all.size(), 2'000u);
  }
  std::array<int, 4> next{};
  for (const std::string& line : lines.all) {
    int thread = -1, number = -1;
    ASSERT_EQ(std::sscanf(line.c_str(), "level=info thread=%d line=%d\n", &thread, &number), 2) << line;
    EXPECT_EQ(number, next[size_t(thread)]++) << "lines of a thread keep their order";
  }
}

}  // namespace
}  // namespace fathom
