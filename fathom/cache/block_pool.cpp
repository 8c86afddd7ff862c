#include "fathom/cache/block_pool.h"

namespace fathom {

BlockPool::BlockPool(int32_t count)
    : references_(size_t(count) + 1, 0), next_(size_t(count) + 1, 0), account_of_(size_t(count) + 1, -1), idle_(count) {
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

void BlockPool::check_known(int32_t id) const {
  check(id > 0 && id <= capacity() && (references_[size_t(id)] > 0 || account_of_[size_t(id)] >= 0),
        "only a block in use or findable is referred to");
}

void BlockPool::add_reference(int32_t id) {
  check_known(id);
  if (references_[size_t(id)]++ == 0) idle_.remove(id, account_of_[size_t(id)]);
}

void BlockPool::release(int32_t id) {
  check(id > 0 && id <= capacity() && references_[size_t(id)] > 0, "only a block in use is released");
  if (--references_[size_t(id)] > 0) return;
  if (findable(id)) {
    idle_.push(id, account_of_[size_t(id)]);
  } else {
    make_free(id);
  }
}

void BlockPool::make_free(int32_t id) {
  next_[size_t(id)] = 0;
  if (tail_ != 0) {
    next_[size_t(tail_)] = id;
  } else {
    head_ = id;
  }
  tail_ = id;
  ++free_count_;
}

void BlockPool::keep(int32_t id, int32_t account) {
  check_known(id);
  check(references_[size_t(id)] > 0 && !findable(id), "a block in use becomes findable once");
  account_of_[size_t(id)] = account;
  idle_.count(account, 1);
}

void BlockPool::forget(int32_t id) {
  check_known(id);
  const int32_t account = account_of_[size_t(id)];
  check(account >= 0, "only a findable block is forgotten");
  if (references_[size_t(id)] == 0) {
    idle_.remove(id, account);
    make_free(id);
  }
  account_of_[size_t(id)] = -1;
  idle_.count(account, -1);
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
  std::vector<int32_t> idle_account(references_.size(), -1), findable_of(size_t(idle_.accounts()), 0);
  for (int32_t id = 1; id <= capacity(); ++id) {
    if (references_[size_t(id)] != counted[size_t(id)]) {
      return wrong(id, std::to_string(references_[size_t(id)]) + " references, " + std::to_string(counted[size_t(id)]) +
                           " users");
    }
    const bool idle = references_[size_t(id)] == 0 && findable(id);
    if (int(free[size_t(id)]) + int(references_[size_t(id)] > 0) + int(idle) != 1)
      return wrong(id, "in two of the states free, idle and in use, or in none");
    if (idle) idle_account[size_t(id)] = account_of_[size_t(id)];
    if (findable(id)) ++findable_of[size_t(account_of_[size_t(id)])];
  }
  for (int32_t account = 0; account < idle_.accounts(); ++account) {
    if (findable_of[size_t(account)] != idle_.findable_of(account)) return wrong(0, "an account counts other blocks");
  }
  return idle_.verify(idle_account);
}

}  // namespace fathom
