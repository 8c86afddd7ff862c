// The shared expert beside the others, in a second queue (Step::side): what it is given may be done at any time between
// the fork and the join. Here it is done as late as it may, at the join, by a cpu backend that has a second queue for
// the test, and the results have the bits of a run without one.
#include <gtest/gtest.h>

#include <functional>
#include <type_traits>

#include "fathom/backend/operation_list.h"
#include "fathom/model/text_under_test.h"

namespace fathom {
namespace {

// A table is plain functions, so what they keep is the process's.
Operations done_by;
Queue* main_queue = nullptr;
std::vector<std::function<void()>> put_off;
int64_t forks = 0, joins = 0, beside = 0;

template <auto entry, class Op>
void put_off_or_do(Queue& queue, const Op& op) {
  if (&queue == main_queue) return (done_by.*entry)(queue, op);
  ++beside;
  put_off.push_back([&queue, op] { (done_by.*entry)(queue, op); });
}
template <auto entry, class Op>
void set(void (*Operations::*)(Queue&, const Op&), Operations& table) {
  table.*entry = put_off_or_do<entry, Op>;
}

void wait_for(Queue& queue, Queue& other) {
  if (&queue != main_queue) {
    EXPECT_EQ(&other, main_queue);
    EXPECT_TRUE(put_off.empty()) << "forked before the work from the last fork was joined";
    ++forks;
    return;
  }
  ++joins;
  for (const auto& work : put_off) work();
  put_off.clear();
}

TEST(SideQueue, WhatRunsBesideTheOthersMayRunAsLateAsItIsWaitedFor) {
  const TinyFiles tiny;
  const ModelConfig& config = tiny.config;
  for (const Numerics& numerics : {kReferenceNumerics, kDeepinferNumerics}) {
    Backend backend = *open_backend("cpu");
    const auto queue = std::move(*backend.open_queue(2));
    auto plain = Model::load(tiny.checkpoint, backend, {numerics, tiny.token_map});
    ASSERT_TRUE(plain.ok()) << to_string(plain.error());
    const std::vector<float> want = logits_of_text(*plain, *queue, backend.memory, 40, 30);

    done_by = backend.ops;
    main_queue = queue.get();
    forks = joins = beside = 0;
    for_each_operation([&]<auto entry>(std::string_view) { set<entry>(entry, backend.ops); });
    backend.wait_for = wait_for;
    auto model = Model::load(tiny.checkpoint, backend, {numerics, tiny.token_map});
    ASSERT_TRUE(model.ok()) << to_string(model.error());
    EXPECT_EQ(logits_of_text(*model, *queue, backend.memory, 40, 30), want) << numerics.name;
    // Two pieces and eight tokens through all layers, eight drafts through the draft stages.
    EXPECT_EQ(forks, (2 + 8) * config.num_hidden_layers + 8 * config.num_nextn_predict_layers) << numerics.name;
    EXPECT_EQ(joins, forks);
    EXPECT_GE(beside, 4 * forks) << "gate and up, what is between, down";
    EXPECT_TRUE(put_off.empty());

    // Whoever times operations has them one after the other.
    model->record_steps(false);
    forks = beside = 0;
    EXPECT_EQ(logits_of_text(*model, *queue, backend.memory, 40, 30), want);
    EXPECT_EQ(forks + beside, 0);
  }
}

}  // namespace
}  // namespace fathom
