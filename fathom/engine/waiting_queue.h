// fathom/engine/waiting_queue.h
// Who is served next. A waiting request stands in the lane of its priority and tenant, by due time. Between lanes:
//
//   1. the higher class first; every `ageing_seconds` of waiting count as one class more, so that nobody starves;
//   2. within a class the tenant that has been given the fewest prompt rows so far (fair share; a tenant that comes
//      back from a pause starts level with the least served one, it has no claim to the time when it was away);
//   3. then whoever is due first: the request's own target for its first token, else arrival plus `patience_seconds`.
//
// Time comes in as a value, so the same calls give the same order anywhere. Source: spec/engine.md.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fathom/engine/step_plan.h"

namespace fathom {

struct QueuePolicy {
  double ageing_seconds = 10;     // waiting so long counts as one class more
  double patience_seconds = 0.5;  // what a request without a target is due after
  int look_ahead = 64;            // so many are looked at when those in front do not fit yet
};

struct Waiting {
  SequenceId id = 0;
  int priority = 0;                      // higher is served first
  uint32_t tenant = 0;                   // account of the prefix cache (IdleBlocks::open_account)
  double arrived = 0;                    // seconds, any origin, the same as `now`
  std::optional<double> first_token_by;  // seconds: due then instead
  int64_t rows = 0;                      // prompt rows that it will take
};

/// Not thread-safe: the engine's thread owns it. push is linear in lanes; remove is logarithmic; order() takes lanes +
/// look_ahead * log(lanes).
class WaitingQueue {
 public:
  explicit WaitingQueue(QueuePolicy policy = {}) : policy_(policy) {}

  void push(const Waiting& one);
  /// False: it was not waiting.
  bool remove(SequenceId id);

  /// At most look_ahead ids, who is served next first. Valid until the next call.
  std::span<const SequenceId> order(double now);
  /// `rows` prompt rows were given to a tenant.
  void charge(uint32_t tenant, int64_t rows);
  /// The number stands for somebody else from now on, who has been given nothing. So as many tenants are remembered as
  /// there are accounts, which IdleBlocks bounds.
  void forget(uint32_t tenant);

  const Waiting* find(SequenceId id) const;
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  /// When the first one is due, or was; nothing when empty. Linear in lanes.
  std::optional<double> earliest_due() const;
  const QueuePolicy& policy() const { return policy_; }

 private:
  struct Place {
    double due = 0;
    uint64_t number = 0;  // of the push: equal due times keep their order
    SequenceId id = 0;
    double arrived = 0;
    int64_t rows = 0;
    bool operator<(const Place& other) const { return due != other.due ? due < other.due : number < other.number; }
  };
  struct Lane {
    int priority = 0;
    uint32_t tenant = 0;
    std::set<Place> places;
    std::set<Place>::const_iterator next;  // of order()
  };
  /// A lane in order(): who stands first in it, and the rank and rows by which it is compared.
  struct Candidate {
    Lane* lane = nullptr;
    int64_t rank = 0, served = 0;
  };
  struct Entry {
    Waiting waiting;
    Lane* lane = nullptr;
    Place place;
  };
  int64_t served(uint32_t tenant) const;
  /// Class with age at `now`.
  int64_t rank(const Lane& lane, const Place& place, double now) const;

  QueuePolicy policy_;
  std::map<std::pair<int, uint32_t>, Lane> lanes_;  // empty ones are removed
  std::unordered_map<SequenceId, Entry> entries_;
  std::unordered_map<uint32_t, int64_t> served_;  // prompt rows by tenant
  std::unordered_map<uint32_t, int64_t> ahead_;   // scratch of order(): rows that candidates before would take
  std::vector<Candidate> candidates_;             // scratch of order(): a heap
  std::vector<SequenceId> order_;
  uint64_t pushes_ = 0;
};

}  // namespace fathom
