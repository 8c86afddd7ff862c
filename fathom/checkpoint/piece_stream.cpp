#include "fathom/checkpoint/piece_stream.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "fathom/base/check.h"
#include "fathom/checkpoint/resident_set.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kThreads = 2;  // a disk that can do more than one request at once is kept busy by two

int64_t page_bytes(bool huge) { return huge ? MappedFile::kHugePage : 4096; }

bool is_huge(std::span<const MappedRange> piece) {
  int64_t bytes = 0;
  for (const MappedRange& range : piece) bytes += int64_t(range.bytes.size());
  return bytes >= PieceStream::kHugePieceBytes;
}

// The whole pages that a range touches.
MappedRange whole_pages(const MappedRange& range, bool huge) {
  const auto granule = size_t(page_bytes(huge));
  const auto file = range.file->bytes();
  const auto begin = size_t(range.bytes.data() - file.data());
  const size_t from = begin / granule * granule;
  const size_t until = (begin + range.bytes.size() + granule - 1) / granule * granule;
  return {range.file, file.subspan(from, std::min(until, file.size()) - from)};
}

}  // namespace

int64_t piece_page_bytes(std::span<const MappedRange> piece) {
  int64_t bytes = 0;
  for (const MappedRange& range : piece) bytes += int64_t(whole_pages(range, is_huge(piece)).bytes.size());
  return bytes;
}

struct PieceStream::State {
  // Held by the set from `loading` on.
  enum class Phase : uint8_t { idle, loading, loaded, handed };
  struct Place {
    Phase phase = Phase::idle;
    bool wanted = false, expected = false;
  };
  struct Job {
    int32_t piece = 0;
    size_t evicted = 0;  // how many of `leaving` go before it
  };

  // Pages at the ends of a range that it shares with a neighbour; -1: it is alone there.
  struct Ends {
    int32_t front = -1, back = -1;
  };

  std::vector<std::vector<MappedRange>> pieces;  // in whole pages
  std::vector<size_t> page;                      // bytes of each
  std::vector<int64_t> bytes;                    // of all that a piece touches
  std::vector<std::vector<Ends>> ends;           // of the ranges
  std::vector<int32_t> users;                    // of each shared page: resident ranges
  StreamOptions options;
  ResidentSet set;
  std::vector<Place> places;

  mutable std::mutex mutex;
  std::condition_variable work, arrived;
  // Under the mutex. The vectors keep their memory from step to step.
  std::vector<int32_t> pending;  // wanted, and did not fit yet
  std::vector<int32_t> guessed;  // expected, and held or waiting for room
  std::vector<int32_t> ready;    // loaded and wanted, in the order in which they are handed out
  size_t ready_next = 0, pending_next = 0;
  int64_t outstanding = 0;  // wanted and not handed out
  std::deque<Job> jobs;
  std::deque<int32_t> leaving;  // evicted by the jobs, in their order
  std::vector<int32_t> evicted;
  StreamStatistics counts;
  bool stop = false;

  std::array<std::thread, kThreads> threads;

  State(std::vector<std::vector<MappedRange>> all, const StreamOptions& o)
      : pieces(std::move(all)),
        bytes(lay_out(pieces, page)),
        options(o),
        set(bytes, o.limit_bytes),
        places(pieces.size()) {
    counts.limit_bytes = o.limit_bytes;
    find_shared_pages();
    for (auto* list : {&pending, &guessed, &ready, &evicted}) list->reserve(pieces.size());
  }

  // Widens ranges to whole pages, of the size that it says; returns the bytes of each piece.
  static std::vector<int64_t> lay_out(std::vector<std::vector<MappedRange>>& pieces, std::vector<size_t>& page) {
    std::vector<int64_t> bytes;
    for (auto& piece : pieces) {
      const bool huge = is_huge(piece);
      bytes.push_back(piece_page_bytes(piece));
      page.push_back(size_t(page_bytes(huge)));
      for (MappedRange& range : piece) {
        range = whole_pages(range, huge);
        if (huge) range.file->use_huge_pages(range.bytes);
      }
    }
    return bytes;
  }

  void find_shared_pages() {
    std::map<const uint8_t*, std::vector<int32_t*>> touching;  // by the address of the page
    for (const auto& piece : pieces) {
      auto& of_piece = ends.emplace_back(piece.size());
      const size_t one = page[ends.size() - 1];
      for (size_t r = 0; r < piece.size(); ++r) {
        const auto range = piece[r].bytes;
        touching[range.data()].push_back(&of_piece[r].front);
        touching[range.data() + (range.size() - 1) / one * one].push_back(&of_piece[r].back);
      }
    }
    for (const auto& [address, places] : touching) {
      if (places.size() < 2) continue;
      for (int32_t* place : places) *place = int32_t(users.size());
      users.push_back(0);
    }
  }

  void count_users(int32_t piece, int32_t more) {
    for (const Ends& one : ends[size_t(piece)]) {
      if (one.front >= 0) users[size_t(one.front)] += more;
      if (one.back >= 0) users[size_t(one.back)] += more;
    }
  }

  // Appends the pages of a piece that no resident one shares.
  void add_pages(int32_t piece, std::vector<MappedRange>& out) const {
    const auto& ranges = pieces[size_t(piece)];
    const size_t one = page[size_t(piece)];
    for (size_t r = 0; r < ranges.size(); ++r) {
      const Ends& at = ends[size_t(piece)][r];
      const auto whole = ranges[r].bytes;
      const size_t from = at.front >= 0 && users[size_t(at.front)] > 0 ? one : 0;
      const size_t until = at.back >= 0 && users[size_t(at.back)] > 0 ? (whole.size() - 1) / one * one : whole.size();
      if (from < until) out.push_back({ranges[r].file, whole.subspan(from, until - from)});
    }
  }

