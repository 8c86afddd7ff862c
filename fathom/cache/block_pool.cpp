#include "fathom/cache/block_pool.h"

namespace fathom {

BlockPool::BlockPool(int32_t count) : references_(size_t(count) + 1, 0), next_(size_t(count) + 1, 0) {
  for (int32_t id = 1; id <= count; ++id) next_[size_t(id)] = id < count ? id + 1 : 0;
  head_ = count > 0 ? 1 : 0;
  tail_ = count;
  free_count_ = count;
}

std::optional<int32_t> BlockPool::take() {
  if (head_ == 0) return {};
  const int32_t id = head_;
  head_ = next_[size_t(id)];
  if (head_ == 0) tail_ = 0;
  next_[size_t(id)] = 0;
  references_[size_t(id)] = 1;
  --free_count_;
  return id;
}

void BlockPool::add_reference(int32_t id) {
  check(id > 0 && id <= capacity() && references_[size_t(id)] > 0, "only a block in use gains a reference");
  ++references_[size_t(id)];
}

void BlockPool::release(int32_t id) {
  check(id > 0 && id <= capacity() && references_[size_t(id)] > 0, "only a block in use is released");
  if (--references_[size_t(id)] > 0) return;
  next_[size_t(id)] = 0;
  if (tail_ != 0) {
    next_[size_t(tail_)] = id;
  } else {
    head_ = id;
  }
  tail_ = id;
  ++free_count_;
}

Result<void> BlockPool::verify(std::span<const int32_t> users) const {
  const auto wrong = [](int32_t id, const std::string& what) {
    return Error{ErrorCode::failed, "block pool is inconsistent: " + what, "block " + std::to_string(id), ""};
  };
  std::vector<int32_t> counted(references_.size(), 0);
  for (const int32_t id : users) {
    if (id <= 0 || id > capacity()) return wrong(id, "a user names a block that does not exist");
    ++counted[size_t(id)];
  }
  std::vector<bool> free(references_.size(), false);
  int32_t length = 0;
  for (int32_t id = head_; id != 0; id = next_[size_t(id)]) {
    if (free[size_t(id)]) return wrong(id, "the free list has a cycle");
    free[size_t(id)] = true;
    ++length;
    if (next_[size_t(id)] == 0 && id != tail_) return wrong(id, "the free list does not end at its tail");
  }
  if (length != free_count_)
    return wrong(
        0, "the free list has " + std::to_string(length) + " blocks, its count says " + std::to_string(free_count_));
  for (int32_t id = 1; id <= capacity(); ++id) {
    if (references_[size_t(id)] != counted[size_t(id)]) {
      return wrong(id, std::to_string(references_[size_t(id)]) + " references, " + std::to_string(counted[size_t(id)]) +
                           " users");
    }
    if (free[size_t(id)] == (references_[size_t(id)] > 0)) return wrong(id, "in use and free, or neither");
  }
  return {};
}

}  // namespace fathom
