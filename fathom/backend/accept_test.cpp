#include "fathom/backend/chi_square.h"
#include "fathom/backend/tables_under_test.h"
#include "fathom/base/test_size.h"

namespace fathom {
namespace {

using Law = std::vector<uint32_t>;

// Laws of drafts as lists, from one dense row a target row.
struct Lists {
  std::vector<int32_t> begin{0};
  std::vector<TokenWeight> tokens;

  Lists(const Law& dense, size_t vocabulary) {
    for (size_t i = 0; i < dense.size(); ++i) {
      if (dense[i] > 0) tokens.push_back({int32_t(i % vocabulary), dense[i]});
      if ((i + 1) % vocabulary == 0) begin.push_back(int32_t(tokens.size()));
    }
  }
  void give(Accept& op) const {
    op.draft_begin = view(begin);
    op.draft_laws = view(tokens);
  }
};

// Many independent verifications of the same laws. Each has `drafts` drafts, drawn from their laws by `sample` with a
// stream of their own, and one more row.
struct Verification {
  std::vector<std::vector<double>> targets, drafts;  // probabilities; targets has one row more
  std::vector<int32_t> accepted, next;
  std::vector<int32_t> draft_ids;  // [draws, drafts + 1]

  void run(const Operations& table, Queue& queue, int64_t draws, uint64_t first_seed) {
    const int64_t k = int64_t(drafts.size()), vocabulary = int64_t(targets[0].size());
    std::vector<int32_t> begin, target_ids, ids;
    std::vector<RowSampling> rows;
    Law target_laws, draft_laws;
    std::vector<float> target_logits, draft_logits;
    const auto add = [&](const std::vector<double>& p, std::vector<float>& logits) {
      for (const double v : p) logits.push_back(v > 0 ? float(std::log(v)) : -INFINITY);
    };
    std::vector<RowSampling> draft_rows;
    for (int64_t n = 0; n < draws; ++n) {
      begin.push_back(int32_t(n * (k + 1)));
      for (int64_t i = 0; i <= k; ++i) {
        RowSampling row;
        row.seed = first_seed + uint64_t(n);
        row.position = uint32_t(i + 1);
        rows.push_back(row);
        row.seed += 1000000007;
        draft_rows.push_back(row);
        add(targets[size_t(i)], target_logits);
        add(drafts[size_t(std::min(i, k - 1))], draft_logits);
      }
    }
    begin.push_back(int32_t(draws * (k + 1)));
    const auto sample = [&](const std::vector<float>& logits, const std::vector<RowSampling>& settings,
                            std::vector<int32_t>& out, Law& laws) {
      out.assign(settings.size(), -1);
      laws.assign(logits.size(), 0u);
      Sample op;
      op.logits = view(logits, vocabulary);
      op.rows = settings;
      op.ids = view(out);
      op.laws = view(laws, vocabulary);
      table.sample(queue, op);
    };
    sample(target_logits, rows, target_ids, target_laws);
    sample(draft_logits, draft_rows, draft_ids, draft_laws);
    accepted.assign(size_t(draws), -1);
    next.assign(size_t(draws), -1);
    Accept op;
    op.begin = view(std::as_const(begin));
    op.target_laws = view(std::as_const(target_laws), vocabulary);
    op.target_ids = view(std::as_const(target_ids));
    op.draft_ids = view(std::as_const(draft_ids));
    const Lists lists(draft_laws, size_t(vocabulary));
    lists.give(op);
    op.rows = rows;
    op.accepted = view(accepted);
    op.next = view(next);
    table.accept(queue, op);
  }
  int32_t first_token(size_t n) const { return accepted[n] > 0 ? draft_ids[n * (drafts.size() + 1)] : next[n]; }
};

// One verification with given laws and drafts.
struct One {
  std::vector<int32_t> begin, target_ids, draft_ids;
  Law target_laws, draft_laws;
  std::vector<RowSampling> rows;
  std::vector<int32_t> accepted{-1}, next{-1};

