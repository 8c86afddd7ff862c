// fathom/grammar/compile/compile_pool.h
// Compiles constraints on threads of its own, keeps what it compiled, and never makes its caller wait: the engine's
// loop asks again at its next step. A constraint that takes too long fails its request; the thread finishes it all the
// same, which the limits of grammar_of bound. Source: spec/engine.md 10, R-38.
//
// Memory. Answers hold their grammars for as long as they run, each up to CompileLimits::bytes, so a limit on the cache
// alone would bound nothing. The pool counts every grammar that it made until the last of its handles and matchers is
// gone, and begins the next one only when even the largest allowed would fit under `most_bytes`: before that it drops
// from its cache what nobody uses; if that is not enough, constraints wait until answers end, and after `longest_wait`
// fail alone.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/grammar/compile/compiled_grammar.h"

namespace fathom::grammar {

struct CompilePoolOptions {
  CompileLimits limits;
  int threads = 2;
  int64_t cache_bytes = int64_t(1) << 30;                             // of finished grammars; 0: none is kept
  int64_t most_bytes = int64_t(2) << 30;                              // of all grammars: cached, in use, being compiled
  int64_t most_waiting = 1024;                                        // constraints that no thread has begun
  std::chrono::milliseconds longest_wait = std::chrono::seconds(20);  // from submit to answer
};

class CompilePool {
 public:
  struct Job;
  using Ticket = std::shared_ptr<Job>;

  CompilePool(Vocabulary vocabulary, CompilePoolOptions options);
  /// Waits for what the threads are compiling; what waits is dropped.
  ~CompilePool();
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  /// Any thread. Equal constraints share one job. Returns at once; a full queue is an answer that poll gives.
  Ticket submit(const Constraint& constraint);

  /// Nothing while it is not ready. Any thread; takes no lock of the pool. Errors: those of compile, where no grammar
  /// may be larger than `most_bytes` either; failed after `longest_wait`, out_of_memory where that was for memory;
  /// failed when too many wait.
  std::optional<Result<CompiledGrammar>> poll(const Ticket& ticket) const;

  struct Counters {
    int64_t compiled = 0, failed = 0, cache_hits = 0, evicted = 0, cached_bytes = 0, waiting = 0;
    int64_t held_bytes = 0;  // of all grammars, cached or of running answers
  };
  Counters counters() const;

 private:
  struct Entry {
    std::string key;
    CompiledGrammar grammar;
    int64_t bytes;
  };
  void work();
  bool reserve();
  CompiledGrammar counted(const CompiledGrammar& grammar) const;
  void keep(const std::string& key, const CompiledGrammar& grammar);
  void evict(std::list<Entry>::iterator entry);

  const Vocabulary vocabulary_;
  const CompilePoolOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  bool stop_ = false;
  std::deque<Ticket> queue_;
  std::unordered_map<std::string, Ticket> open_;  // submitted, not finished
  std::list<Entry> cache_;                        // the most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> cached_;
  Counters counters_;
  int64_t reserved_bytes_ = 0;                        // for what is being compiled
  std::shared_ptr<std::atomic<int64_t>> held_bytes_;  // shared with the grammars, which may outlive the pool
  std::atomic<bool> short_of_memory_ = false;         // the first of the queue waits for it
  std::vector<std::thread> threads_;
};

}  // namespace fathom::grammar
