// Case mem-02: long runs do not grow. Requests of random length come and go, some are cancelled, some refused; after a
// warm-up the resident memory stays where it is. FATHOM_LONG=1 runs the case's own numbers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "fathom/base/philox.h"
#include "fathom/base/test_size.h"
#include "tests/end_to_end/miniature.h"

namespace fathom {
namespace {

int64_t resident_bytes() {
  long pages = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  check(file && std::fscanf(file, "%ld %ld", &pages, &resident) == 2, "/proc/self/statm is readable");
  std::fclose(file);
  return int64_t(resident) * sysconf(_SC_PAGESIZE);
}

struct Load {
  int requests, shortest, longest, most_output;
};

// Deterministic: the same load in every run.
uint32_t random(uint32_t request, uint32_t what, uint32_t below) {
  return philox(77, {request, what, 0, 0})[0] % below;
}

Request make_request(const Load& load, uint32_t i) {
  Request out;
  const uint32_t length = uint32_t(load.shortest) + random(i, 0, uint32_t(load.longest - load.shortest + 1));
  for (uint32_t k = 0; k < length; ++k) out.ids.push_back(int32_t(23 + random(i, 10 + k, 2800)));
  out.sampling.max_tokens = 1 + random(i, 1, uint32_t(load.most_output));
  out.sampling.seed = i;
  if (random(i, 2, 20) == 0) out.ids[0] = 1 << 20;  // 5 % name a token that does not exist
  return out;
}

TEST(Soak, MemTwoLongRunsDoNotGrow) {
  const bool full = is_set("FATHOM_LONG");
  const Load load = by_test_size(Load{150, 20, 200, 20}, Load{1'600, 20, 300, 30}, Load{10'000, 200, 4000, 300});
  EngineOptions options;
  options.context = load.longest + load.most_output;
  // Prefixes and window snapshots are kept until their memory is full, on purpose: made small, it is full before the
  // first look, and the largest step has been seen.
  options.most_blocks = full ? 400 : 40;
  Engine engine = open_engine(options);

  int submitted = 0, refused = 0, cancelled = 0, finished = 0;
  std::vector<RequestId> running;
  int64_t before = 0;
  for (uint32_t next = 0; next < uint32_t(load.requests) || !engine.idle();) {
    while (next < uint32_t(load.requests) && running.size() < 24) {
      const auto id = engine.submit(make_request(load, next++));
      if (!id) {
        ++refused;
        continue;
      }
      ++submitted;
      running.push_back(*id);
      if (random(next, 3, 10) == 0) {  // 10 % of clients go away
        engine.cancel(running[random(next, 4, uint32_t(running.size()))]);
        ++cancelled;
      }
    }
    for (const Event& event : engine.step()) {
      if (!event.finish) continue;
      ++finished;
      std::erase(running, event.request);
    }
    if (before == 0 && finished > load.requests * 2 / 3) before = resident_bytes();
  }
  EXPECT_EQ(finished, submitted);
  EXPECT_GT(refused, load.requests / 40);
  EXPECT_GT(cancelled, load.requests / 20);
  const std::string sanitizers = FATHOM_SANITIZED;
  if (is_set("FATHOM_BRIEF")) GTEST_SKIP() << "memory is not measured in a brief run";
  if (!sanitizers.empty()) GTEST_SKIP() << "memory is not measured under " << sanitizers << ": freed bytes are kept";
  EXPECT_LE(double(resident_bytes()), double(before) * 1.02);
}

}  // namespace
}  // namespace fathom