  // Holds the piece and, unless it is there, has it read. False: no room. Under the mutex.
  bool admit(int32_t piece) {
    evicted.clear();
    const auto answer = set.use(piece, evicted);
    if (answer == ResidentSet::Answer::full) return false;
    Place& place = places[size_t(piece)];
    if (answer == ResidentSet::Answer::resident) {
      place.phase = Phase::loaded;
      return true;
    }
    place.phase = Phase::loading;
    count_users(piece, 1);
    for (const int32_t old : evicted) count_users(old, -1);
    leaving.insert(leaving.end(), evicted.begin(), evicted.end());
    jobs.push_back({piece, evicted.size()});
    counts.loaded_bytes += bytes[size_t(piece)];
    counts.evictions += int64_t(evicted.size());
    work.notify_one();
    return true;
  }

  void admit_pending() {
    while (pending_next < pending.size() && admit_wanted(pending[pending_next])) ++pending_next;
  }

  bool admit_wanted(int32_t piece) {
    if (!admit(piece)) return false;
    if (places[size_t(piece)].phase == Phase::loaded) ready.push_back(piece);
    return true;
  }

  // A guess that did not come true. One that is still being read is let go when it is there.
  void drop_guesses() {
    for (const int32_t piece : guessed) {
      Place& place = places[size_t(piece)];
      place.expected = false;
      if (!place.wanted && place.phase == Phase::loaded) let_go(piece);
    }
    guessed.clear();
  }

  void let_go(int32_t piece) {
    places[size_t(piece)].phase = Phase::idle;
    set.release(piece);
  }

  // A thread: gives back what leaves for a piece, then reads the piece. Should a piece leave and come back while one
  // thread is about to drop what the other reads again, its pages are found by the reader: slower, and the same bytes.
  void run() {
    std::vector<MappedRange> out;
    std::unique_lock lock(mutex);
    while (true) {
      work.wait(lock, [&] { return stop || !jobs.empty(); });
      if (stop) return;
      const Job job = jobs.front();
      jobs.pop_front();
      out.clear();
      for (size_t i = 0; i < job.evicted; ++i) {
        add_pages(leaving.front(), out);
        leaving.pop_front();
      }
      lock.unlock();
      for (const MappedRange& range : out) range.file->drop(range.bytes, options.drop_behind);
      int64_t missing = 0;
      for (const MappedRange& range : pieces[size_t(job.piece)]) {
        const auto size = int64_t(range.bytes.size());
        missing += std::max<int64_t>(0, size - range.file->cached_bytes(range.bytes).value_or(0));
        range.file->populate(range.bytes);
      }
      lock.lock();
      counts.disk_bytes += missing;
      finish(job.piece);
    }
  }

  void finish(int32_t piece) {
    Place& place = places[size_t(piece)];
    place.phase = Phase::loaded;
    if (place.wanted) {
      ready.push_back(piece);
      arrived.notify_one();
    } else if (!place.expected) {
      let_go(piece);
      admit_pending();
    }
  }
};

PieceStream::PieceStream(std::vector<std::vector<MappedRange>> pieces, const StreamOptions& options)
    : state_(std::make_unique<State>(std::move(pieces), options)) {
  for (std::thread& thread : state_->threads) thread = std::thread([state = state_.get()] { state->run(); });
}

PieceStream::~PieceStream() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

void PieceStream::expect(std::span<const int32_t> pieces) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  check(s.outstanding == 0, "guesses come while nothing is wanted");
  s.drop_guesses();
  for (const int32_t piece : pieces) {
    State::Place& place = s.places[size_t(piece)];
    if (place.phase == State::Phase::idle && !s.admit(piece)) return;
    place.expected = true;
    s.guessed.push_back(piece);
  }
}

void PieceStream::want(std::span<const int32_t> pieces) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    check(s.outstanding == 0, "what was wanted before has been handed out");
    s.ready.clear();
    s.pending.clear();
    s.ready_next = s.pending_next = 0;
    for (const int32_t piece : pieces) s.places[size_t(piece)].wanted = true;
    s.drop_guesses();
    s.outstanding = int64_t(pieces.size());
    s.counts.uses += s.outstanding;
    // Everything that is there is held before anything is read, or the reading could drive it out.
    for (const int32_t piece : pieces) {
      const State::Phase phase = s.places[size_t(piece)].phase;
      if (phase == State::Phase::loaded) s.ready.push_back(piece);
      if (phase == State::Phase::idle && s.set.resident(piece)) check(s.admit_wanted(piece), "it is resident");
    }
    s.counts.hits += int64_t(s.ready.size());
    for (const int32_t piece : pieces) {
      if (s.places[size_t(piece)].phase == State::Phase::idle) s.pending.push_back(piece);
    }
    s.admit_pending();
  }
}

int32_t PieceStream::next() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  if (s.outstanding == 0) return -1;
  if (s.ready_next == s.ready.size()) {
    const auto begin = Clock::now();
    s.arrived.wait(lock, [&] { return s.ready_next < s.ready.size(); });
    ++s.counts.waits;
    s.counts.wait_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  }
  const int32_t piece = s.ready[s.ready_next++];
  State::Place& place = s.places[size_t(piece)];
  place.phase = State::Phase::handed;
  place.wanted = false;
  --s.outstanding;
  return piece;
}

void PieceStream::release(int32_t piece) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  check(s.places[size_t(piece)].phase == State::Phase::handed, "what is released was handed out");
  s.let_go(piece);
  s.admit_pending();
}

StreamStatistics PieceStream::statistics() const {
  const std::lock_guard lock(state_->mutex);
  StreamStatistics out = state_->counts;
  out.resident_bytes = state_->set.bytes();
  return out;
}

}  // namespace fathom
