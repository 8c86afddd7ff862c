// fathom/cli/tokenize.cpp
// `fathom tokenize`: text to ids and back, and the check against vectors (design/cli.md 5).
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "fathom/base/json.h"
#include "fathom/base/mapped_file.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/text_input.h"

namespace fathom::cli {
namespace {

struct Settings {
  std::vector<std::string> words;
  std::string tokenizer, file, check;
  bool decode = false, count = false, pieces = false, plain = false;
};

std::string ids_text(std::span<const int32_t> ids) {
  std::string out;
  for (int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

Json ids_json(std::span<const int32_t> ids) {
  Json list = Json::array();
  for (int32_t id : ids) list.push(Json::of(int64_t(id)));
  return list;
}

std::string hex_text(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (char c : bytes) {
    if (!out.empty()) out += ' ';
    out += kDigits[uint8_t(c) >> 4];
    out += kDigits[uint8_t(c) & 15];
  }
  return out;
}

std::string json_quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

/// Control characters and quotes made visible, valid UTF-8 as it is.
std::string visible(const Tokenizer& tokenizer, int32_t id) { return json_quoted(tokenizer.token_text(id)); }

std::string pieces_text(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool json) {
  if (json) {
    std::string out;
    for (int32_t id : ids) {
      Json entry = Json::object();
      entry.set("id", Json::of(int64_t(id)));
      entry.set("bytes", Json::of(hex_text(tokenizer.bytes_of(id))));
      entry.set("text", Json::of(tokenizer.token_text(id)));
      out += to_string(entry) + "\n";
    }
    return out;
  }
  Table table({{"id", Table::Side::right}, {"bytes"}, {"text"}});
  for (int32_t id : ids) {
    table.add({std::to_string(id), hex_text(tokenizer.bytes_of(id)), visible(tokenizer, id)});
  }
  return table.text();
}

Result<std::vector<int32_t>> read_ids(const Tokenizer& tokenizer, const std::vector<std::string>& words,
                                      const std::string& from) {
  std::vector<int32_t> ids;
  for (const std::string& word : words) {
    const auto values = parse_integers(word);
    if (!values) {
      return Error{ErrorCode::usage, "\"" + word + "\" is no token id", from, "pass ids as 6895 1883 or 6895,1883"};
    }
    for (int64_t id : *values) {
      if (id < 0 || id >= tokenizer.size()) {
        return Error{ErrorCode::usage, "no token has the id " + with_commas(id), from,
                     "ids go from 0 to " + with_commas(tokenizer.size() - 1)};
      }
      ids.push_back(int32_t(id));
    }
  }
  return ids;
}

/// What one row of a vector file expects; a row without "text" and "ids" is a description of the file.
struct Mismatch {
  std::string name, what, expected, found;
};

std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& item : list.items) ids.push_back(int32_t(item.as_int64().value_or(-1)));
  return ids;
}

void check_row(const Tokenizer& tokenizer, const Json& row, std::vector<Mismatch>& found) {
  const Json* text = row.find("text");
  const Json* ids = row.find("ids");
  const Json* name = row.find("name");
  const std::string label = name != nullptr ? name->text : "";
  const auto compare = [&](const char* what, std::span<const int32_t> expected, std::span<const int32_t> got) {
    if (!std::equal(expected.begin(), expected.end(), got.begin(), got.end())) {
      found.push_back({label, what, ids_text(expected), ids_text(got)});
    }
  };
  const std::vector<int32_t> expected = ids_of(*ids);
  compare("ids", expected, tokenizer.encode(text->text));
  if (const Json* plain = row.find("ids_without_added_vocabulary"); plain != nullptr) {
    compare("ids_without_added_vocabulary", ids_of(*plain), tokenizer.encode_plain(text->text));
  }
  const Json* decoded = row.find("decoded_equals_text");
  const std::string back = tokenizer.decode(expected);
  if (decoded != nullptr && decoded->as_bool() == true && back != text->text) {
    found.push_back({label, "decoded text", json_quoted(text->text), json_quoted(back)});
  }
}

Result<int> check_vectors(const Tokenizer& tokenizer, const std::string& path, bool json) {
  const auto text = read_file(path);
  if (!text) return text.error();
  std::vector<Mismatch> mismatches;
  int64_t rows = 0, line_number = 0, wrong_rows = 0;
  for (const std::string& line : split(*text, '\n')) {
    ++line_number;
    if (line.empty()) continue;
    const std::string where = path + ", line " + std::to_string(line_number);
    const auto row = parse_json(line, where);
    if (!row) return row.error();
    const Json* row_text = row->find("text");
    const Json* ids = row->find("ids");
    if (row_text == nullptr && ids == nullptr) continue;
    if (row_text == nullptr || !row_text->is_string() || ids == nullptr || !ids->is_array()) {
      return Error{ErrorCode::bad_input, "a vector needs \"text\" and \"ids\"", where, "mend this line"};
    }
    ++rows;
    const size_t before = mismatches.size();
    check_row(tokenizer, *row, mismatches);
    if (mismatches.size() > before) ++wrong_rows;
  }
  if (rows == 0) {
    return Error{ErrorCode::bad_input, "no vectors in the file", path, R"(each line is {"text": …, "ids": […]})"};
  }
  std::string out;
  if (json) {
    Json tree = Json::object();
    tree.set("vectors", Json::of(rows));
    tree.set("mismatches", Json::of(wrong_rows));
    Json list = Json::array();
    for (const Mismatch& m : mismatches) {
      Json entry = Json::object();
      entry.set("name", Json::of(m.name));
      entry.set("what", Json::of(m.what));
      entry.set("expected", Json::of(m.expected));
      entry.set("found", Json::of(m.found));
      list.push(std::move(entry));
    }
    tree.set("rows", std::move(list));
    out = to_string(tree) + "\n";
  } else {
    constexpr size_t kShown = 10;
    for (size_t i = 0; i < mismatches.size() && i < kShown; ++i) {
      const Mismatch& m = mismatches[i];
      out += m.name + ": " + m.what + "\n  expected  " + m.expected + "\n  found     " + m.found + "\n";
    }
    out += with_commas(rows - wrong_rows) + " of " + with_commas(rows) + " vectors agree\n";
  }
  if (auto printed = print(out); !printed) return printed.error();
  if (wrong_rows == 0) return kDone;
  return Error{ErrorCode::failed, with_commas(wrong_rows) + " of " + with_commas(rows) + " vectors differ", path,
               "check that the vectors were made with this tokenizer.json"};
}

Result<int> run_tokenize(const Settings& s, const Common& common) {
  const int sources = int(!s.words.empty()) + int(!s.file.empty()) + int(!s.check.empty());
  if (sources > 1) {
    return Error{ErrorCode::usage, "more than one input", "fathom tokenize",
                 s.check.empty() ? "pass either a text or --file" : "--check takes no text beside it"};
  }
  if (s.count && s.pieces) {
    return Error{ErrorCode::usage, "--count and --pieces exclude each other", "fathom tokenize", "pass one of them"};
  }
  const auto tokenizer = load_tokenizer(s.tokenizer, common);
  if (!tokenizer) return tokenizer.error();
  if (!s.check.empty()) return check_vectors(*tokenizer, s.check, common.json);

  std::string text;
  if (s.words.size() == 1 && s.words[0] == "-" && s.file.empty()) {
    text = read_standard_input();
  } else if (!s.file.empty()) {
    auto read = read_text_input(s.file);
    if (!read) return read.error();
    text = std::move(*read);
  } else if (!s.words.empty()) {
    if (s.words.size() > 1 && !s.decode) {
      return Error{ErrorCode::usage, "more than one text", "fathom tokenize", "put it in quotes"};
    }
    text = s.words[0];
  } else if (::isatty(STDIN_FILENO) == 1) {
    return Error{ErrorCode::usage, "no text", "fathom tokenize", "pass it in quotes, with --file FILE, or on stdin"};
  } else {
    text = read_standard_input();
  }

  std::string out;
  if (s.decode) {
    std::vector<std::string> words = s.words;
    if (words.empty() || words == std::vector<std::string>{"-"}) {
      words.clear();
      std::string word;
      for (char c : text + " ") {
        if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
          if (!word.empty()) words.push_back(std::exchange(word, {}));
        } else {
          word += c;
        }
      }
    }
    const auto ids = read_ids(*tokenizer, words, "--decode");
    if (!ids) return ids.error();
    if (s.count) {
      out = std::to_string(ids->size()) + "\n";
    } else if (s.pieces) {
      out = pieces_text(*tokenizer, *ids, common.json);
    } else if (common.json) {
      Json tree = Json::object();
      tree.set("ids", ids_json(*ids));
      tree.set("text", Json::of(tokenizer->decode(*ids)));
      out = to_string(tree) + "\n";
    } else {
      out = tokenizer->decode(*ids) + "\n";
    }
  } else {
    const std::vector<int32_t> ids = s.plain ? tokenizer->encode_plain(text) : tokenizer->encode(text);
    if (s.pieces) {
      out = pieces_text(*tokenizer, ids, common.json);
    } else if (common.json) {
      Json tree = Json::object();
      if (!s.count) tree.set("ids", ids_json(ids));
      tree.set("count", Json::of(int64_t(ids.size())));
      out = to_string(tree) + "\n";
    } else {
      out = (s.count ? std::to_string(ids.size()) : ids_text(ids)) + "\n";
    }
  }
  if (auto printed = print(out); !printed) return printed.error();
  return kDone;
}

}  // namespace

