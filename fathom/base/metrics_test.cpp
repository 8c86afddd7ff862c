// Exports are read back by a parser written from the definition of Prometheus' text format 0.0.4, not from our writer.
#include "fathom/base/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <thread>

namespace fathom {
namespace {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
  bool operator==(const Sample&) const = default;
};

struct Exposition {
  std::map<std::string, std::string> help, type;
  std::vector<Sample> samples;
  const Sample* find(const std::string& name, const std::map<std::string, std::string>& labels = {}) const {
    for (const Sample& one : samples) {
      if (one.name == name && one.labels == labels) return &one;
    }
    return nullptr;
  }
};

// Nothing when a line does not follow the format.
std::optional<Exposition> parse(const std::string& text) {
  Exposition out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) return {};  // the last line ends too
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) {
      const size_t blank = line.find(' ', 7);
      if (blank == std::string::npos) return {};
      std::string name = line.substr(7, blank - 7), rest;
      for (size_t i = blank + 1; i < line.size(); ++i) {
        if (line[i] == '\\' && i + 1 < line.size()) {
          rest += line[++i] == 'n' ? '\n' : line[i];
        } else {
          rest += line[i];
        }
      }
      auto& into = line[2] == 'H' ? out.help : out.type;
      if (!into.emplace(name, rest).second) return {};  // once a metric
      continue;
    }
    Sample sample;
    size_t i = 0;
    while (i < line.size() && (std::isalnum(line[i]) || line[i] == '_' || line[i] == ':')) sample.name += line[i++];
    if (i < line.size() && line[i] == '{') {
      ++i;
      while (i < line.size() && line[i] != '}') {
        std::string name, value;
        while (i < line.size() && line[i] != '=') name += line[i++];
        if (line.substr(i, 2) != "=\"") return {};
        for (i += 2; i < line.size() && line[i] != '"'; ++i) {
          if (line[i] == '\\' && i + 1 < line.size()) {
            value += line[++i] == 'n' ? '\n' : line[i];
          } else {
            value += line[i];
          }
        }
        sample.labels[name] = value;
        if (++i < line.size() && line[i] == ',') ++i;
      }
      ++i;
    }
    if (sample.name.empty() || i >= line.size() || line[i] != ' ') return {};
    const std::string number = line.substr(i + 1);
    char* stop = nullptr;
    sample.value = std::strtod(number.c_str(), &stop);  // reads +Inf and NaN
    if (stop != number.c_str() + number.size() || number.empty()) return {};
    out.samples.push_back(sample);
  }
  return out;
}

