// fathom/grammar/compile/vocabulary.h
// The tokens as the compiler and the matchers see them: their bytes, and which end an answer. Made once, shared by all.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::grammar {

/// A handle of shared, immutable parts: cheap to copy, safe to share. Takes 0.1 s and about 20 MB for 129,280 tokens.
///
/// Added tokens spelt `<｜…｜>` or `<|…|>` steer a conversation (roles, images, ends): no constrained text contains
/// them. Others (`<think>`, `</think>`, `｜DSML｜`) count as the bytes of their spelling, as any token does.
class Vocabulary {
 public:
  /// `stop_ids` may be generated where the constraint is fulfilled. Errors: out_of_range for an id beyond the
  /// tokenizer.
  static Result<Vocabulary> make(const Tokenizer& tokenizer, std::vector<int32_t> stop_ids);
  /// From the bytes of tokens; an empty one is never generated.
  static Result<Vocabulary> make(std::vector<std::string> tokens, std::vector<int32_t> stop_ids);

  int32_t size() const;
  std::span<const int32_t> stop_ids() const;
  bool is_stop(int32_t id) const;
  /// Empty for ids that no constrained text contains.
  std::string_view bytes_of(int32_t id) const;
  /// 32-bit words of a mask: one bit a token, token 0 the lowest of word 0.
  size_t mask_words() const { return (size_t(size()) + 31) / 32; }

  struct Parts;  // vocabulary_parts.h: only for this folder
  const Parts& parts() const { return *parts_; }

 private:
  explicit Vocabulary(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace fathom::grammar
