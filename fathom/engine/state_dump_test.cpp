#include "fathom/engine/state_dump.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fathom {
namespace {

Sequence sequence_of(SequenceId id, int64_t prompt, int32_t token, double arrived) {
  Sequence out;
  out.id = id;
  out.ids.assign(size_t(prompt), token);
  out.prompt_tokens = prompt;
  out.max_tokens = 10;
  out.arrived = arrived;
  out.tenant = uint32_t(id % 2);
  return out;
}

// Two run (one has its prompt behind it, one is in it), two wait, one of them for its grammar.
struct Fixture {
  Scheduler scheduler{{.context = 1'000, .sequences = 2, .step_rows = 300, .blocks = 64}};
  Fixture() {
    scheduler.submit(sequence_of(1, 260, 4'321, 10));
    scheduler.submit(sequence_of(2, 400, 4'322, 11));
    Sequence compiling = sequence_of(4, 20, 4'324, 12);
    compiling.ready = false;
    scheduler.submit(compiling);
    scheduler.submit(sequence_of(3, 20, 4'323, 13));
    const StepPlan plan = scheduler.plan(14);
    scheduler.commit(plan, {{7}, {0, 1, 1}, {3, 0}});
  }
};

std::vector<int64_t> ids_in(const Json& list) {
  std::vector<int64_t> out;
  for (const Json& one : list.items) out.push_back(*one.find("id")->as_int64());
  return out;
}

TEST(StateDump, TellsWhatRunsAndWaitsAndWhatItHolds) {
  Fixture f;
  const Json state = state_of(f.scheduler, 20);
  EXPECT_EQ(ids_in(*state.find("running")), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(ids_in(*state.find("waiting")), (std::vector<int64_t>{4, 3}));
  const Json& first = state.find("running")->items[0];
  EXPECT_EQ(first.find("age_seconds")->as_double(), 10);
  EXPECT_EQ(first.find("prompt_tokens")->as_int64(), 260);
  EXPECT_EQ(first.find("generated_tokens")->as_int64(), 1);
  EXPECT_EQ(first.find("computed_tokens")->as_int64(), 260);
  EXPECT_EQ(first.find("drafts")->as_int64(), 3);
  EXPECT_EQ(first.find("blocks")->as_int64(), 3);
  EXPECT_EQ(first.find("in_prompt")->as_bool(), false);
  const Json& second = state.find("running")->items[1];
  EXPECT_EQ(second.find("in_prompt")->as_bool(), true);
  EXPECT_EQ(second.find("computed_tokens")->as_int64(), 40);
  EXPECT_EQ(state.find("waiting")->items[0].find("loading")->as_bool(), true);
  EXPECT_EQ(state.find("waiting")->items[1].find("loading"), nullptr);
  const Json& blocks = *state.find("pools")->find("blocks");
  EXPECT_EQ(blocks.find("capacity")->as_int64(), 64);
  EXPECT_EQ(blocks.find("used")->as_int64(), 4);
  EXPECT_EQ(state.find("counts")->find("admitted")->as_int64(), 2);
  EXPECT_EQ(state.find("snapshots")->find("bytes")->as_int64(), 0);
  EXPECT_EQ(state.find("prefixes")->find("hit_tokens")->fields.size(), size_t(kCacheTiers));
}

TEST(StateDump, HasTokenIdsOnlyWhenTheyAreAskedFor) {
  Fixture f;
  const std::string closed = to_string(state_of(f.scheduler, 20));
  for (const char* id : {"4321", "4322", "4323", "4324", "token_ids"}) EXPECT_EQ(closed.find(id), std::string::npos);
  StateOptions options;
  options.token_ids = true;
  const Json open = state_of(f.scheduler, 20, options);
  EXPECT_EQ(open.find("running")->items[0].find("token_ids")->items.size(), 261u);
}

TEST(StateDump, TellsTenantsApartWithoutTheirNames) {
  Fixture f;
  StateOptions options;
  options.tenant_name = [](uint32_t tenant) { return tenant == 0 ? "" : "a company"; };
  options.tenant_key = 99;
  const Json state = state_of(f.scheduler, 20, options);
  EXPECT_EQ(to_string(state).find("company"), std::string::npos);
  const auto tenant = [&](const char* list, size_t i) { return state.find(list)->items[i].find("tenant")->text; };
  EXPECT_EQ(tenant("running", 0), tenant_digest("a company", 99));
  EXPECT_EQ(tenant("running", 0).size(), 12u);
  EXPECT_EQ(tenant("running", 0), tenant("waiting", 1));  // 1 and 3
  EXPECT_NE(tenant("running", 0), tenant("running", 1));
  EXPECT_NE(tenant_digest("a company", 99), tenant_digest("a company", 98)) << "another process, another digest";
}

TEST(StateDump, SaysHowManySequencesItLeavesOut) {
  Fixture f;
  StateOptions options;
  options.most_sequences = 1;
  const Json state = state_of(f.scheduler, 20, options);
  EXPECT_EQ(state.find("running")->items.size(), 1u);
  EXPECT_EQ(state.find("running_left_out")->as_int64(), 1);
  EXPECT_EQ(state.find("waiting_left_out")->as_int64(), 1);
}

}  // namespace
}  // namespace fathom
