// fathom/tokenizer/stages/added_tokens.h
// Finds added tokens in raw text: the leftmost, and the longest among those that begin there, whatever stands around.
// A trie of bytes; the longest spelling bounds what is read at one place, so time is linear in the text.
// Source: spec/tokenizer.md 2.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom {

class AddedTokens {
 public:
  struct Match {
    size_t begin, end;  // bytes of the text
    int32_t id;
  };

  AddedTokens() = default;
  /// Spellings are distinct and not empty; they are not kept.
  explicit AddedTokens(std::span<const std::pair<std::string_view, int32_t>> tokens);

  /// The first match that begins at `from` or later.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Node {
    uint32_t first_edge = 0, edges = 0;
    int32_t id = -1;
  };
  struct Edge {
    char byte;
    uint32_t node;
  };
  const Node* step(const Node& node, char byte) const;

  std::vector<Node> nodes_;  // [0] is the root
  std::vector<Edge> edges_;  // of each node, by byte
  std::array<bool, 256> may_begin_{};
};

}  // namespace fathom
