// fathom/cli/codec_check.cpp
// `fathom codec check FILE...`: runs vector files, counts, shows where rows part from their expectation.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/codec.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/recipe/conformance/check_row.h"

namespace fathom::cli {
namespace {

using recipe::RowVerdict;

/// The tokenizers that rows name. "v4" is --tokenizer; "v41-derived" the same file with the three spellings that
/// vectors/recipe/README.md replaces.
class RowTokenizers {
 public:
  static Result<RowTokenizers> open(const std::string& path) {
    RowTokenizers out;
    if (path.empty()) return out;
    const auto text = read_file(path, int64_t(256) << 20);
    if (!text) return text.error();
    auto v4 = Tokenizer::parse(*text, path);
    if (!v4) return v4.error();
    out.add("v4", std::move(*v4));
    if (auto derived = recipe::derive_v41_tokenizer(*text)) out.add("v41-derived", std::move(*derived));
    return out;
  }

  const Tokenizer* find(std::string_view name) const {
    const auto found = tokenizers_.find(name);
    return found == tokenizers_.end() ? nullptr : found->second.get();
  }

 private:
  void add(const char* name, Tokenizer tokenizer) {
    tokenizers_.emplace(name, std::make_unique<Tokenizer>(std::move(tokenizer)));
  }

  std::map<std::string, std::unique_ptr<Tokenizer>, std::less<>> tokenizers_;
};

struct FileCount {
  std::string path;
  int64_t agree = 0, differ = 0, skipped = 0;
  std::string why_skipped;
};

struct Difference {
  std::string file, row;
  recipe::JsonDifference at;
};

/// Errors: those of reading the file. No file: no expectations.
Result<recipe::Expectations> read_expectations(const std::string& path) {
  if (path.empty()) return recipe::Expectations();
  const auto text = read_file(path, int64_t(256) << 20);
  if (!text) return text.error();
  return recipe::Expectations::parse(*text, path);
}

Result<FileCount> check_file(const std::string& path, const recipe::RowCheck& check,
                             const recipe::Expectations& expectations, std::vector<Difference>& found) {
  const auto text = read_file(path, int64_t(1) << 30);
  if (!text) return text.error();
  FileCount count{path, 0, 0, 0, {}};
  const std::vector<std::string> lines = split(*text, '\n');
  Progress progress("checking", "rows", int64_t(lines.size()));
  int64_t number = 0;
  for (const std::string& line : lines) {
    progress.update(++number);
    if (line.empty()) continue;
    const std::string where = path + ", line " + std::to_string(number);
    auto row = parse_json(line, where);
    if (!row) return row.error();
    if (!recipe::kind_of(*row)) {
      return Error{ErrorCode::bad_input, "no recipe vector", where,
                   "rows have \"expect\" beside \"request\", \"chunks\", \"text\" or \"width\""};
    }
    const Json* name = row->find("name");
    const std::string label = name != nullptr ? name->text : "line " + std::to_string(number);
    if (auto amended = expectations.amend(std::filesystem::path(path).stem().string(), *row); !amended) {
      return amended.error();
    }
    auto verdict = recipe::check_row(*row, check);
    if (!verdict) {
      Error error = verdict.error();
      error.where = where + (error.where.empty() ? "" : ", " + error.where);
      return error;
    }
    switch (verdict->kind) {
      case RowVerdict::Kind::agrees: ++count.agree; break;
      case RowVerdict::Kind::skipped:
        ++count.skipped;
        count.why_skipped = verdict->why;
        break;
      case RowVerdict::Kind::differs:
        ++count.differ;
        found.push_back({path, label, *verdict->difference});
        break;
    }
  }
  if (count.agree + count.differ + count.skipped == 0) {
    return Error{ErrorCode::bad_input, "no rows in the file", path, "each line is one JSON object"};
  }
  return count;
}

std::string report(const std::vector<FileCount>& files, const std::vector<Difference>& found, bool all) {
  Table table(
      {{"file"}, {"agree", Table::Side::right}, {"differ", Table::Side::right}, {"skipped", Table::Side::right}});
  std::string notes, out;
  for (const FileCount& file : files) {
    table.add({std::filesystem::path(file.path).filename().string(), with_commas(file.agree), with_commas(file.differ),
               with_commas(file.skipped)});
    if (file.skipped > 0) {
      notes = "skipped: " + file.why_skipped + "; pass the published V4 tokenizer.json with --tokenizer\n";
    }
  }
  const size_t shown = all ? found.size() : std::min<size_t>(found.size(), 1);
  for (size_t i = 0; i < shown; ++i) {
    const Difference& d = found[i];
    out += d.row + " (" + std::filesystem::path(d.file).filename().string() + ") at " + d.at.pointer +
           "\n  expected  " + d.at.expected + "\n  found     " + d.at.found + "\n";
  }
  if (found.size() > shown) out += with_commas(int64_t(found.size() - shown)) + " more: --all shows them\n";
  return table.text() + notes + out;
}

Json report_json(const std::vector<FileCount>& files, const std::vector<Difference>& found) {
  Json list = Json::array(), rows = Json::array();
  for (const FileCount& file : files) {
    Json entry = Json::object();
    entry.set("file", Json::of(file.path));
    entry.set("agree", Json::of(file.agree));
    entry.set("differ", Json::of(file.differ));
    entry.set("skipped", Json::of(file.skipped));
    list.push(std::move(entry));
  }
  for (const Difference& d : found) {
    Json entry = Json::object();
    entry.set("file", Json::of(d.file));
    entry.set("row", Json::of(d.row));
    entry.set("pointer", Json::of(d.at.pointer));
    entry.set("expected", Json::of(d.at.expected));
    entry.set("found", Json::of(d.at.found));
    rows.push(std::move(entry));
  }
  Json out = Json::object();
  out.set("files", std::move(list));
  out.set("differences", std::move(rows));
  return out;
}

}  // namespace

Result<int> run_codec_check(const CodecSettings& s, const Common& common) {
  if (s.words.size() < 2) {
    return Error{ErrorCode::usage, "no vector file", "fathom codec check",
                 "name one or more, such as vectors/recipe/requests.jsonl"};
  }
  const auto tokenizers = RowTokenizers::open(s.tokenizer);
  if (!tokenizers) return tokenizers.error();
  const auto expectations = read_expectations(s.expectations);
  if (!expectations) return expectations.error();
  recipe::RowCheck check;
  check.policy = *recipe::policy_of(s.policy);
  check.tokenizer = [&](std::string_view name) { return tokenizers->find(name); };
  std::vector<FileCount> files;
  std::vector<Difference> found;
  for (size_t i = 1; i < s.words.size(); ++i) {
    auto count = check_file(s.words[i], check, *expectations, found);
    if (!count) return count.error();
    files.push_back(std::move(*count));
  }
  const std::string out = common.json ? to_string(report_json(files, found)) + "\n" : report(files, found, s.all);
  if (auto printed = print(out); !printed) return printed.error();
  return found.empty() ? kDone : kFailed;
}

}  // namespace fathom::cli
