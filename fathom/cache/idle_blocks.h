// fathom/cache/idle_blocks.h
// Blocks that nobody uses but that a later prompt may find, in the order in which they go. Least recently used first,
// account by account (an account is a tenant), so that one tenant's burst does not empty another's cache: accounts at
// or below their floor are spared as long as another one has something to give.
//
// Tenants come by name, and a hostile client makes up names: so an account lives only as long as somebody uses it. One
// that has no user and no block is remembered for a while, with whatever is kept under its number (fair share, counts);
// when more than kRememberedAccounts are, the one longest unused gives its number to the next new name. There are never
// more accounts than users, blocks and kRememberedAccounts together.
//
// Children go before parents without being sorted: whoever uses a block uses all blocks before it too, and gives them
// back last one first; so a parent never stands before its child in the list of their account.     engine.md R-20
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fathom/base/result.h"

namespace fathom {

struct AccountLimits {
  int32_t floor_blocks = 0;             // cached blocks that pressure of others leaves it
  std::chrono::seconds time_to_live{};  // of an idle block since its last use; 0: no limit
};

/// Account 0 is there from the start, without limits. Not thread-safe. push, remove and oldest are O(log accounts);
/// nothing allocates but a new account.
class IdleBlocks {
 public:
  static constexpr int32_t kRememberedAccounts = 1024;  // without user and block

  explicit IdleBlocks(int32_t capacity);

  /// One that has no name and stays.
  int32_t add_account(AccountLimits limits);
  struct Opened {
    int32_t account = 0;
    bool fresh = false;  // what is kept under this number belongs to nobody any more
  };
  /// The account of this tenant, made without limits if there is none; one user more. The empty name is account 0.
  Opened open_account(std::string_view name);
  /// One user more of an open account; close_account: one less.
  void hold_account(int32_t account);
  void close_account(int32_t account);
  void set_limits(int32_t account, AccountLimits limits);
  int32_t accounts() const { return int32_t(accounts_.size()); }
  /// The time that pushed blocks get. Never goes back.
  void advance(std::chrono::seconds now);
  /// An account has so many findable blocks more, idle or in use.
  void count(int32_t account, int32_t more);

  void push(int32_t id, int32_t account);
  void remove(int32_t id, int32_t account);
  int32_t size() const { return size_; }
  /// The next to go, 0 when there is none.
  int32_t oldest() const;
  /// The oldest one of this account if its time to live has passed, else 0.
  int32_t expired(int32_t account) const;

  /// Findable blocks of an account, and of them the idle ones.
  int32_t findable_of(int32_t account) const { return accounts_[size_t(account)].findable; }
  int32_t idle_of(int32_t account) const { return accounts_[size_t(account)].idle; }
  /// When a block went idle, as a counter over all blocks; for tests of the order.
  uint64_t stamp_of(int32_t id) const { return links_[size_t(id)].stamp; }

  /// Lists acyclic, in order and as long as they say; the heap is one. `account_of[id]` is -1 for every block that is
  /// not idle. Linear. Errors: failed, naming the block or account.
  Result<void> verify(const std::vector<int32_t>& account_of) const;

 private:
  struct Link {
    int32_t previous = 0, next = 0;
    uint64_t stamp = 0;
    std::chrono::seconds since{};
  };
  struct Account {
    std::string name;
    int32_t users = 0;
    int32_t older = -1, newer = -1;  // while it is unused: its neighbours in time
    bool unused = false;             // neither users nor blocks; remembered
    AccountLimits limits;
    int32_t findable = 0, idle = 0;
    int32_t head = 0, tail = 0;  // oldest, newest
    int32_t place = -1;          // in the heap; -1: it has nothing idle
  };
  bool goes_before(int32_t a, int32_t b) const;
  void settle(int32_t account);  // after its head or its counts have changed
  void put(size_t place, int32_t account);
  void note_use(int32_t account);  // after its users or blocks have changed
  void unlink_unused(int32_t account);

  std::vector<Link> links_;
  std::vector<Account> accounts_;
  std::vector<int32_t> heap_;  // accounts with something idle; the first one gives next
  std::unordered_map<std::string, int32_t> named_;
  int32_t longest_unused_ = -1, last_unused_ = -1, unused_ = 0;
  uint64_t stamp_ = 0;
  std::chrono::seconds now_{};
  int32_t size_ = 0;
};

}  // namespace fathom