  void run(const Operations& table, Queue& queue, int64_t vocabulary) {
    begin = {0, int32_t(target_ids.size())};
    rows.resize(target_ids.size());
    Accept op;
    op.begin = view(std::as_const(begin));
    op.target_laws = view(std::as_const(target_laws), vocabulary);
    op.target_ids = view(std::as_const(target_ids));
    op.draft_ids = view(std::as_const(draft_ids));
    const Lists lists(draft_laws, size_t(vocabulary));
    lists.give(op);
    op.rows = rows;
    op.accepted = view(accepted);
    op.next = view(next);
    table.accept(queue, op);
  }
};

class AcceptTest : public OverTables {};
INSTANTIATE_TEST_SUITE_P(Tables, AcceptTest, all_tables(), table_name);

// Case spec-02: the joint law of two emitted tokens is that of plain sampling; .6 of the first drafts are accepted.
TEST_P(AcceptTest, TwoEmittedTokensFollowTheTargetsLaw) {
  const std::vector<std::vector<double>> p{{0.5, 0.3, 0.2}, {0.1, 0.1, 0.8}}, q{{0.2, 0.2, 0.6}, {0.8, 0.1, 0.1}};
  Verification v{{p[0], p[1], {1, 1, 1}}, q, {}, {}, {}};
  const int64_t draws = 200000;
  v.run(ops(), queue, draws, 1);
  // Where the first draft was refused, the second token is drawn in a later step: plain sampling from p[1].
  Sample op;
  std::vector<float> logits;
  for (const double x : p[1]) logits.push_back(float(std::log(x)));
  std::vector<RowSampling> rows(size_t(draws), RowSampling{});
  for (size_t n = 0; n < rows.size(); ++n) rows[n].seed = 77, rows[n].position = uint32_t(n);
  std::vector<int32_t> later(size_t(draws), -1);
  op.logits = View<const float, 2>(logits.data(), {draws, 3}, {0, 1});
  op.rows = rows;
  op.ids = view(later);
  ops().sample(queue, op);
  std::vector<int64_t> seen(9, 0);
  int64_t accepted = 0;
  for (size_t n = 0; n < size_t(draws); ++n) {
    const int32_t second = v.accepted[n] > 1 ? v.draft_ids[3 * n + 1] : v.accepted[n] == 1 ? v.next[n] : later[n];
    ++seen[size_t(3 * v.first_token(n) + second)];
    accepted += v.accepted[n] > 0;
  }
  std::vector<double> joint;
  for (const double a : p[0]) {
    for (const double b : p[1]) joint.push_back(a * b);
  }
  EXPECT_GT(chi_square_p(seen, joint), 0.001);
  EXPECT_NEAR(double(accepted) / double(draws), 0.6, 0.01);
}

// engine.md R-29: random laws, some with tokens that only one side allows (top-k and top-p mixes), 1 to 4 drafts.
// FATHOM_LONG=1 draws the 1e7 samples of the specification.
TEST_P(AcceptTest, TheEmittedTokenFollowsTheTargetsLaw) {
  const uint64_t rounds = is_set("FATHOM_LONG") ? 25 : 1;
  for (uint64_t trial = 0; trial < 8; ++trial) {
    const auto law = [&](uint64_t seed, bool filtered) {
      std::vector<double> p;
      for (const float x : noise(6, seed)) p.push_back(filtered && x < -0.3f ? 0 : std::exp(2.0 * x));
      return p;
    };
    Verification v;
    const size_t k = 1 + trial % 4;
    for (size_t i = 0; i <= k; ++i) v.targets.push_back(law(100 * trial + i, trial % 2));
    for (size_t i = 0; i < k; ++i) v.drafts.push_back(law(100 * trial + 50 + i, trial % 3 == 1));
    std::vector<int64_t> seen(6, 0);
    for (uint64_t round = 0; round < rounds; ++round) {
      v.run(ops(), queue, 50000, 10'000'000 * (trial + 1) + 50'000 * round);
      for (size_t n = 0; n < v.next.size(); ++n) ++seen[size_t(v.first_token(n))];
    }
    EXPECT_GT(chi_square_p(seen, v.targets[0]), 0.001) << trial;
  }
}

// engine.md R-30: with one-hot laws a draft is accepted exactly when it is the target's token.
TEST_P(AcceptTest, GreedyDraftsAreAcceptedWhileTheyAgree) {
  const uint32_t one = 1u << 31;
  One v;
  v.target_laws = {0, one, 0, /**/ one, 0, 0, /**/ 0, 0, one};
  v.draft_laws = {0, one, 0, /**/ 0, one, 0, /**/ 0, 0, 0};
  v.target_ids = {1, 0, 2};
  v.draft_ids = {1, 1, -99};
  v.run(ops(), queue, 3);
  EXPECT_EQ(v.accepted[0], 1);
  EXPECT_EQ(v.next[0], 0);
  v.draft_laws = {0, one, 0, /**/ one, 0, 0, /**/ 0, 0, 0};
  v.draft_ids = {1, 0, -99};
  v.run(ops(), queue, 3);
  EXPECT_EQ(v.accepted[0], 2);
  EXPECT_EQ(v.next[0], 2);  // the last row's own token
}

TEST_P(AcceptTest, WithoutDraftsTheRowsOwnTokenStands) {
  One v;
  v.target_laws = {5, 5};
  v.target_ids = {1};
  v.draft_ids = {-99};
  v.draft_laws = {0, 0};
  v.run(ops(), queue, 2);
  EXPECT_EQ(v.accepted[0], 0);
  EXPECT_EQ(v.next[0], 1);
}

TEST_P(AcceptTest, ADraftBelowZeroIsRefusedAndTheTargetsLawStands) {
  std::vector<int64_t> seen(3, 0);
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    One v;
    v.target_laws = {100, 0, 300, /**/ 1, 1, 1};
    v.target_ids = {0, 1};
    v.draft_ids = {-1, 0};
    v.draft_laws = {7, 7, 7, 7, 7, 7};  // not read
    RowSampling row;
    row.seed = seed;
    v.rows = {row, row};
    v.run(ops(), queue, 3);
    EXPECT_EQ(v.accepted[0], 0);
    ++seen[size_t(v.next[0])];
  }
  EXPECT_GT(chi_square_p(seen, {1, 0, 3}), 0.001);
}

// The largest integers that can occur: sums of 2^31 on both sides, probabilities next to 0 and 1.
TEST_P(AcceptTest, TheLargestSumsDoNotOverflow) {
  const uint32_t one = 1u << 31;
  One v;
  v.target_ids = {0, 1};
  v.draft_ids = {0, -1};
  v.target_laws = {one - 1, 1, /**/ one, 0};
  v.draft_laws = {one, 0, /**/ 0, 0};  // refused once in 2^31 draws
  int accepted = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    RowSampling row;
    row.seed = seed;
    v.rows = {row, row};
    v.run(ops(), queue, 2);
    accepted += v.accepted[0];
  }
  EXPECT_EQ(accepted, 100);
  v.target_laws = {1, one - 1, /**/ one, 0};  // accepted once in 2^31 draws; else token 1
  for (uint64_t seed = 0; seed < 100; ++seed) {
    v.rows[0].seed = seed;
    v.run(ops(), queue, 2);
    EXPECT_EQ(v.accepted[0], 0);
    EXPECT_EQ(v.next[0], 1);
  }
}

// Of every draft, also behind a refused one; a row without a draft has nothing in common with it.
TEST_P(AcceptTest, TellsWhatTheLawsHaveInCommon) {
  const std::vector<int32_t> begin = {0, 4}, target_ids = {0, 0, 0, 0}, draft_ids = {2, 1, -1, 0};
  const Law target = {10, 20, 0, /**/ 5, 5, 90, /**/ 1, 1, 1, /**/ 9, 9, 9};
  const Lists lists({0, 0, 30, /**/ 7, 3, 20, /**/ 8, 8, 8, /**/ 4, 4, 4}, 3);
  const std::vector<RowSampling> rows(4);
  std::vector<int32_t> accepted(1, -1), next(1, -1);
  std::vector<uint64_t> common(4, 99);
  Accept op;
  op.begin = view(begin);
  op.target_laws = view(target, 3);
  op.target_ids = view(target_ids);
  op.draft_ids = view(draft_ids);
  lists.give(op);
  op.rows = rows;
  op.accepted = view(accepted);
  op.next = view(next);
  op.common = view(common);
  ops().accept(queue, op);
  EXPECT_EQ(accepted[0], 0);  // its law forbids the first one
  EXPECT_EQ(common, (std::vector<uint64_t>{0, 5 + 3 + 20, 0, 0}));
}

}  // namespace
}  // namespace fathom
