#include "fathom/tokenizer/tokenizer.h"

#include <array>
#include <utility>

#include "fathom/base/mapped_file.h"
#include "fathom/tokenizer/stages/added_tokens.h"
#include "fathom/tokenizer/stages/byte_alphabet.h"
#include "fathom/tokenizer/stages/byte_pair_encoder.h"
#include "fathom/tokenizer/stages/piece_cache.h"
#include "fathom/tokenizer/stages/pre_tokenizer.h"
#include "fathom/tokenizer/stages/string_table.h"
#include "fathom/tokenizer/stages/tokenizer_file.h"
#include "fathom/tokenizer/unicode/utf8.h"

namespace fathom {
namespace {

using Kind = TokenizerFile::Kind;

// 16,384 entries = 1 MB: fits a core's second-level cache; more gave nothing (docs/benchmarks.md).
constexpr int kLog2CacheEntries = 14;

// Longer than any real text; sizes within a piece are 32 bits.
constexpr size_t kLongestText = size_t(INT32_MAX);

std::array<int32_t, 256> byte_ids(const TokenizerFile& file) {
  std::array<int32_t, 256> ids{};
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    const auto& token = file.tokens[id];
    if (token.kind == Kind::base && token.bytes.size() == 1) ids[uint8_t(token.bytes[0])] = int32_t(id);
  }
  return ids;
}

}  // namespace

struct Tokenizer::Parts {
  explicit Parts(const TokenizerFile& file)
      : splitter(file.digits),
        bpe(byte_ids(file), file.merges),
        added_ids(file.tokens.size()),
        base_ids(file.tokens.size()),
        cache(kLog2CacheEntries) {
    size_t bytes = 0;
    for (const auto& token : file.tokens) bytes += token.bytes.size();
    pool.reserve(bytes);
    offsets.push_back(0);
    for (const auto& token : file.tokens) {
      pool += token.bytes;
      offsets.push_back(uint32_t(pool.size()));
      kinds.push_back(token.kind);
    }
    std::array<std::vector<std::pair<std::string_view, int32_t>>, 2> spellings;
    for (int32_t id = 0; id < int32_t(kinds.size()); ++id) {
      if (kinds[size_t(id)] == Kind::base) base_ids.insert(bytes_of(id), id);
      if (kinds[size_t(id)] > Kind::base) spellings[file.tokens[size_t(id)].normalized].emplace_back(bytes_of(id), id);
    }
    added_ids = StringTable(spellings[0].size() + spellings[1].size());
    for (size_t pass = 0; pass < added.size(); ++pass) {
      added[pass] = AddedTokens(spellings[pass]);
      for (const auto& [spelling, id] : spellings[pass]) added_ids.insert(spelling, id);
    }
  }

  std::string_view bytes_of(int32_t id) const {
    const uint32_t begin = offsets[size_t(id)];
    return std::string_view(pool).substr(begin, offsets[size_t(id) + 1] - begin);
  }

  void encode_piece(std::string_view piece, std::vector<int32_t>& out) const {
    if (piece.size() > PieceCache::kLongestPiece) {
      bpe.encode(piece, out);
      return;
    }
    const PieceCache::Key key(piece);
    std::array<int32_t, PieceCache::kMostTokens> ids;
    if (const size_t found = cache.find(key, ids)) {
      out.insert(out.end(), ids.begin(), ids.begin() + ptrdiff_t(found));
      return;
    }
    const size_t before = out.size();
    bpe.encode(piece, out);
    if (const size_t tokens = out.size() - before; tokens <= PieceCache::kMostTokens) {
      cache.put(key, std::span(out).subspan(before, tokens));
    }
  }

  /// Sections 3 and 4 only. `text` is valid UTF-8.
  void encode_plain(std::string_view text, std::vector<int32_t>& out) const {
    splitter.split(text, [&](std::string_view piece) { encode_piece(piece, out); });
  }

  /// Section 2 from `pass` on: added tokens, and the text between them.
  void encode_added(std::string_view text, size_t pass, std::vector<int32_t>& out) const {
    if (pass == added.size()) return encode_plain(text, out);
    size_t done = 0;
    while (const auto match = added[pass].find(text, done)) {
      encode_added(text.substr(done, match->begin - done), pass + 1, out);
      out.push_back(match->id);
      done = match->end;
    }
    encode_added(text.substr(done), pass + 1, out);
  }

