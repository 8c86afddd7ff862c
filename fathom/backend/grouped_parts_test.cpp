// A grouped product in parts, each with some of the experts: the bits of the whole. What brings weights piece by piece
// (model/moe/expert_slots.h) relies on it.
#include "fathom/backend/stored_matrix.h"
#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

class GroupedPartsTest : public OverTables {};
INSTANTIATE_TEST_SUITE_P(Tables, GroupedPartsTest, all_tables(), table_name);

struct Mixture {
  int64_t n, k, experts, rows;  // rows: of the busiest expert; the others have 0 to that many
};

std::vector<int32_t> begins(const Mixture& m) {
  std::vector<int32_t> begin{0};
  for (int64_t e = 0; e < m.experts; ++e) {
    const int64_t rows = e == 1   ? m.rows
                         : e == 2 ? 0
                                  : int64_t(philox(11, {uint32_t(e), 0, 0, 0})[0] % uint64_t(m.rows + 1));
    begin.push_back(begin.back() + int32_t(rows));
  }
  return begin;
}

TEST_P(GroupedPartsTest, HaveTheBitsOfTheWholeInAnyOrder) {
  // Few rows of an expert, and on a device 17 and more on average: the kernels for many, if the queue allows them.
  for (const Mixture m : {Mixture{192, 256, 9, 3}, Mixture{192, 128, 40, 60}, Mixture{2304, 256, 9, 150}}) {
    if (m.n == 2304 && ops().name != std::string("cuda")) continue;  // minutes by the definition
    for (const bool invariant : {true, false}) {
      queue.batch_invariant = invariant;
      std::vector<Stored> stored_weights;
      std::vector<Matrix> weights;
      for (int64_t e = 0; e < m.experts; ++e)
        stored_weights.push_back(stored_weight(DType::f4_e2m1, m.n, m.k, 50 + uint64_t(e)));
      for (const Stored& one : stored_weights) weights.push_back(one);
      const auto begin = begins(m);
      const int64_t all = begin.back(), x_rows = m.rows;
      const Stored x = stored(DType::f8_e4m3, x_rows, m.k, 1, 7);
      std::vector<int32_t> x_row;
      for (int64_t a = 0; a < all; ++a) x_row.push_back(int32_t(a * 7 % x_rows));
      Tensor whole(DType::bf16, all, m.n), parts(DType::bf16, all, m.n);
      GroupedLinear op;
      op.x = x;
      op.x_row = view(std::as_const(x_row));
      op.begin = view(begin);
      op.weights = weights;
      op.out = whole.out();
      ops().grouped_linear(queue, op);
      // Experts in steps of four, the last ones first; each part's assignments are gathered and put back.
      op.whole = {all, m.experts};
      for (int64_t first = (m.experts - 1) / 4 * 4; first >= 0; first -= 4) {
        std::vector<Matrix> some;
        std::vector<int32_t> rows, part_begin{0}, at;
        for (int64_t e = std::min(first + 4, m.experts) - 1; e >= first; --e) {
          some.push_back(weights[size_t(e)]);
          for (int32_t a = begin[size_t(e)]; a < begin[size_t(e) + 1]; ++a) {
            rows.push_back(x_row[size_t(a)]);
            at.push_back(a);
          }
          part_begin.push_back(int32_t(rows.size()));
        }
        if (rows.empty()) continue;
        Tensor out(DType::bf16, int64_t(rows.size()), m.n);
        op.x_row = view(std::as_const(rows));
        op.begin = view(std::as_const(part_begin));
        op.weights = some;
        op.out = out.out();
        ops().grouped_linear(queue, op);
        for (size_t i = 0; i < at.size(); ++i) {
          const auto row = out.row(int64_t(i));
          std::copy(row.begin(), row.end(), parts.bytes.begin() + at[i] * m.n * 2);
        }
      }
      EXPECT_EQ(parts.bytes, whole.bytes) << m.experts << " experts, " << (invariant ? "invariant" : "any kernel");
    }
  }
}

}  // namespace
}  // namespace fathom
