// Step times by the formulas of spec/memory.md, and machines from files.
#include "fathom/engine/simulated_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fathom/model/config.h"

namespace fathom {
namespace {

using testing::HasSubstr;

Hardware h200(int devices) {
  return {"H200", devices, 141'000'000'000, 4.8e12, 1979e12, 989e12, 450e9, 0, "bound", "bound"};
}
const MachineCost& eight_h200() {
  static const MachineCost machine = *machine_cost(ModelConfig{}, h200(8));
  return machine;
}

SimulatedStep decode(const MachineCost& machine, int sequences, int64_t context, int rows_each) {
  SimulatedStep step;
  for (int i = 0; i < sequences; ++i) add_decode(step, machine, context, rows_each);
  return step;
}

// memory.md 6: shared weights 8.523 GB on every device, experts 4.51 GB at one row, 288.7 GB at 512, spread over 8.
TEST(SimulatedMachine, ReadsTheBytesOfAStep) {
  const MachineCost& machine = eight_h200();
  const double shared = 8'522'921'408 / 4.8e12 * 1000;
  EXPECT_NEAR(forward_ms(machine, decode(machine, 1, 1, 1)), shared + 4.512e9 / 8 / 4.8e12 * 1000, 0.001);
  EXPECT_NEAR(forward_ms(machine, decode(machine, 512, 1, 1)), shared + (297.2e9 - 8.52e9) / 8 / 4.8e12 * 1000, 0.02);
  // 35.0 MB of cache a sequence at 131,072 tokens, read once however many rows it has.
  const double cache = 35.0e6 / 8 / 4.8e12 * 1000;
  EXPECT_NEAR(decode(machine, 1, 131'072, 1).read_ms, cache, 0.01 * cache);
  EXPECT_EQ(decode(machine, 1, 131'072, 6).read_ms, decode(machine, 1, 131'072, 1).read_ms);
}

// memory.md 5: 32.26 GFLOP a row in FP8, 3.221 + 0.218 in BF16 at 4,096 tokens; prompt rows 15.79, 1.544, 12288 x p.
TEST(SimulatedMachine, ComputesTheOperationsOfItsRows) {
  const MachineCost& machine = eight_h200();
  const double row = (32.26e9 / 1979e12 + 3.439e9 / 989e12) / 8 * 1000;
  EXPECT_NEAR(decode(machine, 1, 4096, 6).row_ms, 6 * row, 0.005 * 6 * row);
  SimulatedStep prompt;
  add_prompt(prompt, machine, 4096, 0, 0);
  add_prompt(prompt, machine, 4096 - 500, 1000, 0);
  const double prompt_row = (15.79e9 / 1979e12 + (1.544e9 + 12288.0 * 4096) / 989e12) / 8 * 1000;
  EXPECT_NEAR(prompt.row_ms, 1000 * prompt_row, 0.01 * 1000 * prompt_row);
  SimulatedStep last;
  add_prompt(last, machine, 4096 - 500, 1000, 1000);
  EXPECT_NEAR(last.row_ms, 1000 * row, 0.01 * 1000 * row) << "a row of both halves is a decode row";
}

TEST(SimulatedMachine, IsARoofline) {
  const MachineCost& machine = eight_h200();
  // 64 rows read 191.9 GB of weights: memory. 6,000 rows compute 2.6 us each: arithmetic.
  const SimulatedStep few = decode(machine, 64, 4096, 1), many = decode(machine, 1000, 4096, 6);
  EXPECT_GT(forward_ms(machine, few), 2 * few.row_ms);
  EXPECT_NEAR(forward_ms(machine, many), many.row_ms, 1e-9);
  // Where all experts are read anyway, prompt rows hide behind them until arithmetic is the longer one.
  SimulatedStep mixed = decode(machine, 512, 4096, 1);
  const double before = forward_ms(machine, mixed);
  add_prompt(mixed, machine, 0, 1024, 140);
  EXPECT_LT(forward_ms(machine, mixed), before + 0.05);
  add_prompt(mixed, machine, 0, 10'000, 140);
  EXPECT_NEAR(forward_ms(machine, mixed), mixed.row_ms, 1e-9);
}

// memory.md 6: 2.78 GB in a round of one request; 5: about 15.0 GFLOP, where the table has two digits.
TEST(SimulatedMachine, DraftsReadTheirStagesOnce) {
  const MachineCost one_device = [] {
    Hardware big = h200(1);
    big.memory_bytes = 1'000'000'000'000;
    return *machine_cost(ModelConfig{}, big);
  }();
  EXPECT_NEAR(draft_ms(one_device, 1), 2.78e9 / 4.8e12 * 1000, 0.01 * 0.579);
  EXPECT_EQ(draft_ms(one_device, 0), 0);
  // 16,000 sequences compute.
  EXPECT_NEAR(draft_ms(one_device, 16'000), 16'000 * 15.0e9 / 1979e12 * 1000, 0.03 * 121.3);
}

// memory.md 1 and 3: 114,048 bytes a block and 3,128,928 a slot beside the weights; 1 H200 cannot hold them.
TEST(SimulatedMachine, HasTheCacheThatFitsBesideTheWeights) {
  const auto one = machine_cost(ModelConfig{}, h200(1));
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(to_string(one.error()), HasSubstr("8xH200"));
  const MachineCost& machine = eight_h200();
  EXPECT_EQ(machine.sequences, 2048);
  const double left = 8 * (0.98 * 141e9 - 256 * 3'128'928.0) - double(machine.blocks) * 114'048;
  // Weights: experts 288.8 + 7.2 GB once, 8.5 + 1.3 (embed) + 0.7 (drafts) on each device; scratch below 2 GB each.
  EXPECT_GT(left, 296e9 + 8 * 10.5e9);
  EXPECT_LT(left, 296e9 + 8 * 12.7e9);
}

TEST(SimulatedMachine, PadsDecodeStepsToGraphs) {
  const MachineCost& machine = eight_h200();
  for (const auto& [rows, padded] :
       {std::pair{1, 1}, {2, 2}, {3, 4}, {5, 8}, {8, 8}, {9, 16}, {17, 24}, {1536, 1536}}) {
    EXPECT_EQ(padded_rows(machine, rows), padded);
  }
  MachineCost any = machine;
  any.padded_to = 0;
  EXPECT_EQ(padded_rows(any, 9), 9);
  EXPECT_EQ(forward_ms(machine, decode(machine, 3, 1, 3)), forward_ms(machine, decode(machine, 3, 1, 4)));
}

// engine.md 14: 195 graphs at 256 sequences: 1, 2, 4 and every multiple of 8 up to 1,536.
TEST(SimulatedMachine, TheStartCurveHasAllGraphSizes) {
  const CostCurve curve = start_curve(eight_h200(), 1536);
  EXPECT_EQ(curve.size(), 195u);
  EXPECT_EQ(curve.back().rows, 1536);
  for (size_t i = 1; i < curve.size(); ++i) {
    ASSERT_GT(curve[i].rows, curve[i - 1].rows);
    ASSERT_GE(curve[i].milliseconds, curve[i - 1].milliseconds);
  }
}

TEST(SimulatedMachine, AFileReadsBackTheSame) {
  const auto read = parse_machine_cost(to_string(to_json(eight_h200())), "m");
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  EXPECT_TRUE(*read == eight_h200());
  const auto small = parse_machine_cost(R"({"weights":[[1,5],[64,6.3]],"overlaps":false,"padded_to":0})", "small.json");
  ASSERT_TRUE(small.ok()) << to_string(small.error());
  EXPECT_EQ(small->name, "small.json");
  EXPECT_EQ(small->from, "measured");
  SimulatedStep step;
  step.decode_rows = 127;  // beyond the curve by its last slope: 6.3 + 63 x 1.3 / 63
  EXPECT_NEAR(forward_ms(*small, step), 7.6, 1e-9);
}

// Measured curves add up: the decode curve has its rows' arithmetic in it, prompt rows come on top.
TEST(SimulatedMachine, MeasuredTimesAddUp) {
  const auto machine = *parse_machine_cost(
      R"({"weights":[[1,5],[64,6]],"contexts":[[0,0,0,0.02],[1000,0.5,0,0.04]],"overlaps":false,"padded_to":0})", "m");
  SimulatedStep step;
  add_decode(step, machine, 1000, 1);
  EXPECT_NEAR(forward_ms(machine, step), 5.5, 1e-9);
  add_prompt(step, machine, 450, 100, 0);  // at 500 tokens on average: 0.03 ms a row
  EXPECT_NEAR(forward_ms(machine, step), 5.5 + 3, 1e-9);
}

TEST(SimulatedMachine, AFileThatIsWrongIsToldItsKey) {
  for (const auto& [text, want] : {std::pair<const char*, const char*>{"[]", "no object"},
                                   {"{}", "\"weights\" is missing"},
                                   {R"({"weights":[]})", "\"weights\" is no list"},
                                   {R"({"weights":[[1,2,3]]})", "\"weights\" is no list"},
                                   {R"({"weights":[[2,1],[1,2]]})", "\"weights\" is no list"},
                                   {R"({"weights":[[1,2],[2,1]]})", "falls with more rows"},
                                   {R"({"weights":[[0,2]]})", "no positive rows"},
                                   {R"({"weights":[[1,2]],"step_ms":-1})", "\"step_ms\" is no number"},
                                   {R"({"weights":[[1,2]],"padded_to":1.5})", "\"padded_to\" is no integer"},
                                   {R"({"weights":[[1,2]],"sequences":0})", "\"sequences\" is 0"},
                                   {R"({"weights":[[1,2]],"speed":3})", "\"speed\" is unknown"}}) {
    const auto read = parse_machine_cost(text, "m.json");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(to_string(read.error()), HasSubstr(want));
    EXPECT_THAT(to_string(read.error()), HasSubstr("m.json"));
  }
}

}  // namespace
}  // namespace fathom