  std::string pool;               // bytes of all tokens, by id
  std::vector<uint32_t> offsets;  // [ids + 1] into pool
  std::vector<Kind> kinds;
  PreTokenizer splitter;
  BytePairEncoder bpe;
  // The package looks for tokens flagged `normalized` in what the others have left, so a shorter one of these wins over
  // a longer one of those. Our normalizer does nothing, but the order stays.
  std::array<AddedTokens, 2> added;
  StringTable added_ids{0}, base_ids;  // keys lie in pool
  mutable PieceCache cache;
};

namespace {

/// `text`, or a copy with replacements in `copy` when it is ill-formed.
std::string_view well_formed(std::string_view text, std::string& copy) {
  check(text.size() <= kLongestText, "a text of more than 2^31 - 1 bytes");
  if (unicode::valid_utf8_prefix(text) == text.size()) return text;
  unicode::append_replacing(copy, text);
  return copy;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::open(const std::string& path) {
  const auto json = read_file(path);
  if (!json) return json.error();
  return parse(*json, path);
}

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view where) {
  const auto file = read_tokenizer_file(tokenizer_json, where);
  if (!file) return file.error();
  return Tokenizer(std::make_unique<const Parts>(*file));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::string copy;
  text = well_formed(text, copy);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  parts_->encode_added(text, 0, ids);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_plain(std::string_view text) const {
  std::string copy;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  parts_->encode_plain(well_formed(text, copy), ids);
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, std::span<const SpecialRange> ranges) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  int64_t done = 0;
  const auto plain_until = [&](int64_t end) {
    std::string copy;
    parts_->encode_plain(well_formed(text.substr(size_t(done), size_t(end - done)), copy), ids);
  };
  for (const SpecialRange& range : ranges) {
    if (range.begin < done || range.end < range.begin || range.end > int64_t(text.size())) {
      return Error{
          ErrorCode::out_of_range, "special range " + std::to_string(range.begin) + " to " + std::to_string(range.end),
          "a prompt of " + std::to_string(text.size()) + " bytes", "ranges ascend, do not overlap and end within it"};
    }
    plain_until(range.begin);
    const std::string_view spelling = text.substr(size_t(range.begin), size_t(range.end - range.begin));
    const auto id = added_id_of(spelling);
    if (!id) {
      std::string name;
      unicode::append_replacing(name, spelling);
      return Error{ErrorCode::bad_input, "special token \"" + name + "\" is not in the added vocabulary",
                   "tokenizer.json", "use the tokenizer of the model that the prompt is written for"};
    }
    ids.push_back(*id);
    done = range.end;
  }
  plain_until(int64_t(text.size()));
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, SpecialTokens special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (special == SpecialTokens::skip && is_special(id)) continue;
    bytes += bytes_of(id);
  }
  if (unicode::valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  std::string text;
  unicode::append_replacing(text, bytes);
  return text;
}

std::string_view Tokenizer::bytes_of(int32_t id) const {
  return id < 0 || id >= size() ? std::string_view() : parts_->bytes_of(id);
}

std::string Tokenizer::token_text(int32_t id) const {
  const std::string_view bytes = bytes_of(id);
  if (unicode::valid_utf8_prefix(bytes) == bytes.size()) return std::string(bytes);
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const char b : bytes) text += {'\\', 'x', kHex[uint8_t(b) >> 4], kHex[uint8_t(b) & 15]};
  return text;
}

std::string Tokenizer::spelling_of(int32_t id) const {
  return is_added(id) ? std::string(bytes_of(id)) : spelling_of_bytes(bytes_of(id));
}

std::optional<int32_t> Tokenizer::added_id_of(std::string_view spelling) const {
  return parts_->added_ids.find(spelling);
}

std::optional<int32_t> Tokenizer::id_of(std::string_view spelling) const {
  if (const auto added = added_id_of(spelling)) return added;
  if (unicode::valid_utf8_prefix(spelling) != spelling.size()) return {};
  const auto bytes = bytes_of_spelling(spelling);
  return bytes ? parts_->base_ids.find(*bytes) : std::nullopt;
}

int32_t Tokenizer::size() const { return int32_t(parts_->kinds.size()); }

bool Tokenizer::is_known(int32_t id) const {
  return id >= 0 && id < size() && parts_->kinds[size_t(id)] != Kind::absent;
}

bool Tokenizer::is_added(int32_t id) const { return is_known(id) && parts_->kinds[size_t(id)] > Kind::base; }

bool Tokenizer::is_special(int32_t id) const { return is_known(id) && parts_->kinds[size_t(id)] == Kind::special; }

size_t valid_utf8_prefix(std::string_view text) { return unicode::valid_utf8_prefix(text); }

}  // namespace fathom
