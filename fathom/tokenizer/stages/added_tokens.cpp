#include "fathom/tokenizer/stages/added_tokens.h"

#include <map>

namespace fathom {

AddedTokens::AddedTokens(std::span<const std::pair<std::string_view, int32_t>> tokens) {
  std::vector<std::map<char, uint32_t>> children(1);
  nodes_.emplace_back();
  for (const auto& [spelling, id] : tokens) {
    uint32_t at = 0;
    for (const char byte : spelling) {
      const auto [child, fresh] = children[at].emplace(byte, uint32_t(nodes_.size()));
      at = child->second;
      if (fresh) {
        nodes_.emplace_back();
        children.emplace_back();
      }
    }
    nodes_[at].id = id;
    may_begin_[uint8_t(spelling.front())] = true;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].first_edge = uint32_t(edges_.size());
    nodes_[i].edges = uint32_t(children[i].size());
    for (const auto& [byte, node] : children[i]) edges_.push_back({byte, node});
  }
}

const AddedTokens::Node* AddedTokens::step(const Node& node, char byte) const {
  for (uint32_t e = node.first_edge; e < node.first_edge + node.edges; ++e) {
    if (edges_[e].byte == byte) return &nodes_[edges_[e].node];
  }
  return nullptr;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!may_begin_[uint8_t(text[begin])]) continue;
    std::optional<Match> longest;
    const Node* node = &nodes_[0];
    for (size_t i = begin; i < text.size(); ++i) {
      node = step(*node, text[i]);
      if (node == nullptr) break;
      if (node->id >= 0) longest = Match{begin, i + 1, node->id};
    }
    if (longest) return longest;
  }
  return {};
}

}  // namespace fathom
