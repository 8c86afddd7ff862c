// fathom/recipe/answer_patterns.h
// What the answer parser looks for in one state: a handful of byte strings, followed in parallel as the bytes arrive.
// The one that completes first wins, among those that complete at one byte the first of the list. Cost: a table look-up
// for a byte at which nothing begins, one comparison for each pattern else (Knuth, Morris and Pratt: nothing is read
// twice). Source: spec/recipe.md 8.1.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::recipe {

/// Where bytes came from. A token's bytes spell a special token only when they are that token: under strict what a
/// model writes letter by letter is text (docs/recipe-findings.md).
enum class Spelling : uint8_t {
  text,      // as a string: may be anything
  ordinary,  // an ordinary token: no part of a special token
  special    // an added token: nothing else
};

/// What follows from a match; the parser's switch says what it does.
enum class Effect : uint8_t {
  stop,
  open_fence,
  open_json,
  close_fence,
  open_calls,
  end_thinking,
  begin_call,
  announce,
  begin_parameter,
  close_call,
  end_key,
  begin_string,
  begin_raw,
  end_value,
  end_block,
  invoke_tag,
  invoke_name,
  parameter_tag,
  parameter_name,
  end_skipped_call,
  end_skipped_value,
};

struct AnswerPattern {
  std::string bytes;
  Effect effect;
  int number = 0;                             // which stop sequence
  bool takes_newlines = false;                // the run of `\n` before a match belongs to it
  size_t special_begin = 0, special_end = 0;  // these bytes are a special token
  std::vector<uint32_t> shorter;              // [k]: the longest prefix that also ends the first k bytes
};

/// The patterns of one state, and how far each has come.
class PatternSet {
 public:
  void add(AnswerPattern pattern);
  /// Forgets all beginnings.
  void restart();
  /// As if the bytes just read had ended in `prefix`: patterns that begin with it have it behind them.
  void resume_after(std::string_view prefix);

  /// The first position from `at` on that needs a step; bytes.size() when none does.
  size_t next(std::string_view bytes, size_t at) const {
    if (begun_) return at;
    while (at < bytes.size() && !first_[uint8_t(bytes[at])]) ++at;
    return at;
  }
  /// Takes one byte. The pattern that it completes, or nullptr.
  const AnswerPattern* step(char byte, Spelling spelling);

  /// How many of the last bytes may still become part of a match.
  size_t held() const;
  /// Bytes of the match that step() just gave.
  size_t match_bytes() const { return match_bytes_; }

 private:
  std::vector<AnswerPattern> patterns_;
  struct Progress {
    size_t bytes = 0;     // of the pattern, read
    size_t newlines = 0;  // in the run before them, of a pattern that takes it
  };
  std::vector<Progress> progress_;
  std::array<bool, 256> first_ = {};
  bool begun_ = false;  // a pattern has, or a run of newlines
  size_t match_bytes_ = 0;
};

}  // namespace fathom::recipe
