#include "fathom/tokenizer/stages/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <unordered_map>

#include "fathom/base/json.h"
#include "fathom/tokenizer/stages/byte_alphabet.h"
#include "fathom/tokenizer/stages/string_table.h"

namespace fathom {
namespace {

constexpr std::string_view kCjkPattern = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr std::string_view kWordPattern = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                                          "\r\n"
                                          R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                                          "\r\n"
                                          R"(]*|\s*[)"
                                          "\r\n"
                                          R"(]+|\s+(?!\S)|\s+)";

constexpr std::string_view kRemedy = "fathom reads tokenizer.json files of the DeepSeek V4 family";

// The first few characters of a value, for a message.
std::string shown(const Json& value) {
  std::string text = to_string(value);
  if (text.size() <= 60) return text;
  size_t cut = 60;
  while (cut > 0 && (uint8_t(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

/// Reads one file; `key` arguments are the JSON keys that errors name.
class Reader {
 public:
  explicit Reader(std::string_view where) : where_(where) {}

  Result<TokenizerFile> read(const Json& root) {
    if (!root.is_object()) return wrong("the whole file", "is no object", "an object is expected");
    if (auto ok = only_keys(root, "",
                            {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                             "post_processor", "decoder", "model"});
        !ok) {
      return ok.error();
    }
    for (const auto step : {&Reader::settings, &Reader::pre_tokenizer, &Reader::added_tokens, &Reader::vocabulary,
                            &Reader::added_to_table, &Reader::family, &Reader::merges}) {
      if (auto ok = (this->*step)(root); !ok) return ok.error();
    }
    return std::move(file_);
  }

 private:
  Error wrong(std::string key, const std::string& what, const std::string& expected) const {
    std::string name = key.substr(key.rfind('.') + 1);
    return {ErrorCode::bad_input, name + " " + what, where_ + ", " + std::move(key),
            expected + "; " + std::string(kRemedy)};
  }

  /// The value of `key` in `object` must be one of `allowed` (JSON texts; "absent": may be missing).
  Result<void> must_be(const Json& object, const std::string& path, std::string_view key,
                       std::initializer_list<std::string_view> allowed) const {
    const Json* value = object.find(key);
    const std::string found = value ? to_string(*value) : "absent";
    if (std::find(allowed.begin(), allowed.end(), found) != allowed.end()) return {};
    std::string choices;
    for (const std::string_view choice : allowed) (choices += choices.empty() ? "" : " or ") += choice;
    return wrong(path + std::string(key), value ? "is " + shown(*value) : "is missing", "expected " + choices);
  }

  Result<void> only_keys(const Json& object, const std::string& path,
                         std::initializer_list<std::string_view> known) const {
    for (const auto& [name, value] : object.fields) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return wrong(path + name, "is not a key that fathom knows", "remove it if it does not change ids");
      }
    }
    return {};
  }

  Result<const Json*> object(const Json& parent, const std::string& path, std::string_view key) const {
    const Json* value = parent.find(key);
    if (!value || !value->is_object()) {
      return wrong(path + std::string(key), value ? "is " + shown(*value) : "is missing", "an object is expected");
    }
    return value;
  }

  Result<const Json*> array(const Json& parent, const std::string& path, std::string_view key) const {
    const Json* value = parent.find(key);
    if (!value || !value->is_array()) {
      return wrong(path + std::string(key), value ? "is " + shown(*value) : "is missing", "an array is expected");
    }
    return value;
  }

  /// A ByteLevel part; its flags other than those in `fixed` do not change ids.
  Result<void> byte_level(const Json& part, const std::string& path, bool flags_matter) const {
    if (auto ok = must_be(part, path, "type", {"\"ByteLevel\""}); !ok) return ok;
    if (auto ok = only_keys(part, path, {"type", "add_prefix_space", "trim_offsets", "use_regex"}); !ok) return ok;
    if (!flags_matter) return {};
    if (auto ok = must_be(part, path, "add_prefix_space", {"false"}); !ok) return ok;
    return must_be(part, path, "use_regex", {"false"});
  }

  Result<void> settings(const Json& root) {
    if (auto ok = must_be(root, "", "version", {"\"1.0\""}); !ok) return ok;
    if (auto ok = must_be(root, "", "truncation", {"null", "absent"}); !ok) return ok;
    if (auto ok = must_be(root, "", "padding", {"null", "absent"}); !ok) return ok;
    if (const Json* normalizer = root.find("normalizer"); normalizer && !normalizer->is_null()) {
      if (!normalizer->is_object()) return wrong("normalizer", "is " + shown(*normalizer), "expected null");
      if (auto ok = must_be(*normalizer, "normalizer.", "type", {"\"Sequence\""}); !ok) return ok;
      if (auto ok = must_be(*normalizer, "normalizer.", "normalizers", {"[]"}); !ok) return ok;
      if (auto ok = only_keys(*normalizer, "normalizer.", {"type", "normalizers"}); !ok) return ok;
    }
    if (const Json* post = root.find("post_processor"); post && !post->is_null()) {
      if (!post->is_object()) return wrong("post_processor", "is " + shown(*post), "expected null or ByteLevel");
      if (auto ok = byte_level(*post, "post_processor.", false); !ok) return ok;
    }
    const auto decoder = object(root, "", "decoder");
    if (!decoder) return decoder.error();
    return byte_level(**decoder, "decoder.", false);
  }

  static std::optional<int> digit_limit(std::string_view pattern) {
    constexpr std::string_view head = "\\p{N}{1,", tail = "}";
    if (!pattern.starts_with(head) || !pattern.ends_with(tail)) return {};
    const std::string_view number = pattern.substr(head.size(), pattern.size() - head.size() - tail.size());
    int limit = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), limit);
    if (error != std::errc() || end != number.data() + number.size() || limit < 1 || limit > 255) return {};
    return limit;
  }

  Result<void> pre_tokenizer(const Json& root) {
    const auto outer = object(root, "", "pre_tokenizer");
    if (!outer) return outer.error();
    if (auto ok = must_be(**outer, "pre_tokenizer.", "type", {"\"Sequence\""}); !ok) return ok;
    if (auto ok = only_keys(**outer, "pre_tokenizer.", {"type", "pretokenizers"}); !ok) return ok;
    const auto list = array(**outer, "pre_tokenizer.", "pretokenizers");
    if (!list) return list.error();
    if ((*list)->items.size() != 4) {
      return wrong("pre_tokenizer.pretokenizers", "has " + std::to_string((*list)->items.size()) + " parts",
                   "three splits and ByteLevel are expected");
    }
    for (size_t i = 0; i < 4; ++i) {
      const Json& part = (*list)->items[i];
      const std::string path = "pre_tokenizer.pretokenizers[" + std::to_string(i) + "]";
      if (!part.is_object()) return wrong(path, "is " + shown(part), "an object is expected");
      if (auto ok = i < 3 ? split(part, path + ".", i) : byte_level(part, path + ".", true); !ok) return ok;
    }
    return {};
  }

  Result<void> split(const Json& part, const std::string& path, size_t stage) {
    if (auto ok = must_be(part, path, "type", {"\"Split\""}); !ok) return ok;
    if (auto ok = must_be(part, path, "behavior", {"\"Isolated\""}); !ok) return ok;
    if (auto ok = must_be(part, path, "invert", {"false"}); !ok) return ok;
    if (auto ok = only_keys(part, path, {"type", "pattern", "behavior", "invert"}); !ok) return ok;
    const auto pattern = object(part, path, "pattern");
    if (!pattern) return pattern.error();
    if (auto ok = only_keys(**pattern, path + "pattern.", {"Regex"}); !ok) return ok;
    const Json* regex = (*pattern)->find("Regex");
    const std::string key = path + "pattern.Regex";
    if (!regex || !regex->is_string()) return wrong(key, "is missing", "a string is expected");
    if (stage == 0) {
      const auto limit = digit_limit(regex->text);
      if (!limit) return wrong(key, "is " + shown(*regex), "expected \\p{N}{1,K} with K from 1 to 255");
      file_.digits = *limit;
      return {};
    }
    if (regex->text == (stage == 1 ? kCjkPattern : kWordPattern)) return {};
    return wrong(key, "is " + shown(*regex), "expected the pattern of the published file");
  }

  struct Added {
    int32_t id;
    bool special, normalized;
  };

  Result<int32_t> token_id(const Json* value, const std::string& key) const {
    const auto id = value ? value->as_int64() : std::nullopt;
    if (!id || *id < 0 || *id >= kMostTokenIds) {
      return wrong(key, value ? "is " + shown(*value) : "is missing",
                   "a token id from 0 to " + std::to_string(kMostTokenIds - 1) + " is expected");
    }
    return int32_t(*id);
  }

  Result<void> added_tokens(const Json& root) {
    const auto list = array(root, "", "added_tokens");
    if (!list) return list.error();
    for (size_t i = 0; i < (*list)->items.size(); ++i) {
      const Json& entry = (*list)->items[i];
      const std::string path = "added_tokens[" + std::to_string(i) + "]";
      if (!entry.is_object()) return wrong(path, "is " + shown(entry), "an object is expected");
      for (const std::string_view flag : {"single_word", "lstrip", "rstrip"}) {
        if (auto ok = must_be(entry, path + ".", flag, {"false"}); !ok) return ok;
      }
      for (const std::string_view flag : {"special", "normalized"}) {
        if (auto ok = must_be(entry, path + ".", flag, {"false", "true"}); !ok) return ok;
      }
      if (auto ok = only_keys(entry, path + ".",
                              {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
          !ok) {
        return ok;
      }
      const auto id = token_id(entry.find("id"), path + ".id");
      if (!id) return id.error();
      const Json* content = entry.find("content");
      if (!content || !content->is_string() || content->text.empty()) {
        return wrong(path + ".content", "is no text", "the spelling of the token is expected");
      }
      const Added added{*id, *entry.find("special")->as_bool(), *entry.find("normalized")->as_bool()};
      if (!added_.emplace(content->text, added).second) {
        return wrong(path + ".content", "is " + shown(*content) + ", which is there already", "every spelling once");
      }
    }
    return {};
  }

  TokenizerFile::Token& token(int32_t id) {
    if (size_t(id) >= file_.tokens.size()) file_.tokens.resize(size_t(id) + 1);
    return file_.tokens[size_t(id)];
  }

  Result<void> vocabulary(const Json& root) {
    const auto model = object(root, "", "model");
    if (!model) return model.error();
    const Json& m = **model;
    const std::string path = "model.";
    if (auto ok = must_be(m, path, "type", {"\"BPE\""}); !ok) return ok;
    for (const std::string_view key : {"dropout", "unk_token"}) {
      if (auto ok = must_be(m, path, key, {"null", "absent"}); !ok) return ok;
    }
    for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (auto ok = must_be(m, path, key, {"null", "\"\"", "absent"}); !ok) return ok;
    }
    for (const std::string_view key : {"fuse_unk", "byte_fallback", "ignore_merges"}) {
      if (auto ok = must_be(m, path, key, {"false", "absent"}); !ok) return ok;
    }
    if (auto ok = only_keys(m, path,
                            {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                             "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
        !ok) {
      return ok;
    }
    const auto vocab = object(m, path, "vocab");
    if (!vocab) return vocab.error();
    base_ = StringTable((*vocab)->fields.size());
    for (const auto& [spelling, value] : (*vocab)->fields) {
      const auto key = [&spelling = spelling] { return "model.vocab[" + shown(Json::of(spelling)) + "]"; };
      const auto id = token_id(&value, value.as_int64() ? "model.vocab" : key());
      if (!id) return id.error();
      if (const auto at = added_.find(spelling); at != added_.end()) {
        if (at->second.id != *id) {
          return wrong(key(), "has id " + std::to_string(*id),
                       "added_tokens gives it id " + std::to_string(at->second.id));
        }
      }
      auto bytes = bytes_of_spelling(spelling);
      // The first ids are spelt outside the byte alphabet; they are added tokens and no merge reaches them.
      if (!bytes && !added_.contains(spelling)) {
        return wrong(key(), "has a character outside the byte alphabet", "spell bytes as GPT-2 does");
      }
      TokenizerFile::Token& entry = token(*id);
      if (entry.kind != TokenizerFile::Kind::absent || (bytes && bytes->empty())) {
        return wrong(key(), bytes && bytes->empty() ? "is empty" : "has id " + std::to_string(*id) + ", which is taken",
                     "every id stands for one text");
      }
      entry.kind = TokenizerFile::Kind::base;
      if (bytes) base_.insert(spelling, *id);
      entry.bytes = bytes ? std::move(*bytes) : spelling;
    }
    for (int byte = 0; byte < 256; ++byte) {
      const std::string spelling = spelling_of_bytes(std::string(1, char(byte)));
      if (!base_.find(spelling)) {
        return wrong("model.vocab[\"" + spelling + "\"]", "is missing", "all 256 bytes need a token");
      }
    }
    return {};
  }

  Result<void> added_to_table(const Json&) {
    for (const auto& [spelling, added] : added_) {
      TokenizerFile::Token& entry = token(added.id);
      const bool taken = entry.kind != TokenizerFile::Kind::absent &&
                         !(entry.kind == TokenizerFile::Kind::base && is_spelt(entry, spelling));
      if (taken) {
        return wrong("added_tokens",
                     "give " + shown(Json::of(spelling)) + " the id " + std::to_string(added.id) + ", which is taken",
                     "every id stands for one text");
      }
      entry.kind = added.special ? TokenizerFile::Kind::special : TokenizerFile::Kind::added;
      entry.normalized = added.normalized;
      entry.bytes = spelling;
    }
    return {};
  }

  static bool is_spelt(const TokenizerFile::Token& base, const std::string& spelling) {
    return base.bytes == spelling || spelling_of_bytes(base.bytes) == spelling;
  }

  // The rest of fathom relies on these three; they are the same in every file of the family.
  Result<void> family(const Json&) {
    constexpr std::array<std::string_view, 3> kFixed{"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"};
    for (size_t id = 0; id < kFixed.size(); ++id) {
      const auto at = added_.find(std::string(kFixed[id]));
      if (at != added_.end() && at->second.id == int32_t(id)) continue;
      return wrong("added_tokens", "have no " + std::string(kFixed[id]) + " with id " + std::to_string(id),
                   "ids 0, 1 and 2 are begin, end and pad");
    }
    return {};
  }

  Result<void> merges(const Json& root) {
    const auto list = array(*root.find("model"), "model.", "merges");
    if (!list) return list.error();
    const auto& items = (*list)->items;
    if (items.size() >= size_t(kMostTokenIds)) {
      return wrong("model.merges", "has " + std::to_string(items.size()) + " entries",
                   "at most " + std::to_string(kMostTokenIds - 1));
    }
    file_.merges.reserve(items.size());
    std::vector<uint64_t> order;  // left (20 bits), right (20 bits), rank (24 bits)
    order.reserve(items.size());
    const auto key = [](size_t rank) { return "model.merges[" + std::to_string(rank) + "]"; };
    std::string result;
    for (size_t rank = 0; rank < items.size(); ++rank) {
      const Json& item = items[rank];
      const auto parts = pair_of(item);
      if (!parts) return wrong(key(rank), "is " + shown(item), "expected \"left right\" or [\"left\", \"right\"]");
      result.assign(parts->first).append(parts->second);
      const auto left = base_.find(parts->first), right = base_.find(parts->second), whole = base_.find(result);
      if (!left || !right || !whole) {
        return wrong(key(rank), "is " + shown(item), "both parts and their union must be in model.vocab");
      }
      order.push_back(uint64_t(*left) << 44 | uint64_t(*right) << 24 | rank);
      file_.merges.push_back({*left, *right, *whole});
    }
    std::sort(order.begin(), order.end());
    const auto same_pair = [](uint64_t a, uint64_t b) { return a >> 24 == b >> 24; };
    if (const auto twice = std::adjacent_find(order.begin(), order.end(), same_pair); twice != order.end()) {
      const size_t rank = *(twice + 1) & 0xFFFFFF;
      return wrong(key(rank), "is " + shown(items[rank]) + ", which is there already", "every pair once");
    }
    return {};
  }

  static std::optional<std::pair<std::string_view, std::string_view>> pair_of(const Json& item) {
    if (item.is_string()) {
      const std::string_view text = item.text;
      const size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) return {};
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
    if (!item.is_array() || item.items.size() != 2 || !item.items[0].is_string() || !item.items[1].is_string())
      return {};
    return std::pair<std::string_view, std::string_view>(item.items[0].text, item.items[1].text);
  }

  std::string where_;
  TokenizerFile file_;
  std::unordered_map<std::string, Added> added_;
  StringTable base_{0};  // by spelling, byte alphabet only; keys lie in the JSON tree
};

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view json, std::string_view where) {
  const auto root = parse_json(json, where);
  if (!root) return root.error();
  return Reader(where).read(*root);
}

}  // namespace fathom
