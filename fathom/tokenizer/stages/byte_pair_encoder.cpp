#include "fathom/tokenizer/stages/byte_pair_encoder.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace fathom {
namespace {

constexpr uint64_t pair_key(int32_t left, int32_t right) { return uint64_t(left) << 20 | uint64_t(right); }
constexpr uint64_t spread(uint64_t key) { return key * 0x9E3779B97F4A7C15u; }  // 2^64 / golden ratio

}  // namespace

BytePairEncoder::BytePairEncoder(const std::array<int32_t, 256>& byte_ids, std::span<const TokenizerFile::Merge> merges)
    : byte_ids_(byte_ids) {
  const size_t slots = std::bit_ceil(std::max<size_t>(2 * merges.size(), 16));
  shift_ = 64 - std::countr_zero(slots);
  slots_.assign(slots, kEmpty);
  results_.reserve(merges.size());
  for (const auto& merge : merges) {
    const uint64_t key = pair_key(merge.left, merge.right);
    size_t at = spread(key) >> shift_;
    while (slots_[at] != kEmpty) at = (at + 1) & (slots - 1);
    slots_[at] = key << 24 | results_.size();
    results_.push_back(merge.result);
  }
  byte_ranks_.reserve(256 * 256);
  for (const int32_t left : byte_ids_) {
    for (const int32_t right : byte_ids_) byte_ranks_.push_back(rank_of(left, right));
  }
}

int32_t BytePairEncoder::rank_of(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (size_t at = spread(key) >> shift_;; at = (at + 1) & (slots_.size() - 1)) {
    const uint64_t slot = slots_[at];
    if (slot >> 24 == key) return int32_t(slot & 0xFFFFFF);
    if (slot == kEmpty) return kNoRank;
  }
}

int64_t BytePairEncoder::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.size() > kShortPiece) return encode_long(piece, out);
  encode_short(piece, out);
  return 0;
}

void BytePairEncoder::encode_short(std::string_view piece, std::vector<int32_t>& out) const {
  // pairs[i] is rank << 8 | i for the token at i and the one after it: one minimum gives the lowest rank and, of
  // equals, the leftmost. Tokens keep the place of their first byte; `next` skips over what was joined.
  static_assert(kShortPiece < 256);
  constexpr int32_t kNone = INT32_MAX;
  std::array<int32_t, kShortPiece> ids, pairs;
  std::array<uint8_t, kShortPiece> next, previous;
  const size_t n = piece.size();
  const auto pair_at = [](int32_t rank, size_t i) { return rank == kNoRank ? kNone : rank << 8 | int32_t(i); };
  for (size_t i = 0; i < n; ++i) {
    ids[i] = byte_ids_[uint8_t(piece[i])];
    pairs[i] = i + 1 < n ? pair_at(rank_of_bytes(piece[i], piece[i + 1]), i) : kNone;
    next[i] = uint8_t(i + 1);
    previous[i] = uint8_t(i - 1);
  }
  while (true) {
    int32_t best = kNone;
    for (size_t i = 0; i + 1 < n; ++i) best = std::min(best, pairs[i]);
    if (best == kNone) break;
    const size_t i = size_t(best & 0xFF), joined = next[i], after = next[joined];
    ids[i] = results_[size_t(best >> 8)];
    pairs[joined] = kNone;
    next[i] = uint8_t(after);
    if (after < n) {
      previous[after] = uint8_t(i);
      pairs[i] = pair_at(rank_of(ids[i], ids[after]), i);
    } else {
      pairs[i] = kNone;
    }
    if (i > 0) {
      const size_t before = previous[i];
      pairs[before] = pair_at(rank_of(ids[before], ids[i]), before);
    }
  }
  for (size_t i = 0; i < n; i = next[i]) out.push_back(ids[i]);
}

int64_t BytePairEncoder::encode_long(std::string_view piece, std::vector<int32_t>& out) const {
  struct Node {
    int32_t id;
    int32_t rank;  // of this token and the next; kNoRank also for a token that was joined to the one before
    uint32_t previous, next;
  };
  const uint32_t n = uint32_t(piece.size());
  std::vector<Node> nodes(n);
  std::vector<uint64_t> pairs;  // rank << 32 | place
  pairs.reserve(n);
  const auto pair_at = [](int32_t rank, uint32_t place) { return uint64_t(rank) << 32 | place; };
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t rank = i + 1 < n ? rank_of_bytes(piece[i], piece[i + 1]) : kNoRank;
    nodes[i] = {byte_ids_[uint8_t(piece[i])], rank, i - 1, i + 1};
    if (rank != kNoRank) pairs.push_back(pair_at(rank, i));
  }
  int64_t operations = int64_t(pairs.size());
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue({}, std::move(pairs));
  const auto update = [&](uint32_t place) {
    Node& node = nodes[place];
    node.rank = node.next < n ? rank_of(node.id, nodes[node.next].id) : kNoRank;
    if (node.rank == kNoRank) return;
    queue.push(pair_at(node.rank, place));
    ++operations;
  };
  while (!queue.empty()) {
    const uint64_t pair = queue.top();
    queue.pop();
    ++operations;
    const uint32_t place = uint32_t(pair);
    Node& node = nodes[place];
    if (node.rank != int32_t(pair >> 32)) continue;  // the pair has changed since it was put in
    Node& joined = nodes[node.next];
    node.id = results_[size_t(node.rank)];
    joined.rank = kNoRank;
    node.next = joined.next;
    if (node.next < n) nodes[node.next].previous = place;
    update(place);
    if (place > 0) update(node.previous);
  }
  for (uint32_t i = 0; i < n; i = nodes[i].next) out.push_back(nodes[i].id);
  return operations;
}

}  // namespace fathom