Command tokenize_command() {
  const auto s = std::make_shared<Settings>();
  const std::string from = "What to read", show = "What to show";
  return {
      .name = "tokenize",
      .summary = "text to token ids, and back",
      .example = "fathom tokenize \"12345 Hello\"",
      .note = "with the tokenizer of --model",
      .arguments = "[TEXT | ID...]",
      .options =
          {{.name = "tokenizer",
            .value = "FILE",
            .help = "a tokenizer.json",
            .fallback = "that of --model",
            .group = from,
            .target = &s->tokenizer},
           {.name = "file",
            .value = "FILE",
            .help = "read this file instead of an argument",
            .group = from,
            .target = &s->file},
           {.name = "decode", .help = "the arguments are ids: print their text", .group = from, .target = &s->decode},
           {.name = "plain",
            .help = "recognise no added tokens: <think> is ordinary text",
            .group = from,
            .target = &s->plain},
           {.name = "count", .help = "the number of tokens only", .group = show, .target = &s->count},
           {.name = "pieces", .help = "one line a token: id, bytes, text", .group = show, .target = &s->pieces},
           {.name = "check",
            .value = "VECTORS.jsonl",
            .help = "compare with recorded ids; exit 1 when one differs",
            .group = show,
            .target = &s->check}},
      .positional = &s->words,
      .run = [s](const Common& common) { return run_tokenize(*s, common); }};
}

}  // namespace fathom::cli
