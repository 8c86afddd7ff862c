// Speed of the tokenizer on real texts. bench/tokenizer/compare.py writes the texts, runs this and runs the reference
// implementation on the same ones.
//
//   FATHOM_BENCH_TEXTS=DIR     a benchmark for each file DIR/NAME.txt; documents in it are separated by a zero byte
//   FATHOM_V4_TOKENIZER=FILE   tokenizer.json (default: where scripts/fetch-test-files puts it, else the miniature's)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "fathom/tokenizer/compressed_vocabulary.h"
#include "fathom/tokenizer/sample_tokenizer.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom {
namespace {

std::string tokenizer_path() {
  return std::filesystem::exists(sample::v4_tokenizer()) ? sample::v4_tokenizer() : sample::mini_tokenizer();
}

const Tokenizer& tokenizer() {
  static const Tokenizer opened = *Tokenizer::open(tokenizer_path());
  return opened;
}

std::vector<std::string> documents(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

void encode(benchmark::State& state, const std::vector<std::string>& texts) {
  int64_t bytes = 0, tokens = 0;
  uint32_t hash = 0;  // of all ids of one pass, so that the script can compare; 32 bits, which a double holds exactly
  for (const std::string& text : texts) {
    bytes += int64_t(text.size());
    for (const int32_t id : tokenizer().encode(text)) {
      ++tokens;
      hash = hash * 31 + uint32_t(id);
    }
  }
  for (auto _ : state) {
    for (const std::string& text : texts) benchmark::DoNotOptimize(tokenizer().encode(text));
  }
  state.SetBytesProcessed(bytes * state.iterations());
  state.counters["bytes"] = double(bytes);
  state.counters["tokens"] = double(tokens);
  state.counters["hash"] = double(hash);
}

void decode(benchmark::State& state, const std::vector<std::string>& texts) {
  std::vector<std::vector<int32_t>> ids;
  int64_t bytes = 0;
  for (const std::string& text : texts) {
    ids.push_back(tokenizer().encode(text));
    bytes += int64_t(text.size());
  }
  for (auto _ : state) {
    for (const auto& list : ids) benchmark::DoNotOptimize(tokenizer().decode(list));
  }
  state.SetBytesProcessed(bytes * state.iterations());
}

void open(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::open(tokenizer_path()));
}

void compress(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(compress_vocabulary(tokenizer()));
}

const bool registered = [] {
  if (!std::filesystem::exists(tokenizer_path())) {
    std::cerr << "tokenizer_bench: " << tokenizer_path() << " is not there: run scripts/fetch-test-files\n";
    return false;
  }
  benchmark::RegisterBenchmark("open", open)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("compress_vocabulary", compress)->Unit(benchmark::kMillisecond);
  const char* folder = std::getenv("FATHOM_BENCH_TEXTS");
  std::vector<std::filesystem::path> files;
  if (folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    const auto text = read_file(file.string());
    if (!text) continue;
    const auto texts = documents(*text);
    const std::string name = file.stem().string();
    benchmark::RegisterBenchmark(("encode/" + name).c_str(), encode, texts)->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("decode/" + name).c_str(), decode, texts)->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace fathom
