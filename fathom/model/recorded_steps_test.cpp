// Steps that a device records and runs again give what they give operation by operation, bit for bit: decode steps,
// those whose tables were written ahead, and draft steps.
#include <gtest/gtest.h>

#include <vector>

#include "fathom/model/make_checkpoint.h"
#include "fathom/model/presets.h"
#include "fathom/model/single_sequence.h"

namespace fathom {
namespace {

constexpr int64_t kPrompt = 21, kSteps = 20;  // past groups of two, and past the windows' 16 positions

/// The tiny model on a backend.
struct Tiny {
  ModelConfig config = *preset_config("tiny");
  ThreadPool pool{2};
  Result<MemoryCheckpoint> files = make_checkpoint_in_memory(config, {.seed = 4}, int64_t(1) << 30, pool);
  Result<Checkpoint> checkpoint = Checkpoint::open(files->files());
  std::vector<int32_t> token_map;
  std::unique_ptr<Queue> queue;
  Memory memory;
  Operations ops;

  Result<Model> load(const Backend& backend, bool device_logits) {
    for (int64_t i = 0; i < config.vocab_size; ++i) {
      token_map.push_back(int32_t(i % int64_t(config.engram_compressed_vocab_size)));
    }
    ModelOptions options{kReferenceNumerics, token_map};
    options.device_logits = device_logits;
    queue = std::move(*backend.open_queue(1));
    memory = backend.memory;
    ops = backend.ops;
    return Model::load(*checkpoint, backend, options);
  }
  SingleSequence sequence(Model& model) {
    auto out = SingleSequence::open(model, *queue, memory, 128);
    check(out.ok(), "a cache of 128 tokens fits");
    out->begin(ReplayMode::off, kPrompt);
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < kPrompt; ++i) prompt.push_back(i * 11 % 300);
    out->feed(prompt, {});
    return std::move(*out);
  }
};

template <class T>
void append(std::vector<T>& to, const std::vector<T>& row) {
  to.insert(to.end(), row.begin(), row.end());
}

struct Seen {
  std::vector<std::vector<uint8_t>> logits;
  std::vector<float> latents, keys, window;
};

enum class How { each, recorded, foreseen };

// Tokens one by one behind the prompt.
Seen decode(Tiny& tiny, Model& model, How how) {
  model.record_steps(how != How::each);
  SingleSequence sequence = tiny.sequence(model);
  Seen seen;
  for (int32_t i = 0; i < kSteps; ++i) {
    const int32_t token[] = {i * 13 % 300};
    const int64_t position[] = {kPrompt + i};
    const auto logits = sequence.feed(token, position);
    if (how == How::foreseen && i % 5 != 4) sequence.expect(1);  // while the device works, and sometimes not
    seen.logits.push_back(sequence.bytes(
        AnyView(reinterpret_cast<const uint8_t*>(logits.data), DType::f32, logits.shape[0], logits.shape[1])));
    if (how == How::foreseen && i % 7 == 6) sequence.expect(2);  // that does not come
  }
  for (int64_t entry = 0; entry < 20; ++entry) {  // layer 2: two tokens an entry
    append(seen.latents, sequence.latent_row(2, entry));
    append(seen.keys, sequence.key_row(2, entry));
  }
  for (int64_t position = 26; position < 41; ++position) append(seen.window, sequence.window_row(3, position));
  return seen;
}

class RecordedSteps : public testing::TestWithParam<bool> {};  // whether logits stay on the device

TEST_P(RecordedSteps, GiveWhatStepsGiveOperationByOperation) {
  const auto backend = cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  Tiny tiny;
  auto model = tiny.load(*backend, GetParam());
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  const Seen each = decode(tiny, *model, How::each);
  for (const How how : {How::recorded, How::foreseen}) {
    const Seen recorded = decode(tiny, *model, how);
    EXPECT_EQ(recorded.logits, each.logits);
    EXPECT_EQ(recorded.latents, each.latents);
    EXPECT_EQ(recorded.keys, each.keys);
    EXPECT_EQ(recorded.window, each.window);
  }
  EXPECT_NE(each.logits[0], each.logits[1]) << "the steps differ, or nothing was compared";
}

INSTANTIATE_TEST_SUITE_P(Logits, RecordedSteps, testing::Bool());

struct Round {
  std::vector<int32_t> ids;
  std::vector<float> scores;
  std::vector<TokenWeight> laws;
  std::vector<int32_t> counts;
  friend bool operator==(const Round&, const Round&) = default;
};

// Greedy, sampled with and without bounds: as requests are mixed.
std::vector<RowSampling> draws_behind(int64_t position, int positions) {
  std::vector<RowSampling> out;
  for (int p = 0; p < positions; ++p) {
    RowSampling row;
    row.temperature = position % 3 == 0 ? 0.f : 1.5f;
    row.top_p = position % 3 == 1 ? 0.5f : 1.f;
    row.seed = 17;
    row.position = uint32_t(position + p);
    out.push_back(row);
  }
  return out;
}

// A round of drafts behind each of the tokens; the newest one of a round is a number of its own.
std::vector<Round> draft(Tiny& tiny, Model& model, bool record, bool laws, bool at_once) {
  model.record_steps(record);
  SingleSequence sequence = tiny.sequence(model);
  const int positions = tiny.config.dspark_block_size;
  const int64_t vocabulary = tiny.config.vocab_size;
  std::vector<Round> rounds;
  for (int32_t i = 0; i < kSteps; ++i) {
    const int32_t token = i * 13 % 300, newest = i * 7 % 300;
    sequence.feed({&token, 1}, {});
    const auto draws = draws_behind(sequence.length() + 1, positions);
    Round round;
    if (at_once) {
      const DrawnDrafts drawn = sequence.propose(newest, {positions, draws, laws ? vocabulary : 0});
      tiny.queue->wait();
      for (int p = 0; p < positions; ++p) {
        round.ids.push_back(drawn.ids(p, 0));
        round.scores.push_back(confidence_of(drawn.scores(p, 0)));
        if (!laws) continue;
        round.counts.push_back(drawn.counts[p]);
        const auto law = drawn.laws.row(p).first(size_t(drawn.counts[p]));
        round.laws.insert(round.laws.end(), law.begin(), law.end());
      }
    } else {
      sequence.draft(newest);
      std::vector<float> logits(static_cast<size_t>(vocabulary));
      int32_t previous = newest;
      for (int p = 0; p < positions; ++p) {
        float confidence = 0;
        model.markov(*tiny.queue, p, {&previous, {1}}, {logits.data(), {1, vocabulary}}, {&confidence, {1}});
        int32_t count = 0;
        std::vector<TokenWeight> law(static_cast<size_t>(vocabulary));
        Sample op;
        op.logits = {logits.data(), {1, vocabulary}};
        op.rows = {&draws[size_t(p)], 1};
        op.ids = {&previous, {1}};
        op.lists = {law.data(), {1, vocabulary}};
        op.list_counts = {&count, {1}};
        tiny.ops.sample(*tiny.queue, op);
        round.ids.push_back(previous);
        round.scores.push_back(confidence);
        if (!laws) continue;
        round.counts.push_back(count);
        round.laws.insert(round.laws.end(), law.begin(), law.begin() + count);
      }
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

class DrawnDraftsTest : public testing::TestWithParam<const char*> {};  // a backend

TEST_P(DrawnDraftsTest, AreThoseOfOnePositionAfterTheOtherRecordedOrNot) {
  const auto backend = open_backend(GetParam());
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  Tiny tiny;
  auto model = tiny.load(*backend, true);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  for (const bool laws : {true, false}) {
    const auto want = draft(tiny, *model, false, laws, false);
    EXPECT_EQ(draft(tiny, *model, false, laws, true), want);
    EXPECT_EQ(draft(tiny, *model, true, laws, true), want);
    EXPECT_NE(want[0].ids, want[1].ids) << "the rounds differ, or nothing was compared";
    EXPECT_EQ(want[0].laws.empty(), !laws);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DrawnDraftsTest, testing::Values("cpu", "cuda"));

}  // namespace
}  // namespace fathom
