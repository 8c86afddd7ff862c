#include "fathom/grammar/compile/compile_pool.h"

#include <algorithm>
#include <utility>

namespace fathom::grammar {
namespace {

void append_part(std::string& key, std::string_view part) {
  key += std::to_string(part.size());
  key += ':';
  key += part;
}

// Equal keys, equal constraints: every part with its length.
std::string key_of(const Constraint& constraint) {
  std::string key = name_of(constraint.kind);
  append_part(key, constraint.text);
  append_part(key, constraint.starts_after ? "1" + *constraint.starts_after : "0");
  append_part(key, constraint.markup.dsml);
  append_part(key, constraint.markup.block);
  append_part(key, constraint.markup.separator);
  for (const CallableTool& tool : constraint.tools) {
    append_part(key, tool.name);
    key += tool.strict ? '1' : '0';
    append_part(key, to_string(tool.parameters));
  }
  return key;
}

std::string megabytes(int64_t bytes) { return std::to_string((bytes + 500'000) / 1'000'000) + " MB"; }

}  // namespace

struct CompilePool::Job {
  std::string key;
  Constraint constraint;
  std::chrono::steady_clock::time_point submitted;
  std::optional<Result<CompiledGrammar>> result;  // written before `done`
  std::atomic<bool> done = false;

  void finish(Result<CompiledGrammar> outcome) {
    result.emplace(std::move(outcome));
    done.store(true, std::memory_order_release);
  }
};

CompilePool::CompilePool(Vocabulary vocabulary, CompilePoolOptions options)
    : vocabulary_(std::move(vocabulary)),
      options_([&] {
        options.limits.bytes = std::min(options.limits.bytes, options.most_bytes);
        return options;
      }()),
      held_bytes_(std::make_shared<std::atomic<int64_t>>(0)) {
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
}

CompilePool::~CompilePool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const Ticket& job : queue_) {
      job->finish(Error{ErrorCode::interrupted, "the engine stops", "constraint", ""});
    }
    queue_.clear();
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

CompilePool::Ticket CompilePool::submit(const Constraint& constraint) {
  std::string key = key_of(constraint);
  const std::lock_guard lock(mutex_);
  if (const auto open = open_.find(key); open != open_.end()) return open->second;
  auto job = std::make_shared<Job>();
  job->submitted = std::chrono::steady_clock::now();
  if (const auto cached = cached_.find(key); cached != cached_.end()) {
    ++counters_.cache_hits;
    cache_.splice(cache_.begin(), cache_, cached->second);
    job->finish(cache_.front().grammar);
    return job;
  }
  if (int64_t(queue_.size()) >= options_.most_waiting) {
    job->finish(Error{ErrorCode::failed, std::to_string(queue_.size()) + " constraints wait to be compiled",
                      "constraint", "try again later"});
    return job;
  }
  job->key = key;
  job->constraint = constraint;
  open_.emplace(std::move(key), job);
  queue_.push_back(job);
  ready_.notify_one();
  return job;
}

std::optional<Result<CompiledGrammar>> CompilePool::poll(const Ticket& ticket) const {
  if (ticket->done.load(std::memory_order_acquire)) return *ticket->result;
  if (std::chrono::steady_clock::now() - ticket->submitted > options_.longest_wait) {
    if (short_of_memory_.load(std::memory_order_relaxed)) {
      return Error{ErrorCode::out_of_memory,
                   "grammars of other answers hold " + megabytes(held_bytes_->load()) + " of " +
                       megabytes(options_.most_bytes) + ", and in " + std::to_string(options_.longest_wait.count()) +
                       " ms no room came for one more",
                   "constraint", "try again later"};
    }
    return Error{ErrorCode::failed,
                 "compiling the constraint takes longer than " + std::to_string(options_.longest_wait.count()) + " ms",
                 "constraint", "simplify it, or try again later"};
  }
  return {};
}

CompilePool::Counters CompilePool::counters() const {
  const std::lock_guard lock(mutex_);
  Counters out = counters_;
  out.waiting = int64_t(queue_.size());
  out.held_bytes = held_bytes_->load();
  return out;
}

void CompilePool::keep(const std::string& key, const CompiledGrammar& grammar) {
  const int64_t bytes = grammar.bytes() + 2 * int64_t(key.size());
  if (bytes > options_.cache_bytes) return;
  cache_.push_front({key, grammar, bytes});
  cached_[key] = cache_.begin();
  counters_.cached_bytes += bytes;
  while (counters_.cached_bytes > options_.cache_bytes) evict(std::prev(cache_.end()));
}

void CompilePool::evict(std::list<Entry>::iterator entry) {
  counters_.cached_bytes -= entry->bytes;
  ++counters_.evicted;
  cached_.erase(entry->key);
  cache_.erase(entry);
}

// Room for a grammar whose size nobody knows before it is compiled.
bool CompilePool::reserve() {
  const int64_t wanted = options_.limits.bytes;
  const auto fits = [&] { return held_bytes_->load() + reserved_bytes_ + wanted <= options_.most_bytes; };
  // What answers use as well would be gone from the cache and still be there.
  for (auto entry = cache_.end(); !fits() && entry != cache_.begin();) {
    const auto last = std::prev(entry);
    if (last->grammar.shared()) {
      entry = last;
    } else {
      evict(last);
    }
  }
  if (!fits()) return false;
  reserved_bytes_ += wanted;
  return true;
}

// The same grammar, taken off the count when its last user lets go of it, in whatever thread and however late.
CompiledGrammar CompilePool::counted(const CompiledGrammar& grammar) const {
  *held_bytes_ += grammar.bytes();
  return CompiledGrammar(std::shared_ptr<const CompiledGrammar::Parts>(
      &grammar.parts(),
      [inner = grammar, held = held_bytes_](const CompiledGrammar::Parts*) { *held -= inner.bytes(); }));
}

void CompilePool::work() {
  // Whoever lets go of a grammar does not know the pool: while memory is short, its threads look again now and then.
  constexpr std::chrono::milliseconds kLookAgain{10};
  std::unique_lock lock(mutex_);
  while (true) {
    ready_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const bool room = reserve();
    short_of_memory_.store(!room, std::memory_order_relaxed);
    if (!room) {
      ready_.wait_for(lock, kLookAgain, [&] { return stop_; });
      continue;
    }
    const Ticket job = queue_.front();
    queue_.pop_front();
    lock.unlock();
    Result<CompiledGrammar> outcome = compile(job->constraint, vocabulary_, options_.limits);
    lock.lock();
    reserved_bytes_ -= options_.limits.bytes;
    ++(outcome.ok() ? counters_.compiled : counters_.failed);
    if (outcome.ok()) {
      outcome = counted(*outcome);
      keep(job->key, *outcome);
    }
    open_.erase(job->key);
    job->finish(std::move(outcome));
  }
}

}  // namespace fathom::grammar
