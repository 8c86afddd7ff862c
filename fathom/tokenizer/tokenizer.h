// fathom/tokenizer/tokenizer.h
// Text <-> token ids of the DeepSeek V4 family: added tokens ("<｜User｜>"), a split into pieces, byte-level BPE within
// a piece. Reads tokenizer.json; a file that would have to be read in another way is refused. Speed:
// docs/benchmarks.md.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"

namespace fathom {

/// Bytes [begin, end) of a prompt that are one special token by their exact spelling.
struct SpecialRange {
  int64_t begin;
  int64_t end;
};

enum class SpecialTokens { keep, skip };

/// Immutable but for a cache inside that is safe to share: any number of threads may use one tokenizer at once. Moves,
/// does not copy. Memory: the published V4 file takes about 12 MB, the miniature 3 MB.
///
/// Text is UTF-8. Ill-formed bytes are encoded as if each ill-formed part were U+FFFD, as a decoder with replacement
/// would have read them; a caller that would rather refuse them asks `valid_utf8_prefix` first.
class Tokenizer {
 public:
  /// The three spellings that every file of the family gives these ids.
  static constexpr int32_t kBegin = 0, kEnd = 1, kPad = 2;

  /// Errors: those of read_file; bad_input with the JSON key that is wrong or differs (spec/tokenizer.md 7).
  static Result<Tokenizer> open(const std::string& path);
  /// The same from memory; `where` names the source in errors.
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Plain encoding: added tokens are recognised anywhere, as in untrusted-text-free uses (evaluation, tools).
  /// Nothing is put in front or behind. Cost: linear in the text but for O(n log n) within one piece.
  std::vector<int32_t> encode(std::string_view text) const;

  /// No added token is recognised: "<think>" is five ordinary tokens or so.
  std::vector<int32_t> encode_plain(std::string_view text) const;

  /// Prompt encoding: each range is the added token of that exact spelling, each text between ranges is encoded on its
  /// own, plainly, so that a user cannot type a special token. Ranges ascend and do not overlap.
  /// Errors: bad_input when a spelling is not in the added vocabulary; out_of_range when ranges do not fit the text.
  Result<std::vector<int32_t>> encode(std::string_view text, std::span<const SpecialRange> ranges) const;

  /// Text of the ids; ill-formed UTF-8 is U+FFFD. Ids that are not of this tokenizer add nothing. `skip` leaves out the
  /// tokens that the file flags special (role and thinking tokens are not; end is).
  std::string decode(std::span<const int32_t> ids, SpecialTokens special = SpecialTokens::keep) const;

  /// The bytes of one token, perhaps part of a character; empty for an unknown id. Valid while the tokenizer lives.
  std::string_view bytes_of(int32_t id) const;

  /// How log-probabilities name a token: its text, or every byte as \xNN when it is not valid UTF-8.
  std::string token_text(int32_t id) const;

  /// The spelling in tokenizer.json ("Ġthe", "<｜User｜>"); empty for an unknown id.
  std::string spelling_of(int32_t id) const;

  /// The token of that spelling in tokenizer.json, added or not.
  std::optional<int32_t> id_of(std::string_view spelling) const;
  /// The added token of that spelling.
  std::optional<int32_t> added_id_of(std::string_view spelling) const;

  /// Largest id + 1 (129,280). An id below may be unused: then it has no bytes.
  int32_t size() const;
  bool is_known(int32_t id) const;
  bool is_added(int32_t id) const;
  /// Flagged special in the file: what SpecialTokens::skip leaves out.
  bool is_special(int32_t id) const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

/// Length in bytes of the longest prefix of `text` that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);

}  // namespace fathom
