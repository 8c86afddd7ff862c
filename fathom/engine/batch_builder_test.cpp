#include "fathom/engine/batch_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom {
namespace {

using testing::ElementsAre;

template <class T>
std::vector<std::remove_const_t<T>> list(View<T, 1> view) {
  return {view.data, view.data + view.size()};
}

LiveSequence sequence_of(std::vector<int32_t> ids, int64_t prompt, int64_t cached, std::vector<int32_t> blocks,
                         int32_t slot) {
  LiveSequence sequence;
  sequence.ids = std::move(ids);
  sequence.prompt_tokens = prompt;
  sequence.cached = cached;
  sequence.blocks = std::move(blocks);
  sequence.slot = slot;
  return sequence;
}

TEST(BatchBuilder, MakesFlatArraysOfDecodeRowsAndPromptPieces) {
  LiveSequence decoding = sequence_of({10, 11, 12, 13}, 3, 3, {5}, 2);
  decoding.proposed = {20, 21};
  decoding.replay.decoder_from = 1;
  const LiveSequence fresh = sequence_of({30, 31}, 2, 0, {7, 8}, 1);
  const LiveSequence middle = sequence_of({40, 41, 42, 43, 44}, 5, 2, {9}, 3);
  StepPlan plan;
  plan.rows = {{1, 3, 3, 3, 2, 3}, {2, 0, 2, 2, 0, 1}, {3, 2, 2, 2, 0, 0}};
  BatchBuilder builder(3);
  const std::vector<const LiveSequence*> sequences = {&decoding, &fresh, &middle};
  const Batch& batch = builder.build(plan, sequences);
  EXPECT_THAT(list(batch.ids), ElementsAre(13, 20, 21, 30, 31, 42, 43));
  EXPECT_THAT(list(batch.rows.positions), ElementsAre(3, 4, 5, 0, 1, 2, 3));
  EXPECT_THAT(list(batch.rows.sequence), ElementsAre(0, 0, 0, 1, 1, 2, 2));
  EXPECT_THAT(list(batch.rows.begin), ElementsAre(0, 3, 5, 7));
  EXPECT_THAT(list(batch.logit_rows), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(list(batch.slots), ElementsAre(2, 1, 3));
  // Newest first; -1 before the start. Drafts are not part of the history of their own rows.
  EXPECT_THAT(batch.history.row(0), ElementsAre(12, 11, 10));
  EXPECT_THAT(batch.history.row(1), ElementsAre(-1, -1, -1));
  EXPECT_THAT(batch.history.row(2), ElementsAre(41, 40, -1));
  EXPECT_THAT(batch.blocks.row(0), ElementsAre(5, 0));
  EXPECT_THAT(batch.blocks.row(1), ElementsAre(7, 8));
  EXPECT_THAT(batch.blocks.row(2), ElementsAre(9, 0));
  EXPECT_EQ(batch.replay[0].decoder_from, 1);
  EXPECT_TRUE(batch.image.empty());
  EXPECT_EQ(builder.logit_row(0), 0);
  EXPECT_EQ(builder.logit_row(1), 3);
}

TEST(BatchBuilder, UsesItsArraysAgain) {
  const LiveSequence large = sequence_of(std::vector<int32_t>(100, 4), 100, 0, {1}, 1);
  const LiveSequence small = sequence_of({5}, 1, 0, {2}, 2);
  StepPlan first, second;
  first.rows = {{1, 0, 100, 100, 0, 1}};
  second.rows = {{2, 0, 1, 1, 0, 1}};
  BatchBuilder builder(3);
  const std::vector<const LiveSequence*> a = {&large}, b = {&small};
  const int32_t* ids = builder.build(first, a).ids.data;
  const Batch& batch = builder.build(second, b);
  EXPECT_EQ(batch.ids.data, ids);
  EXPECT_THAT(list(batch.ids), ElementsAre(5));
  EXPECT_THAT(list(batch.logit_rows), ElementsAre(0));
}

}  // namespace
}  // namespace fathom