TEST(Metrics, TheTextIsReadBackByAnIndependentParser) {
  Metrics metrics;
  metrics.counter("fathom_test_rows_total", "Rows.", {{"kind", "prompt"}}).add(12'345'678'901);
  metrics.counter("fathom_test_rows_total", "Rows.", {{"kind", "decode"}}).add(0.1);
  metrics.gauge("fathom_test_running", "Running.").set(-2.5);
  Histogram& histogram = metrics.histogram("fathom_test_wait_seconds", "Waits.", {0.001, 0.1, 1});
  for (const double value : {0.001, 0.0011, 0.5, 7.0}) histogram.observe(value);
  const auto read = parse(metrics.prometheus_text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->type, (std::map<std::string, std::string>{{"fathom_test_rows_total", "counter"},
                                                            {"fathom_test_running", "gauge"},
                                                            {"fathom_test_wait_seconds", "histogram"}}));
  EXPECT_EQ(read->help.at("fathom_test_running"), "Running.");
  ASSERT_TRUE(read->find("fathom_test_rows_total", {{"kind", "prompt"}}));
  EXPECT_EQ(read->find("fathom_test_rows_total", {{"kind", "prompt"}})->value, 12'345'678'901.0);
  EXPECT_EQ(read->find("fathom_test_rows_total", {{"kind", "decode"}})->value, 0.1);
  EXPECT_EQ(read->find("fathom_test_running")->value, -2.5);
  // "le" counts what is at most the bound, and all buckets below.
  for (const auto& [bound, count] : std::map<std::string, double>{{"0.001", 1}, {"0.1", 2}, {"1", 3}, {"+Inf", 4}}) {
    const Sample* bucket = read->find("fathom_test_wait_seconds_bucket", {{"le", bound}});
    ASSERT_TRUE(bucket) << bound;
    EXPECT_EQ(bucket->value, count) << bound;
  }
  EXPECT_EQ(read->find("fathom_test_wait_seconds_count")->value, 4);
  EXPECT_DOUBLE_EQ(read->find("fathom_test_wait_seconds_sum")->value, 7.5021);
}

TEST(Metrics, QuotesBackslashesAndLineEndsAreEscaped) {
  const std::string nasty = "a \"quoted\" \\ and\nanother line} 1";
  Metrics metrics;
  metrics.gauge("fathom_test_gauge", nasty, {{"text", nasty}}).set(1);
  const std::string text = metrics.prometheus_text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  const auto read = parse(text);
  ASSERT_TRUE(read) << text;
  EXPECT_EQ(read->help.at("fathom_test_gauge"), nasty);
  EXPECT_EQ(read->samples, (std::vector<Sample>{{"fathom_test_gauge", {{"text", nasty}}, 1}}));
}

TEST(Metrics, ValuesThatAreNoNumbersHaveTheNamesOfTheFormat) {
  Metrics metrics;
  metrics.gauge("fathom_test_a", "").set(HUGE_VAL);
  metrics.gauge("fathom_test_b", "").set(-HUGE_VAL);
  metrics.gauge("fathom_test_c", "").set(std::nan(""));
  const std::string text = metrics.prometheus_text();
  EXPECT_NE(text.find("fathom_test_a +Inf\n"), std::string::npos);
  EXPECT_NE(text.find("fathom_test_b -Inf\n"), std::string::npos);
  EXPECT_NE(text.find("fathom_test_c NaN\n"), std::string::npos);
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameSeries) {
  Metrics metrics;
  Counter& a = metrics.counter("fathom_test_total", "T.", {{"x", "1"}});
  EXPECT_EQ(&metrics.counter("fathom_test_total", "T.", {{"x", "1"}}), &a);
  EXPECT_NE(&metrics.counter("fathom_test_total", "T.", {{"x", "2"}}), &a);
  ASSERT_EQ(metrics.list().size(), 1u);
  EXPECT_EQ(metrics.list()[0].series, 2u);
  const Metrics moved = std::move(metrics);
  a.add(1);  // references survive a move
  EXPECT_NE(moved.prometheus_text().find("fathom_test_total{x=\"1\"} 1\n"), std::string::npos);
}

TEST(Metrics, JsonHasTheSameNumbers) {
  Metrics metrics;
  metrics.counter("fathom_test_total", "T.", {{"x", "1"}}).add(3);
  metrics.histogram("fathom_test_seconds", "S.", {1, 2}).observe(1.5, 4);
  const auto read = parse_json(to_string(metrics.json()), "test");
  ASSERT_TRUE(read.ok());
  const Json& counter = read->find("fathom_test_total")->find("series")->items.at(0);
  EXPECT_EQ(counter.find("labels")->find("x")->text, "1");
  EXPECT_EQ(counter.find("value")->as_int64(), 3);
  const Json& histogram = read->find("fathom_test_seconds")->find("series")->items.at(0);
  EXPECT_EQ(histogram.find("count")->as_int64(), 4);
  EXPECT_EQ(histogram.find("sum")->as_double(), 6.0);
  EXPECT_EQ(to_string(*histogram.find("buckets")), R"([[1,0],[2,4],["+Inf",4]])");
}

TEST(Metrics, AQuantileLiesInItsBucket) {
  Histogram histogram({1, 2, 4});
  EXPECT_EQ(histogram.quantile(0.5), 0);
  histogram.observe(1.5, 50);
  histogram.observe(3, 50);
  EXPECT_EQ(histogram.quantile(0.25), 1.5);
  EXPECT_EQ(histogram.quantile(0.75), 3);
  histogram.observe(100, 900);
  EXPECT_EQ(histogram.quantile(0.99), 4) << "of what has no bound, the last bound";
}

TEST(Metrics, AValueThatIsNoNumberDoesNotSpoilTheSum) {
  Histogram histogram({1});
  histogram.observe(std::nan(""));
  histogram.observe(0.5);
  EXPECT_EQ(histogram.count(), 2);
  EXPECT_EQ(histogram.sum(), 0.5);
}

TEST(Metrics, ThreadsThatRecordAtOnceLoseNothing) {
  Metrics metrics;
  Counter& counter = metrics.counter("fathom_test_total", "T.");
  Histogram& histogram = metrics.histogram("fathom_test_seconds", "S.", {1});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) counter.add(1), histogram.observe(2);
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(parse(metrics.prometheus_text()));  // and a reader sees whole lines
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 40'000);
  EXPECT_EQ(histogram.count(), 40'000);
  EXPECT_EQ(histogram.sum(), 80'000);
}

TEST(MetricsDeath, NamesAndKindsThatDisagreeAreBugs) {
  Metrics metrics;
  metrics.counter("fathom_test_total", "T.");
  EXPECT_DEATH((void)metrics.counter("fathom_test_total", "Other."), "the same wherever");
  EXPECT_DEATH((void)metrics.counter("fathom_test_total", "T.", {{"x", "1"}}), "the same wherever");
  EXPECT_DEATH((void)metrics.counter("fathom-test", "T."), "a word");
  EXPECT_DEATH((void)metrics.counter("fathom_test", "T."), "_total");
  EXPECT_DEATH((void)metrics.gauge("fathom_test_gauge", "T.", {{"le", "1"}}), "a word");
  EXPECT_DEATH((void)metrics.histogram("fathom_test_seconds", "T.", {2, 1}), "rise");
}

}  // namespace
}  // namespace fathom
