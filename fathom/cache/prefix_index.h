// fathom/cache/prefix_index.h
// Which block holds which prefix. One entry a findable block: its key, the block before it, its tokens. A hit is
// confirmed from the root on: root, parent, tokens and images of every block are compared, so a collision of the hash
// costs a hit and never gives one prefix to another (cases kv-04, kv-05). Blocks in the index are full and never
// written again. The index names blocks; whether they are in use, and who goes first, BlockPool knows. What
// sequences do with it: prefix_sharing.h.                                        Source: spec/engine.md R-18
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "fathom/cache/block_pool.h"
#include "fathom/cache/key_table.h"
#include "fathom/cache/prefix_key.h"

namespace fathom {

enum class CacheTier { device, ram, disk, shared };
inline constexpr int kCacheTiers = 4;
const char* name_of(CacheTier tier);

/// Of one account. Tokens of prompts and hits count once a request: when it is admitted.
struct PrefixStatistics {
  int64_t prompts = 0, prompt_tokens = 0;
  int64_t repeatable_prompts = 0;                    // long enough for a hit that is used
  int64_t hits = 0;                                  // prompts that used one
  std::array<int64_t, kCacheTiers> hit_tokens{};     // by the tier that the blocks came from
  int64_t published = 0, deduplicated = 0;           // blocks that became findable; that another had published before
  int64_t evicted = 0, expired = 0, collisions = 0;  // blocks that went for space, for age; keys with other content

  PrefixStatistics& operator+=(const PrefixStatistics& more);
};
/// A line for the operator when caching does nothing (case kv-02): a hundred prompts that were long enough, and not one
/// hit. Nothing else.
std::optional<std::string> warning_of(const PrefixStatistics& statistics);

/// What a sequence knows of its own prefix. A value.
struct PrefixChain {
  int32_t root = 0;             // of PrefixIndex::open_root; 0: this sequence is not cached
  std::vector<PrefixKey> keys;  // of its first full blocks, as far as they were needed
  std::vector<ImageSpan> images;
  int32_t published = 0;  // its first blocks that are in the index
  int32_t seams = 0;      // bounded encoder replays that its newest block descends from; 0: exact
  bool closed = false;    // nothing more of it is published: a collision, or a branch forked too early
};

/// The longest prefix that is there. A value; holds no references: nothing may be evicted before it is attached.
struct PrefixHit {
  std::vector<int32_t> blocks;
  int32_t seams = 0;
  int64_t tokens() const { return int64_t(blocks.size()) * kBlockTokens; }
};

/// Not thread-safe: the engine's thread owns it. 512 bytes a block for its tokens, about 60 for the rest, in host
/// memory.
class PrefixIndex {
 public:
  explicit PrefixIndex(int32_t blocks);

  /// A number for this root, the same for the same root and hash; one user more. `account` (of the pool's IdleBlocks)
  /// bears its blocks: the one that opened it first.
  int32_t open_root(const PrefixRoot& root, KeyHash hash, int32_t account);
  /// One user less; the number is given out again when no user and no block is left.
  void close_root(int32_t root);
  int32_t account_of(int32_t root) const { return roots_[size_t(root)].account; }
  KeyHash hash_of(int32_t root) const { return roots_[size_t(root)].hash; }
  int32_t account_of_block(int32_t block) const { return account_of(entries_[size_t(block)].root); }
  bool exact_root(int32_t root) const { return roots_[size_t(root)].exact; }
  /// What tells this root from every other one.
  std::span<const uint8_t> identity_of(int32_t root) const { return roots_[size_t(root)].framed; }

  /// Keys of the first `blocks` full blocks of `ids`. Not more than there are.
  void extend_keys(PrefixChain& chain, std::span<const int32_t> ids, int64_t blocks) const;

  /// The longest chain of blocks that hold the beginning of this prompt: at most floor((length - 1) / 128), so that one
  /// row is left to compute. `exact_only`: without seams. About 0.2 us a block with XXH3, 0.8 with SHA-256.
  PrefixHit lookup(PrefixChain& chain, std::span<const int32_t> prompt, bool exact_only);

  /// The block with this key, or 0. Its content is not compared: see matches.
  int32_t find(const PrefixKey& key) const { return table_.find(key); }
  /// Whether `block` holds block number `number` of the sequence, behind `parent` (0: it is the first).
  bool matches(int32_t block, int32_t parent, const PrefixChain& chain, std::span<const int32_t> ids,
               int64_t number) const;
  int32_t seams_of(int32_t block) const { return entries_[size_t(block)].seams; }
  bool has_children(int32_t block) const { return entries_[size_t(block)].children > 0; }

  /// Block number `number` of the sequence becomes findable; `parent`, the one before it, is so already.
  void insert(int32_t block, int32_t parent, const PrefixChain& chain, std::span<const int32_t> ids, int64_t number);
  /// `next`, with the same content and `seams`, takes the place of `block`, which has no children and no pins.
  void replace(int32_t block, int32_t next, int32_t seams);
  /// No findable block descends from it.
  void remove(int32_t block);

  /// A pinned block has a reference that keeps it; so many blocks are pinned at least once.
  void pin(int32_t block);
  void unpin(int32_t block);
  bool pinned(int32_t block) const { return entries_[size_t(block)].pins > 0; }
  int32_t pinned_blocks() const { return pinned_blocks_; }

  int64_t size() const { return table_.size(); }
  PrefixStatistics& statistics(int32_t account);
  /// The account is somebody else's from now on; what it counted stays in total().
  void restart_statistics(int32_t account);
  PrefixStatistics total() const;

  /// Entries and findable blocks are the same; keys follow from their parents; children, roots and pins are counted
  /// right; a parent has all references of its children, and goes after them. Linear. Errors: failed.      R-22
  Result<void> verify(const BlockPool& pool) const;

 private:
  struct Entry {
    PrefixKey key;
    int32_t root = 0;    // 0: no entry
    int32_t parent = 0;  // block; 0: the first of its prefix
    int32_t number = 0;  // in its prefix
    int32_t children = 0;
    int32_t seams = 0;
    int32_t pins = 0;
    bool images = false;  // their digests are in images_
  };
  struct Root {
    std::vector<uint8_t> framed;
    KeyHash hash = nullptr;
    PrefixKey key;
    int32_t account = 0;
    int32_t users = 0, blocks = 0;
    bool exact = false;
  };
  using Digests = std::vector<std::array<uint8_t, 32>>;
  std::span<const int32_t> tokens_of(int32_t block) const {
    return {tokens_.get() + size_t(block) * kBlockTokens, size_t(kBlockTokens)};
  }
  bool same_images(int32_t block, std::span<const ImageSpan> images) const;
  void retire_if_unused(int32_t root);

  std::vector<Entry> entries_;         // by block
  std::unique_ptr<int32_t[]> tokens_;  // by block, untouched until used
  std::unordered_map<int32_t, Digests> images_;
  KeyTable table_;
  std::vector<Root> roots_;                           // 0 is none
  std::unordered_map<std::string, int32_t> root_of_;  // by identity and hash
  std::vector<int32_t> unused_roots_;
  std::vector<PrefixStatistics> statistics_;
  PrefixStatistics former_;  // of accounts that were given to others
  int32_t pinned_blocks_ = 0;
};

}  // namespace fathom
