#include "fathom/cache/idle_blocks.h"

#include <algorithm>
#include <utility>

#include "fathom/base/check.h"

namespace fathom {

IdleBlocks::IdleBlocks(int32_t capacity) : links_(size_t(capacity) + 1) { add_account({}); }

int32_t IdleBlocks::add_account(AccountLimits limits) {
  accounts_.emplace_back();
  accounts_.back().limits = limits;
  accounts_.back().users = 1;  // for good
  heap_.reserve(accounts_.size());
  return int32_t(accounts_.size()) - 1;
}

IdleBlocks::Opened IdleBlocks::open_account(std::string_view name) {
  std::string key(name);
  const auto known = key.empty() ? named_.end() : named_.find(key);
  if (key.empty() || known != named_.end()) {
    const int32_t account = key.empty() ? 0 : known->second;
    hold_account(account);
    return {account, false};
  }
  int32_t account = longest_unused_;
  if (unused_ < kRememberedAccounts) {
    account = add_account({});
  } else {
    unlink_unused(account);
    named_.erase(accounts_[size_t(account)].name);
    accounts_[size_t(account)] = {};
    accounts_[size_t(account)].users = 1;
  }
  accounts_[size_t(account)].name = key;
  named_.emplace(std::move(key), account);
  return {account, true};
}

void IdleBlocks::hold_account(int32_t account) {
  ++accounts_[size_t(account)].users;
  note_use(account);
}

void IdleBlocks::close_account(int32_t account) {
  check(accounts_[size_t(account)].users > 0, "an account is closed as often as it was opened");
  --accounts_[size_t(account)].users;
  note_use(account);
}

void IdleBlocks::note_use(int32_t account) {
  Account& at = accounts_[size_t(account)];
  const bool unused = at.users == 0 && at.findable == 0;
  if (unused == at.unused) return;
  if (!unused) return unlink_unused(account);
  at.unused = true;
  at.older = last_unused_;
  at.newer = -1;
  (last_unused_ >= 0 ? accounts_[size_t(last_unused_)].newer : longest_unused_) = account;
  last_unused_ = account;
  ++unused_;
}

void IdleBlocks::unlink_unused(int32_t account) {
  Account& at = accounts_[size_t(account)];
  (at.older >= 0 ? accounts_[size_t(at.older)].newer : longest_unused_) = at.newer;
  (at.newer >= 0 ? accounts_[size_t(at.newer)].older : last_unused_) = at.older;
  at.older = at.newer = -1;
  at.unused = false;
  --unused_;
}

void IdleBlocks::set_limits(int32_t account, AccountLimits limits) {
  accounts_[size_t(account)].limits = limits;
  settle(account);
}

void IdleBlocks::advance(std::chrono::seconds now) { now_ = std::max(now_, now); }

void IdleBlocks::count(int32_t account, int32_t more) {
  accounts_[size_t(account)].findable += more;
  settle(account);
  note_use(account);
}

void IdleBlocks::push(int32_t id, int32_t account) {
  Account& at = accounts_[size_t(account)];
  links_[size_t(id)] = {at.tail, 0, ++stamp_, now_};
  (at.tail != 0 ? links_[size_t(at.tail)].next : at.head) = id;
  at.tail = id;
  ++at.idle;
  ++size_;
  settle(account);
}

void IdleBlocks::remove(int32_t id, int32_t account) {
  Account& at = accounts_[size_t(account)];
  Link& link = links_[size_t(id)];
  (link.previous != 0 ? links_[size_t(link.previous)].next : at.head) = link.next;
  (link.next != 0 ? links_[size_t(link.next)].previous : at.tail) = link.previous;
  link = {};
  --at.idle;
  --size_;
  settle(account);
}

int32_t IdleBlocks::oldest() const { return heap_.empty() ? 0 : accounts_[size_t(heap_[0])].head; }

int32_t IdleBlocks::expired(int32_t account) const {
  const Account& at = accounts_[size_t(account)];
  if (at.head == 0 || at.limits.time_to_live.count() == 0) return 0;
  return links_[size_t(at.head)].since + at.limits.time_to_live < now_ ? at.head : 0;
}

// Running work goes before kept past: a floor is only respected while somebody else has blocks to give.
bool IdleBlocks::goes_before(int32_t a, int32_t b) const {
  const Account &x = accounts_[size_t(a)], &y = accounts_[size_t(b)];
  const bool x_spared = x.findable <= x.limits.floor_blocks, y_spared = y.findable <= y.limits.floor_blocks;
  if (x_spared != y_spared) return y_spared;
  return links_[size_t(x.head)].stamp < links_[size_t(y.head)].stamp;
}

void IdleBlocks::put(size_t place, int32_t account) {
  heap_[place] = account;
  accounts_[size_t(account)].place = int32_t(place);
}

void IdleBlocks::settle(int32_t account) {
  Account& at = accounts_[size_t(account)];
  if (at.idle == 0) {
    if (at.place < 0) return;
    const size_t gap = size_t(at.place);
    at.place = -1;
    const int32_t last = heap_.back();
    heap_.pop_back();
    if (last == account) return;
    put(gap, last);
    settle(last);
    return;
  }
  if (at.place < 0) {
    heap_.push_back(account);
    at.place = int32_t(heap_.size()) - 1;
  }
  size_t place = size_t(at.place);
  while (place > 0 && goes_before(account, heap_[(place - 1) / 2])) {
    put(place, heap_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  while (2 * place + 1 < heap_.size()) {
    size_t child = 2 * place + 1;
    if (child + 1 < heap_.size() && goes_before(heap_[child + 1], heap_[child])) ++child;
    if (!goes_before(heap_[child], account)) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, account);
}

Result<void> IdleBlocks::verify(const std::vector<int32_t>& account_of) const {
  const auto wrong = [](const char* what, const char* whose, int64_t id) {
    return Error{ErrorCode::failed, std::string("idle blocks are inconsistent: ") + what,
                 std::string(whose) + " " + std::to_string(id), ""};
  };
  int64_t total = 0, in_heap = 0;
  for (int32_t account = 0; account < accounts(); ++account) {
    const Account& at = accounts_[size_t(account)];
    int32_t length = 0, previous = 0;
    for (int32_t id = at.head; id != 0; id = links_[size_t(id)].next) {
      if (account_of[size_t(id)] != account) return wrong("a list holds a block of another state", "block", id);
      if (links_[size_t(id)].previous != previous) return wrong("a list is not linked both ways", "block", id);
      if (previous != 0 && links_[size_t(id)].stamp <= links_[size_t(previous)].stamp)
        return wrong("a list is out of order or has a cycle", "block", id);
      previous = id;
      ++length;
    }
    if (at.tail != previous || length != at.idle) return wrong("a list has another length", "account", account);
    if ((at.place >= 0) != (length > 0)) return wrong("the heap misses it", "account", account);
    if (at.place >= 0 && heap_[size_t(at.place)] != account) return wrong("it has another place", "account", account);
    if (at.unused != (at.users == 0 && at.findable == 0)) return wrong("its use is unknown", "account", account);
    in_heap += at.place >= 0;
    total += length;
  }
  for (size_t place = 1; place < heap_.size(); ++place) {
    if (goes_before(heap_[place], heap_[(place - 1) / 2])) return wrong("the heap is none", "account", heap_[place]);
  }
  const auto idle = std::count_if(account_of.begin(), account_of.end(), [](int32_t a) { return a >= 0; });
  if (in_heap != int64_t(heap_.size()) || total != size_ || idle != size_)
    return wrong("the counts do not add up", "account", -1);
  return {};
}

}  // namespace fathom
