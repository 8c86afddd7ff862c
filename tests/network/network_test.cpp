// The network's invariants on the embedded miniature: how tokens are cut into calls, what else is in the batch, and
// what was taken back must not show in the logits, not even in the last bit (engine.md R-36, model.md 4.5).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "fathom/base/philox.h"
#include "fathom/base/test_size.h"
#include "fathom/model/attention/rope_frequencies.h"
#include "fathom/model/presets.h"
#include "fathom/model/single_sequence.h"
#include "fathom/tokenizer/compressed_vocabulary.h"

namespace fathom {
namespace {

// Checkpoint and compressed vocabulary, opened once.
struct Miniature {
  Checkpoint checkpoint = std::move(*Checkpoint::open(embedded_model()));
  std::vector<int32_t> token_map;

  static const Miniature& get() {
    static const Miniature one;
    return one;
  }

 private:
  Miniature() {
    const auto tokenizer = Tokenizer::parse(*checkpoint.read_text("tokenizer.json"), "tokenizer.json");
    token_map = compress_vocabulary(*tokenizer)->map;
  }
};

struct Machine {
  Backend backend;
  std::unique_ptr<Queue> queue;
  Model model;

  Machine(const std::string& name, Numerics numerics, int threads = 2)
      : backend(*open_backend(name)),
        queue(std::move(*backend.open_queue(threads))),
        model(std::move(*Model::load(Miniature::get().checkpoint, backend, {numerics, Miniature::get().token_map}))) {}

