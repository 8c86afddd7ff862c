#include "fathom/cache/prefix_index.h"

#include <algorithm>
#include <utility>

#include "fathom/base/check.h"

namespace fathom {
namespace {

std::string name_of_root(std::span<const uint8_t> framed, KeyHash hash) {
  std::string out(framed.begin(), framed.end());
  return out + std::to_string(reinterpret_cast<uintptr_t>(hash));
}

}  // namespace

const char* name_of(CacheTier tier) {
  constexpr const char* kNames[kCacheTiers] = {"device", "ram", "disk", "shared"};
  return kNames[int(tier)];
}

PrefixStatistics& PrefixStatistics::operator+=(const PrefixStatistics& more) {
  prompts += more.prompts;
  prompt_tokens += more.prompt_tokens;
  repeatable_prompts += more.repeatable_prompts;
  hits += more.hits;
  for (size_t tier = 0; tier < hit_tokens.size(); ++tier) hit_tokens[tier] += more.hit_tokens[tier];
  published += more.published;
  deduplicated += more.deduplicated;
  evicted += more.evicted;
  expired += more.expired;
  collisions += more.collisions;
  return *this;
}

std::optional<std::string> warning_of(const PrefixStatistics& statistics) {
  constexpr int64_t kEnough = 100;
  if (statistics.repeatable_prompts < kEnough || statistics.hits > 0) return {};
  return "none of " + std::to_string(statistics.repeatable_prompts) +
         " prompts of more than 256 tokens began like an earlier one (prefix cache): when they should have, look for a "
         "date or an id at their beginning, or for salts that change";
}

PrefixIndex::PrefixIndex(int32_t blocks)
    : entries_(size_t(blocks) + 1),
      tokens_(std::make_unique_for_overwrite<int32_t[]>((size_t(blocks) + 1) * kBlockTokens)),
      table_(blocks),
      roots_(1) {}

int32_t PrefixIndex::open_root(const PrefixRoot& root, KeyHash hash, int32_t account) {
  std::vector<uint8_t> framed = framed_root(root);
  const auto [at, is_new] = root_of_.try_emplace(name_of_root(framed, hash), int32_t(roots_.size()));
  if (is_new) {
    if (unused_roots_.empty()) {
      roots_.emplace_back();
    } else {
      at->second = unused_roots_.back();
      unused_roots_.pop_back();
    }
    const PrefixKey key = hash(framed);
    roots_[size_t(at->second)] = {std::move(framed), hash, key, account, 0, 0, root.replay == ReplayClass::exact};
  }
  ++roots_[size_t(at->second)].users;
  return at->second;
}

void PrefixIndex::close_root(int32_t root) {
  check(root > 0 && roots_[size_t(root)].users > 0, "a root is closed as often as it was opened");
  --roots_[size_t(root)].users;
  retire_if_unused(root);
}

// Salts may be as many as requests: a root that nobody can use again leaves nothing behind.
void PrefixIndex::retire_if_unused(int32_t root) {
  Root& at = roots_[size_t(root)];
  if (at.users > 0 || at.blocks > 0) return;
  root_of_.erase(name_of_root(at.framed, at.hash));
  at = {};
  unused_roots_.push_back(root);
}

void PrefixIndex::extend_keys(PrefixChain& chain, std::span<const int32_t> ids, int64_t blocks) const {
  check(chain.root > 0 && blocks * kBlockTokens <= int64_t(ids.size()), "keys are of full blocks under a root");
  const Root& root = roots_[size_t(chain.root)];
  for (int64_t i = int64_t(chain.keys.size()); i < blocks; ++i) {
    chain.keys.push_back(next_key(root.hash, i == 0 ? root.key : chain.keys.back(),
                                  ids.subspan(size_t(i * kBlockTokens), kBlockTokens),
                                  images_in(chain.images, i * kBlockTokens, kBlockTokens)));
  }
}

bool PrefixIndex::same_images(int32_t block, std::span<const ImageSpan> images) const {
  if (!entries_[size_t(block)].images) return images.empty();
  return std::ranges::equal(images_.at(block), images, {}, {}, &ImageSpan::digest);
}

bool PrefixIndex::matches(int32_t block, int32_t parent, const PrefixChain& chain, std::span<const int32_t> ids,
                          int64_t number) const {
  const Entry& entry = entries_[size_t(block)];
  return entry.root == chain.root && entry.parent == parent && entry.number == number &&
         std::ranges::equal(tokens_of(block), ids.subspan(size_t(number * kBlockTokens), kBlockTokens)) &&
         same_images(block, images_in(chain.images, number * kBlockTokens, kBlockTokens));
}

PrefixHit PrefixIndex::lookup(PrefixChain& chain, std::span<const int32_t> prompt, bool exact_only) {
  PrefixHit hit;
  if (chain.root == 0 || prompt.empty()) return hit;
  const int64_t most = (int64_t(prompt.size()) - 1) / kBlockTokens;
  for (int64_t i = 0; i < most; ++i) {
    extend_keys(chain, prompt, i + 1);
    const int32_t block = find(chain.keys[size_t(i)]);
    if (block == 0) break;
    if (!matches(block, i == 0 ? 0 : hit.blocks.back(), chain, prompt, i)) {
      ++statistics(account_of(chain.root)).collisions;
      break;
    }
    if (exact_only && seams_of(block) > 0) break;
    hit.blocks.push_back(block);
    hit.seams = seams_of(block);
  }
  return hit;
}

void PrefixIndex::insert(int32_t block, int32_t parent, const PrefixChain& chain, std::span<const int32_t> ids,
                         int64_t number) {
  Entry& entry = entries_[size_t(block)];
  Root& root = roots_[size_t(chain.root)];
  check(entry.root == 0, "a block holds one prefix");
  check(parent == 0 ? number == 0 : entries_[size_t(parent)].key == chain.keys[size_t(number - 1)],
        "a prefix is inserted from its beginning");
  check(!root.exact || chain.seams == 0, "what an exact mode computes is exact");
  const auto images = images_in(chain.images, number * kBlockTokens, kBlockTokens);
  entry = {chain.keys[size_t(number)], chain.root, parent, int32_t(number), 0, chain.seams, 0, !images.empty()};
  std::ranges::copy(ids.subspan(size_t(number * kBlockTokens), kBlockTokens),
                    tokens_.get() + size_t(block) * kBlockTokens);
  for (const ImageSpan& image : images) images_[block].push_back(image.digest);
  if (parent != 0) ++entries_[size_t(parent)].children;
  ++root.blocks;
  table_.insert(entry.key, block);
}

void PrefixIndex::replace(int32_t block, int32_t next, int32_t seams) {
  check(entries_[size_t(block)].root != 0 && entries_[size_t(next)].root == 0, "an entry moves to a block without one");
  // Children name their parent by its block, pins keep the very block.
  check(entries_[size_t(block)].pins == 0 && entries_[size_t(block)].children == 0, "a leaf that nobody needs moves");
  entries_[size_t(next)] = entries_[size_t(block)];
  entries_[size_t(next)].seams = seams;
  std::ranges::copy(tokens_of(block), tokens_.get() + size_t(next) * kBlockTokens);
  if (entries_[size_t(next)].images) {
    images_[next] = std::move(images_.at(block));
    images_.erase(block);
  }
  entries_[size_t(block)] = {};
  table_.assign(entries_[size_t(next)].key, next);
}

void PrefixIndex::remove(int32_t block) {
  Entry& entry = entries_[size_t(block)];
  check(entry.root != 0 && entry.children == 0 && entry.pins == 0, "children go before parents");
  if (entry.parent != 0) --entries_[size_t(entry.parent)].children;
  const int32_t root = entry.root;
  if (entry.images) images_.erase(block);
  table_.erase(entry.key);
  entry = {};
  --roots_[size_t(root)].blocks;
  retire_if_unused(root);
}

void PrefixIndex::pin(int32_t block) {
  check(entries_[size_t(block)].root != 0, "only a findable block is pinned");
  if (entries_[size_t(block)].pins++ == 0) ++pinned_blocks_;
}

void PrefixIndex::unpin(int32_t block) {
  check(entries_[size_t(block)].pins > 0, "a block is unpinned as often as it was pinned");
  if (--entries_[size_t(block)].pins == 0) --pinned_blocks_;
}

PrefixStatistics& PrefixIndex::statistics(int32_t account) {
  if (size_t(account) >= statistics_.size()) statistics_.resize(size_t(account) + 1);
  return statistics_[size_t(account)];
}

void PrefixIndex::restart_statistics(int32_t account) { former_ += std::exchange(statistics(account), {}); }

PrefixStatistics PrefixIndex::total() const {
  PrefixStatistics out = former_;
  for (const PrefixStatistics& one : statistics_) out += one;
  return out;
}

Result<void> PrefixIndex::verify(const BlockPool& pool) const {
  const auto wrong = [](const char* what, size_t block) {
    return Error{ErrorCode::failed, std::string("prefix index is inconsistent: ") + what,
                 "block " + std::to_string(block), ""};
  };
  std::vector<int32_t> children(entries_.size(), 0), references(entries_.size(), 0), blocks(roots_.size(), 0);
  int64_t entries = 0, pinned = 0, with_images = 0;
  for (size_t block = 1; block < entries_.size(); ++block) {
    const Entry& entry = entries_[block];
    const int32_t id = int32_t(block), parent = entry.parent;
    if ((entry.root != 0) != pool.findable(id)) return wrong("pool and index differ on whether it is findable", block);
    if (entry.root == 0) continue;
    ++entries;
    pinned += entry.pins > 0;
    with_images += entry.images;
    ++blocks[size_t(entry.root)];
    if (table_.find(entry.key) != id) return wrong("its key leads elsewhere", block);
    if (entry.pins > pool.references(id)) return wrong("it has more pins than references", block);
    const Root& root = roots_[size_t(entry.root)];
    if (root.exact && entry.seams > 0) return wrong("an exact prefix has seams", block);
    PrefixKey before = root.key;
    if (parent != 0) {
      const Entry& above = entries_[size_t(parent)];
      if (above.root != entry.root || above.number + 1 != entry.number)
        return wrong("its parent is gone or another's", block);
      if (above.seams > entry.seams) return wrong("it has fewer seams than its parent", block);
      const bool both_idle = pool.references(id) == 0 && pool.references(parent) == 0;
      if (both_idle && pool.idle().stamp_of(parent) < pool.idle().stamp_of(id))
        return wrong("it would go after its parent", block);
      before = above.key;
      ++children[size_t(parent)];
      references[size_t(parent)] += pool.references(id);
    } else if (entry.number != 0) {
      return wrong("it begins in the middle", block);
    }
    std::vector<ImageSpan> images;
    if (entry.images) {
      for (const auto& digest : images_.at(id)) images.push_back({0, 0, digest});
    }
    if (next_key(root.hash, before, tokens_of(id), images) != entry.key) return wrong("its key is another one", block);
  }
  for (size_t block = 1; block < entries_.size(); ++block) {
    if (entries_[block].children != children[block]) return wrong("its children are counted wrong", block);
    if (references[block] > pool.references(int32_t(block))) return wrong("a user of a child does not hold it", block);
  }
  for (size_t root = 1; root < roots_.size(); ++root) {
    if (roots_[root].blocks != blocks[root]) return wrong("its root counts other blocks", 0);
  }
  if (entries != table_.size() || pinned != pinned_blocks_ || with_images != int64_t(images_.size()))
    return wrong("the counts do not add up", 0);
  return {};
}

}  // namespace fathom
