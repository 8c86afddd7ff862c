#include "fathom/engine/step_log.h"

#include <gtest/gtest.h>

#include "fathom/engine/counted_allocations.h"

namespace fathom {
namespace {

StepEntry entry_of(SequenceId id, int rows) {
  StepEntry out;
  out.sequence = id;
  out.rows = rows;
  return out;
}

// Step n has n mod 7 entries, of sequences 100 n, 100 n + 1, ...
void add(StepLog& log, uint64_t step) {
  for (uint64_t i = 0; i < step % 7; ++i) log.add_entry(entry_of(100 * step + i, int(i)));
  StepSummary summary;
  summary.step = step;
  log.add(summary);
}

TEST(StepLog, KeepsTheLastStepsInOrder) {
  StepLog log({.steps = 10, .entries = 1'000});
  for (uint64_t step = 1; step <= 25; ++step) {
    add(log, step);
    ASSERT_EQ(log.size(), std::min<size_t>(step, 10));
    for (size_t i = 0; i < log.size(); ++i) ASSERT_EQ(log.summary(i).step, step - log.size() + 1 + i);
  }
}

TEST(StepLog, EntriesOfTheOldestStepsMakeRoomFirst) {
  StepLog log({.steps = 50, .entries = 20});
  for (uint64_t step = 1; step <= 200; ++step) {
    add(log, step);
    uint64_t behind = 0;  // entries of it and of the steps after it
    for (size_t i = log.size(); i-- > 0;) {
      const uint64_t number = log.summary(i).step;
      behind += number % 7;
      const auto entries = log.entries(i);
      ASSERT_EQ(entries.has_value(), behind <= 20) << "step " << number << " after " << step;
      if (!entries) continue;
      ASSERT_EQ(entries->size(), number % 7);
      for (size_t e = 0; e < entries->size(); ++e) ASSERT_EQ((*entries)[e], entry_of(100 * number + e, int(e)));
    }
  }
}

TEST(StepLog, AStepWithMoreEntriesThanThereIsRoomForKeepsItsSummary) {
  StepLog log({.steps = 4, .entries = 3});
  for (SequenceId id = 0; id < 5; ++id) log.add_entry(entry_of(id, 1));
  log.add({.step = 1});
  EXPECT_FALSE(log.entries(0));
  log.add_entry(entry_of(9, 2));
  log.add({.step = 2});
  ASSERT_TRUE(log.entries(1));
  EXPECT_EQ((*log.entries(1))[0], entry_of(9, 2));
}

TEST(StepLog, AddingAllocatesNothing) {
  StepLog log({.steps = 100, .entries = 500});
  const int64_t before = allocations_of_this_thread();
  for (uint64_t step = 1; step <= 1'000; ++step) add(log, step);
  EXPECT_EQ(allocations_of_this_thread(), before);
}

TEST(StepLog, JsonHasSummariesAndEntries) {
  StepLog log({.steps = 4, .entries = 2});
  log.add_entry({.sequence = 5,
                 .first = 130,
                 .rows = 6,
                 .decoder_rows = 6,
                 .drafts = 5,
                 .accepted = 2,
                 .kept = 3,
                 .finish = int8_t(FinishReason::stop),
                 .prompt = false});
  StepSummary summary;
  summary.step = 1;
  add_round(summary, 6, 5, 2);
  log.add(summary);
  log.add_entry(entry_of(6, 1)), log.add_entry(entry_of(7, 1));
  log.add({.step = 2});
  const auto read = parse_json(log.json(), "test");
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  const auto& steps = read->find("steps")->items;
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].find("step")->as_int64(), 1);
  EXPECT_EQ(steps[0].find("kind")->text, "decode");
  EXPECT_TRUE(steps[0].find("entries")->is_null()) << "they have made room";
  EXPECT_EQ(to_string(*steps[1].find("entries")), "[[6,0,1,0,0,0,0,null,false],[7,0,1,0,0,0,0,null,false]]");
  EXPECT_EQ(read->find("entry_fields")->items.size(), 9u);
  const auto last = parse_json(log.json(1), "test");
  EXPECT_EQ(last->find("steps")->items.size(), 1u);
}

TEST(StepLog, ANotedEntryCountsInTheSummaryAndStandsInTheLog) {
  StepLog log({.steps = 4, .entries = 8});
  StepSummary summary;
  // A round that verified 3 of 5 planned drafts, took 2 and one more token, of which a stop token was the second.
  note_entry(summary, &log, {7, 130, 6, 6, 5, 6}, {.rows = 4, .drafts = 3, .tokens = 3}, {7, 2, FinishReason::stop});
  // The last piece of a prompt; 16 rows of it below its hit.
  note_entry(summary, &log, {8, 112, 100, 40, 0, 1}, {.prompt = true, .rows = 100, .tokens = 1, .replayed_rows = 16},
             {8, 1, {}});
  // A sequence that had ended on the device: nothing of it ran.
  note_entry(summary, &log, {9, 50, 6, 6, 5, 6}, {}, {9, 0, {}});
  log.add(summary);
  EXPECT_EQ(summary.decode_sequences, 1);
  EXPECT_EQ(summary.decode_rows, 4);
  EXPECT_EQ(summary.offered, (std::array<int32_t, kMaxDrafts>{1, 1, 1}));
  EXPECT_EQ(summary.accepted, (std::array<int32_t, kMaxDrafts>{1, 1, 0}));
  EXPECT_EQ(summary.prompt_rows, 100);
  EXPECT_EQ(summary.decoder_rows, 40);
  EXPECT_EQ(summary.replayed_rows, 16);
  EXPECT_EQ(summary.tokens, 3);
  EXPECT_EQ(summary.finished, 1);
  const auto entries = log.entries(0);
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_EQ((*entries)[0], (StepEntry{7, 130, 4, 4, 3, 2, 2, int8_t(FinishReason::stop), false}));
  EXPECT_EQ((*entries)[1], (StepEntry{8, 112, 100, 40, 0, 0, 1, -1, true}));
}

// Case obs-03 wants an error of a step to name the step and the shape of its batch.
TEST(StepSummary, ItsShapeNamesTheStepAndWhatRan) {
  StepSummary summary;
  summary.step = 100;
  add_prompt_piece(summary, 2'048, 0, 0);
  add_round(summary, 6, 5, 0);
  EXPECT_EQ(shape_of(summary), "step=100 kind=mixed prompt_pieces=1 prompt_rows=2048 decode_sequences=1 decode_rows=6");
}

TEST(StepSummary, ReplayedRowsAreThoseBelowTheHit) {
  Replay replay;
  replay.store_from = 5'248;
  EXPECT_EQ(replayed_rows(replay, 5'120, 180), 128);
  EXPECT_EQ(replayed_rows(replay, 5'300, 10), 0);
  EXPECT_EQ(replayed_rows(replay, 5'000, 100), 100);
}

TEST(StepSummary, TellsHowPoolsAndQueuesStand) {
  Scheduler scheduler({.context = 1'000, .sequences = 4, .step_rows = 100, .blocks = 64});
  Sequence sequence;
  sequence.id = 1;
  sequence.ids.assign(300, 3);
  sequence.prompt_tokens = 300;
  scheduler.submit(sequence);
  StepSummary summary;
  add_plan(summary, scheduler.plan(0));
  add_standing(summary, scheduler);
  EXPECT_EQ(summary.running, 1);
  EXPECT_EQ(summary.waiting, 0);
  EXPECT_EQ(summary.used_blocks, 1);
  EXPECT_EQ(summary.free_blocks, 63);
  EXPECT_EQ(summary.used_slots, 1);
  EXPECT_EQ(summary.free_slots, 3);
}

}  // namespace
}  // namespace fathom