  SingleSequence sequence(ReplayMode mode, int64_t length) {
    auto out = std::move(*SingleSequence::open(model, *queue, backend.memory, 1024));
    out.begin(mode, length);
    return out;
  }
};

std::vector<int32_t> random_ids(int64_t count, uint32_t seed) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(int32_t(23 + philox(seed, {uint32_t(i), 0, 0, 0})[0] % 2800));
  return out;
}

using Logits = std::vector<float>;

// Feeds `ids` in pieces of `chunk` and returns the logits of the positions from `from` on.
Logits feed(SingleSequence& sequence, std::span<const int32_t> ids, int64_t chunk, int64_t from) {
  Logits out;
  for (size_t at = 0; at < ids.size();) {
    const size_t n = std::min(size_t(chunk), ids.size() - at);
    std::vector<int64_t> positions;
    for (size_t i = 0; i < n; ++i) {
      if (sequence.length() + int64_t(i) >= from) positions.push_back(sequence.length() + int64_t(i));
    }
    const auto logits = sequence.feed(ids.subspan(at, n), positions);
    out.insert(out.end(), logits.data, logits.data + logits.size());
    at += n;
  }
  return out;
}

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Setup {
  std::string backend;
  Numerics numerics;
};

class NetworkTest : public testing::TestWithParam<Setup> {
 protected:
  Machine machine{GetParam().backend, GetParam().numerics};
  // The reference is slow: enough rows to pass the window (32), the top-k (64) and the candidate blocks (16 x 8).
  const bool slow = GetParam().backend == "reference";
  const int64_t length = slow ? 150 : by_test_size(150, 420, 420);
};

// Case num-01: one-token steps and any cut give what one call gives.
TEST_P(NetworkTest, NumOneChunksDoNotChangeAnyBit) {
  const auto ids = random_ids(length, 1);
  auto whole = machine.sequence(ReplayMode::off, length);
  const Logits want = feed(whole, ids, length, length - 16);
  for (const int64_t chunk : {1, 2, 7, 8, 9, 63, 127, 128, 129, 255}) {
    if (slow && chunk != 1 && chunk != 7 && chunk != 129) continue;
    auto cut = machine.sequence(ReplayMode::off, length);
    EXPECT_TRUE(same_bits(feed(cut, ids, chunk, length - 16), want)) << "pieces of " << chunk;
  }
}

TEST_P(NetworkTest, BoundedPromptsMayBeCutAnywhereToo) {
  const auto ids = random_ids(length, 2);
  for (const auto mode : {ReplayMode::compact, ReplayMode::halo}) {
    auto whole = machine.sequence(mode, length);
    const Logits want = feed(whole, ids, length, length - 4);
    for (const int64_t chunk : {7, 40, 64, 129}) {
      if (slow && chunk != 40) continue;
      auto cut = machine.sequence(mode, length);
      EXPECT_TRUE(same_bits(feed(cut, ids, chunk, length - 4), want)) << name_of(mode) << ", pieces of " << chunk;
    }
  }
}

// mask runs every row with the visibility of compact, so the kept rows agree.
TEST_P(NetworkTest, CompactEqualsItsOracleMask) {
  const auto ids = random_ids(length, 3), more = random_ids(12, 4);
  auto compact = machine.sequence(ReplayMode::compact, length), mask = machine.sequence(ReplayMode::mask, length);
  const int64_t kept = compact_rows(machine.model.replay_shape());
  EXPECT_TRUE(same_bits(feed(compact, ids, 100, length - kept), feed(mask, ids, 100, length - kept)));
  EXPECT_TRUE(same_bits(feed(compact, more, 1, 0), feed(mask, more, 1, 0)));
}

// engine.md 6.1: the halo keeps every row that the last ones depend on, so nothing changes there.
TEST_P(NetworkTest, HaloIsExactForTheLastRows) {
  const auto ids = random_ids(length, 5), more = random_ids(12, 6);
  auto halo = machine.sequence(ReplayMode::halo, length), off = machine.sequence(ReplayMode::off, length);
  ASSERT_LT(halo_rows(machine.model.replay_shape()), length);
  const int64_t backtrack = machine.model.replay_shape().backtrack;
  EXPECT_TRUE(same_bits(feed(halo, ids, length, length - backtrack), feed(off, ids, length, length - backtrack)));
  EXPECT_TRUE(same_bits(feed(halo, more, 3, 0), feed(off, more, 3, 0)));
}

// engine.md R-23 for halo: the rows that run again make everything exact that the last rows depend on, although their
// windows are cut; and docs/decisions/0009: 127 rows (here 31) are needed that the specification leaves out.
TEST_P(NetworkTest, APrefixHitUnderHaloIsExact) {
  const auto ids = random_ids(length, 15), more = random_ids(12, 16);
  const int64_t hit = (length - 1) / 128 * 128, last = length - machine.model.replay_shape().backtrack;
  if (hit <= 128) GTEST_SKIP() << "hits of one block are not used, and the reference is too slow for more";
  auto off = machine.sequence(ReplayMode::off, length), again = machine.sequence(ReplayMode::off, length);
  const Logits want = feed(off, ids, length, last), want_more = feed(off, more, 3, 0);
  feed(again, ids, length, length);
  again.begin_after_hit(ReplayMode::halo, length, hit);
  ASSERT_GT(again.replay().start, 0);
  EXPECT_TRUE(same_bits(feed(again, std::span(ids).subspan(size_t(again.replay().start)), 100, last), want));
  EXPECT_TRUE(same_bits(feed(again, more, 3, 0), want_more));
}

// R-21, section 18 item 3: with a snapshot a hit changes no bit, at the hit or below it, in any mode that uses hits.
TEST_P(NetworkTest, APrefixHitWithASnapshotIsExact) {
  if (slow) GTEST_SKIP() << "the reference is too slow for prompts of several blocks";
  const auto ids = random_ids(700, 17), more = random_ids(12, 18);
  struct Case {
    ReplayMode mode;
    int64_t snapshot_at, hit, length;
  };
  // A tail of less than K = 44 rows cannot use a snapshot at its hit, but the one a block below.
  for (const Case& one : {Case{ReplayMode::compact, 640, 640, 700}, Case{ReplayMode::compact, 512, 640, 660},
                          Case{ReplayMode::halo, 384, 640, 700}}) {
    SCOPED_TRACE(std::string(name_of(one.mode)) + " " + std::to_string(one.snapshot_at));
    const auto prompt = std::span(ids).first(size_t(one.length));
    auto cold = machine.sequence(one.mode, one.length), warm = machine.sequence(one.mode, one.length);
    const Logits want = feed(cold, prompt, one.length, one.length - 4), want_more = feed(cold, more, 3, 0);
    feed(warm, prompt.first(size_t(one.snapshot_at)), 200, one.length);
    const auto snapshot = warm.snapshot();
    feed(warm, prompt.subspan(size_t(one.snapshot_at)), 200, one.length);
    warm.begin_after_hit(one.mode, one.length, one.hit, one.snapshot_at, snapshot);
    ASSERT_EQ(warm.replay().start, one.snapshot_at);
    EXPECT_TRUE(same_bits(feed(warm, prompt.subspan(size_t(one.snapshot_at)), 100, one.length - 4), want));
    EXPECT_TRUE(same_bits(feed(warm, more, 3, 0), want_more));
  }
}

TEST_P(NetworkTest, TokensTakenBackLeaveNoTrace) {
  const auto ids = random_ids(90, 7), more = random_ids(40, 8);
  auto straight = machine.sequence(ReplayMode::off, 90), winding = machine.sequence(ReplayMode::off, 90);
  feed(straight, ids, 90, 90);
  feed(winding, ids, 90, 90);
  const Logits want = feed(straight, more, 1, 0);
  Logits got;
  for (size_t i = 0; i < more.size(); ++i) {
    // One right token and up to five wrong ones, as a verification round has them.
    std::vector<int32_t> round{more[i]};
    for (const int32_t wrong : random_ids(int64_t(i % 6), uint32_t(100 + i))) round.push_back(wrong);
    const int64_t at = winding.length();
    const auto logits = winding.feed(round, {&at, 1});
    got.insert(got.end(), logits.data, logits.data + logits.size());
    winding.take_back(at + 1);
  }
  EXPECT_TRUE(same_bits(got, want));
}

// Two sequences in one batch, pieces and single tokens mixed, against each of them alone.
TEST_P(NetworkTest, NeighboursInTheBatchDoNotShow) {
  const auto a = random_ids(75, 9), b = random_ids(33, 10);
  auto alone_a = machine.sequence(ReplayMode::off, 75), alone_b = machine.sequence(ReplayMode::off, 33);
  const Logits want_a = feed(alone_a, a, 75, 70), want_b = feed(alone_b, b, 33, 30);

  const auto layout = lay_out(machine.model.page_specs());
  auto cache = std::move(*CacheMemory::allocate(machine.backend.memory, layout, 4, 2));
  const int64_t na = 75, nb = 33;
  std::vector<int32_t> ids(b);
  ids.insert(ids.end(), a.begin(), a.end());
  std::vector<int64_t> positions;
  std::vector<int32_t> owner, logit_rows;
  for (int64_t i = 0; i < nb; ++i) positions.push_back(i), owner.push_back(0);
  for (int64_t i = 0; i < na; ++i) positions.push_back(i), owner.push_back(1);
  for (int32_t i = 30; i < 33; ++i) logit_rows.push_back(i);
  for (int32_t i = 70; i < 75; ++i) logit_rows.push_back(int32_t(nb) + i);
  const std::vector<int32_t> begin{0, int32_t(nb), int32_t(nb + na)}, blocks{3, 1}, slots{2, 1}, history(6, -1);
  const std::vector<Replay> replay(2);
  Batch batch;
  batch.rows = {{positions.data(), {na + nb}}, {owner.data(), {na + nb}}, {begin.data(), {3}}};
  batch.ids = {ids.data(), {na + nb}};
  batch.history = {history.data(), {2, 3}};
  batch.blocks = {blocks.data(), {2, 1}};
  batch.slots = {slots.data(), {2}};
  batch.replay = replay;
  batch.logit_rows = {logit_rows.data(), {int64_t(logit_rows.size())}};
  const auto logits = machine.model.forward(*machine.queue, batch, cache);
  Logits want = want_b;
  want.insert(want.end(), want_a.begin(), want_a.end());
  EXPECT_TRUE(same_bits(Logits(logits.data, logits.data + logits.size()), want));
}

TEST_P(NetworkTest, ThreadsDoNotShow) {
  const auto ids = random_ids(150, 11);
  Machine one(GetParam().backend, GetParam().numerics, 1);
  auto with_two = machine.sequence(ReplayMode::off, 150), with_one = one.sequence(ReplayMode::off, 150);
  EXPECT_TRUE(same_bits(feed(with_two, ids, 150, 140), feed(with_one, ids, 150, 140)));
}

std::vector<Setup> setups() {
  std::vector<Setup> out;
  for (const auto& backend : present_backends()) {
    for (const auto& numerics : {kReferenceNumerics, kDeepinferNumerics, kFloatNumerics})
      out.push_back({backend, numerics});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Backends, NetworkTest, testing::ValuesIn(setups()),
                         [](const auto& info) { return info.param.backend + "_" + info.param.numerics.name; });

// model.md 16.4.
TEST(RopeFrequencies, AreThoseOfTheSpecification) {
  const auto config = *preset_config("flash-sparse");
  const auto plain = plain_frequencies(config), yarn = compressed_frequencies(config);
  const auto near = [](float found, double expected) {
    EXPECT_NEAR(found, expected, expected * 4 * 0x1p-24);  // a few ulps of the power function
  };
  ASSERT_EQ(plain.size(), 32u);
  near(plain[0], 1.0), near(plain[1], 0.74989420), near(plain[15], 0.013335215), near(plain[16], 0.0099999998);
  near(plain[20], 0.0031622779), near(plain[24], 0.0010000000), near(plain[25], 0.00074989418);
  near(plain[31], 0.00013335215);
  near(yarn[0], 1.0), near(yarn[1], 0.68765604), near(yarn[15], 0.0036355385), near(yarn[16], 0.0022656249);
  near(yarn[20], 0.00029697779), near(yarn[24], 1.9531253e-05), near(yarn[25], 5.3723124e-06);
  near(yarn[31], 5.6805294e-07);
}

}  // namespace
}  // namespace fathom
