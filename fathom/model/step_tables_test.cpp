#include "fathom/model/step_tables.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

/// Two sequences with two rows and one, as a batch and as what it points to.
struct Arrays {
  std::vector<int64_t> positions = {40, 41, 7};
  std::vector<int32_t> sequence = {0, 0, 1}, begin = {0, 2, 3}, ids = {5, 6, 7}, history = {1, 2, 3, 4, 5, 6},
                       slots = {3, 1}, logit_rows = {0, 1, 2}, blocks = {9, 8, 7, 0};
  std::vector<Replay> replay = {Replay{.start = 2}, Replay{}};
  int64_t columns = 2;  // of the block tables

  Batch batch() const {
    const auto vector = [](const auto& values) {
      return View<const typename std::decay_t<decltype(values)>::value_type, 1>(values.data(),
                                                                                {int64_t(values.size())});
    };
    Batch out;
    out.rows = {vector(positions), vector(sequence), vector(begin)};
    out.ids = vector(ids);
    out.history = View<const int32_t, 2>(history.data(), {2, 3});
    out.blocks = View<const int32_t, 2>(blocks.data(), {2, columns});
    out.slots = vector(slots);
    out.replay = replay;
    out.logit_rows = vector(logit_rows);
    return out;
  }
};

class StepTables : public testing::Test {
 protected:
  Batch tables_of(const Arrays& arrays) {
    host_.reset();
    return as_tables(step_, arrays.batch());
  }
  static std::vector<int32_t> values(View<const int32_t, 2> table) { return {table.data, table.data + table.size()}; }

  Queue queue_{1};
  Operations ops_ = reference_operations();
  Memory memory_ = reference_backend().memory;
  Scratch scratch_{memory_}, kept_{memory_}, host_{memory_}, results_{memory_};
  ModelConfig config_;
  Step step_{queue_, ops_, scratch_, kept_, host_, results_, kReferenceNumerics, config_, nullptr, memory_};
};

TEST_F(StepTables, OfAStepThatWasExpectedGetItsTokensHistoryAndBlocks) {
  step_.repeatable = true;
  Arrays expected, real;
  expected.ids = {0, 0, 0};
  expected.history = {0, 0, 0, 0, 0, 0};
  real.columns = 3;  // a block more, within the width of the tables
  real.blocks = {9, 8, 4, 7, 6, 0};
  const Batch want = tables_of(real);
  const auto blocks = values(want.blocks), history = values(want.history);
  ASSERT_EQ(want.blocks.shape, (std::array<int64_t, 2>{3, kTableBlocks})) << "with a row of zeros";

  const Batch tables = tables_of(expected);
  ASSERT_TRUE(is_as_expected(real.batch(), tables, expected.replay));
  fill_in(real.batch(), tables);
  EXPECT_EQ(values(tables.blocks), blocks);
  EXPECT_EQ(values(tables.history), history);
  EXPECT_TRUE(std::equal(real.ids.begin(), real.ids.end(), tables.ids.data));
}

TEST_F(StepTables, OfAnotherStepAreNotAsExpected) {
  step_.repeatable = true;
  const Arrays expected;
  const Batch tables = tables_of(expected);
  const auto as_expected = [&](const auto& change) {
    Arrays other;
    change(other);
    return is_as_expected(other.batch(), tables, expected.replay);
  };
  EXPECT_TRUE(as_expected([](Arrays&) {}));
  EXPECT_FALSE(as_expected([](Arrays& a) { a.positions[2] = 8; }));
  EXPECT_FALSE(as_expected([](Arrays& a) { a.sequence[1] = 1, a.begin[1] = 1; }));
  EXPECT_FALSE(as_expected([](Arrays& a) { a.slots[0] = 2; }));
  EXPECT_FALSE(as_expected([](Arrays& a) { a.replay[1].decoder_cut = 1; }));
  EXPECT_FALSE(as_expected([](Arrays& a) { a.columns = 17, a.blocks.assign(34, 1); }));
}

}  // namespace
}  // namespace fathom
