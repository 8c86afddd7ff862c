#include "fathom/backend/chi_square.h"
#include "fathom/backend/draw.h"
#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

constexpr uint32_t kOne = 1u << 31;
using Law = std::vector<uint32_t>;

class SampleTest : public OverTables {
 protected:
  Law law(const std::vector<float>& logits, const RowSampling& row) {
    Law laws(logits.size(), 7u);
    Sample op;
    op.logits = View<const float, 2>(logits.data(), {1, int64_t(logits.size())});
    op.rows = {&row, 1};
    op.laws = view(laws, int64_t(logits.size()));
    ops().sample(queue, op);
    return laws;
  }
  // `draws` tokens of one law, at positions 0, 1, ...
  std::vector<int32_t> draw(const std::vector<float>& logits, RowSampling row, int64_t draws) {
    std::vector<int32_t> ids(size_t(draws), -1);
    std::vector<RowSampling> rows;
    for (int64_t i = 0; i < draws; ++i) {
      row.position = uint32_t(i);
      rows.push_back(row);
    }
    Sample op;
    op.logits = View<const float, 2>(logits.data(), {draws, int64_t(logits.size())}, {0, 1});
    op.rows = rows;
    op.ids = view(ids);
    ops().sample(queue, op);
    return ids;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, SampleTest, all_tables(), table_name);

RowSampling sampling(float temperature, int32_t top_k = 0, float top_p = 1, float min_p = 0) {
  RowSampling row;
  row.temperature = temperature;
  row.top_k = top_k;
  row.top_p = top_p;
  row.min_p = min_p;
  row.seed = 20260726;
  return row;
}

TEST_P(SampleTest, ALawIsTheSoftmaxInUnitsOfTwoToTheMinus31) {
  const std::vector<float> logits{2, 1, 0, -1, -INFINITY};
  const Law got = law(logits, sampling(0.5f));
  const double total = std::exp(4) + std::exp(2) + 1 + std::exp(-2);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], std::floor(std::exp(2.0 * logits[i]) / total * kOne), 1) << i;
  EXPECT_EQ(got[4], 0u);
}

TEST_P(SampleTest, TemperatureZeroIsGreedyAndTakesTheFirstOfEqualLogits) {
  EXPECT_EQ(law({1, 3, 3, 2}, sampling(0)), (Law{0, kOne, 0, 0}));
  EXPECT_EQ(draw({1, 3, 3, 2}, sampling(0), 5), (std::vector<int32_t>(5, 1)));
  EXPECT_EQ(law({-1, -0.0f, 0.0f}, sampling(0)), (Law{0, kOne, 0}));  // the zeros are equal
}

TEST_P(SampleTest, TopKTakesTheLowestIdsOfEqualLogits) {
  EXPECT_EQ(law({0, 1, 1, 1}, sampling(1, 2)), (Law{0, kOne / 2, kOne / 2, 0}));
  EXPECT_EQ(law({0.0f, -0.0f, 0.0f, -1}, sampling(1, 2)), (Law{kOne / 2, kOne / 2, 0, 0}));
  EXPECT_EQ(law({0, 5, 1, 1}, sampling(1, 1)), (Law{0, kOne, 0, 0}));
  EXPECT_EQ(law({0, 0}, sampling(1, 9)), (Law{kOne / 2, kOne / 2}));  // more than there are: all
}

// Four equal tokens of mass 1/4 each. The prefix ends where its mass reaches floor(top_p * 2^31) + 1, so at top_p = 1/4
// one token does not suffice.
TEST_P(SampleTest, TopPKeepsTheShortestPrefixThatReachesItsMass) {
  const std::vector<float> equal{0, 0, 0, 0};
  EXPECT_EQ(law(equal, sampling(1, 0, 0.24f)), (Law{kOne, 0, 0, 0}));
  EXPECT_EQ(law(equal, sampling(1, 0, 0.25f)), (Law{kOne / 2, kOne / 2, 0, 0}));
  EXPECT_EQ(law(equal, sampling(1, 0, 0.49f)), (Law{kOne / 2, kOne / 2, 0, 0}));
  EXPECT_EQ(law(equal, sampling(1, 0, 1.0f)), (Law{kOne / 4, kOne / 4, kOne / 4, kOne / 4}));
  EXPECT_EQ(law(equal, sampling(1, 0, 1e-9f)), (Law{kOne, 0, 0, 0}));  // one token always stays
}

// Mass counts before any filter: top_k does not make top_p's tokens heavier.
TEST_P(SampleTest, TopKAndTopPMeetOnTheUnfilteredSoftmax) {
  // masses .4, .3, .2, .1
  const std::vector<float> logits{std::log(.4f), std::log(.3f), std::log(.2f), std::log(.1f)};
  const auto kept = [&](int32_t k, float p) {
    int count = 0;
    for (const uint32_t weight : law(logits, sampling(1, k, p))) count += weight > 0;
    return count;
  };
  EXPECT_EQ(kept(3, 0.65f), 2);
  EXPECT_EQ(kept(2, 0.95f), 2);
  EXPECT_EQ(kept(3, 0.75f), 3);  // renormalised over the top 2 first, .75 would be reached by two
  EXPECT_EQ(kept(0, 0.75f), 3);
}

TEST_P(SampleTest, MinPDropsWhatIsFarBelowTheBest) {
  const std::vector<float> logits{std::log(4.0f), std::log(2.0f), std::log(0.9f)};
  const Law got = law(logits, sampling(1, 0, 1, 0.25f));
  EXPECT_EQ(got[2], 0u);
  EXPECT_NEAR(got[0], 2.0 / 3 * kOne, 300);  // logits are floats
}

TEST_P(SampleTest, ARowWithoutAnyTokenOrWithNanStillGivesALegalId) {
  EXPECT_EQ(law({-INFINITY, -INFINITY}, sampling(1)), (Law{kOne, 0}));
  EXPECT_EQ(law({NAN, 1, -INFINITY}, sampling(1)), (Law{0, kOne, 0}));
}

// The definition of the draw, spelled out: engine.md R-34.
TEST_P(SampleTest, TheDrawInvertsTheRunningSum) {
  const std::vector<float> logits{0, 1, 2, 0.5f, -3};
  RowSampling row = sampling(1);
  const Law weights = law(logits, row);
  uint64_t total = 0;
  for (const uint32_t w : weights) total += w;
  const auto ids = draw(logits, row, 200);
  for (uint32_t i = 0; i < 200; ++i) {
    uint64_t left = uint64_t((static_cast<unsigned __int128>(random_bits(row.seed, i, kFresh, 0)) * total) >> 64);
    int32_t want = 0;
    while (left >= weights[size_t(want)]) left -= weights[size_t(want++)];
    EXPECT_EQ(ids[i], want);
  }
}

// engine.md 18.7: on small vocabularies the draw is that of exact rational arithmetic. A token's share of the law is
// the rational w / W; the fraction U / 2^64 chooses the token whose interval of cumulative shares it lies in, which is
// compared as cumulative W-ths with U over a common denominator, nothing rounded. And each w is floor(p 2^31) of the
// softmax in 64 bits of mantissa, but for logits so near to an integer that the double of the definition may fall
// short.
TEST_P(SampleTest, IsExactRationalArithmeticOnSmallVocabularies) {
  using Wide = unsigned __int128;
  for (uint64_t trial = 0; trial < 60; ++trial) {
    std::vector<float> logits;
    for (const float x : noise(2 + trial % 7, 900 + trial)) logits.push_back(3 * x);
    if (trial % 3 == 0) logits[trial % logits.size()] = -INFINITY;
    if (trial % 4 == 0) std::fill(logits.begin(), logits.end(), 1.f);  // w = floor(2^31 / n), a rational softmax
    RowSampling row = sampling(1);
    row.seed = trial;
    const Law weights = law(logits, row);
    long double sum = 0;
    for (const float logit : logits) sum += std::exp((long double)(logit));
    uint64_t total = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      total += weights[i];
      const long double exact = std::exp((long double)(logits[i])) / sum * 0x1p31L;
      const long double near = std::abs(exact - std::round(exact));
      if (near > 1e-4L) {
        EXPECT_EQ(weights[i], uint32_t(std::floor(exact))) << "trial " << trial << " token " << i;
      }
    }
    const auto ids = draw(logits, row, 500);
    for (uint32_t position = 0; position < 500; ++position) {
      const uint64_t fraction = random_bits(row.seed, position, kFresh, 0);
      // The attempts that keep uniform_below free of bias reject one draw in 2^33 here.
      size_t want = 0;
      Wide cumulative = weights[0];  // of W
      while (!(Wide(fraction) * total < (cumulative << 64))) cumulative += weights[++want];
      ASSERT_EQ(size_t(ids[position]), want) << "trial " << trial << " position " << position;
    }
  }
}

// Case num-04.
TEST_P(SampleTest, SettingsHaveTheirEffectOnWhatIsDrawn) {
  const std::vector<float> logits{2, 1, 0, -1};
  const auto drawn = [&](const RowSampling& row) {
    std::vector<int64_t> seen(4, 0);
    for (const int32_t id : draw(logits, row, 100000)) ++seen[size_t(id)];
    return seen;
  };
  for (const float temperature : {1.0f, 0.5f}) {
    std::vector<double> p;
    for (const float logit : logits) p.push_back(std::exp(logit / temperature));
    EXPECT_GT(chi_square_p(drawn(sampling(temperature)), p), 0.001);
  }
  EXPECT_EQ(drawn(sampling(1, 0, 0.6f))[0], 100000);
  EXPECT_EQ(drawn(sampling(0))[0], 100000);
}

// engine.md R-29, its part for plain sampling: random logits, mixes of top-k, top-p, min-p and temperature.
TEST_P(SampleTest, DrawsFollowTheirLaw) {
  for (uint64_t trial = 0; trial < 10; ++trial) {
    std::vector<float> logits = noise(8, trial);
    for (float& logit : logits) logit *= 3;
    RowSampling row =
        sampling(trial % 3 == 0 ? 0.7f : 1.3f, trial % 2 ? 5 : 0, trial % 4 < 2 ? 0.9f : 1, trial == 9 ? 0.1f : 0);
    row.seed = trial;
    std::vector<int64_t> seen(8, 0);
    for (const int32_t id : draw(logits, row, 20000)) ++seen[size_t(id)];
    const Law weights = law(logits, row);
    EXPECT_GT(chi_square_p(seen, std::vector<double>(weights.begin(), weights.end())), 0.001) << trial;
  }
}

TEST_P(SampleTest, GivesTheTokensAndLawsOfTheDefinitionBitForBit) {
  const int64_t vocabulary = 2880, rows = 24;
  std::vector<float> logits = noise(rows * vocabulary, 5);
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] = i % 7 == 0 ? -INFINITY : std::round(logits[i] * 200) / 16;  // ties
  std::vector<RowSampling> settings;
  for (int64_t r = 0; r < rows; ++r) {
    settings.push_back(sampling(r % 5 == 4 ? 0 : 0.8f, r % 3 ? 0 : 50, r % 4 < 2 ? 0.95f : 1, r % 6 == 5 ? 0.02f : 0));
    settings.back().position = uint32_t(r);
    settings.back().role = r % 2 ? kCoupled : kFresh;
  }
  const auto run = [&](const Operations& table, int64_t first, int64_t count) {
    std::pair<std::vector<int32_t>, Law> out{std::vector<int32_t>(size_t(count)), Law(size_t(count * vocabulary))};
    Sample op;
    op.logits = View<const float, 2>(logits.data() + first * vocabulary, {count, vocabulary});
    op.rows = std::span(settings).subspan(size_t(first), size_t(count));
    op.ids = view(out.first);
    op.laws = view(out.second, vocabulary);
    table.sample(queue, op);
    return out;
  };
  EXPECT_EQ(run(ops(), 0, rows), run(definition(), 0, rows));
  EXPECT_EQ(run(ops(), 13, 1), run(definition(), 13, 1));
}

// Rows of any number draw from any logits, in any order.
TEST_P(SampleTest, ARowDrawsFromTheLogitsThatItNames) {
  constexpr int64_t kVocabulary = 300;
  const auto logits = noise(3 * kVocabulary, 5);
  const std::vector<int32_t> source = {2, 0, 2, 1};
  std::vector<RowSampling> rows;
  for (uint32_t i = 0; i < 4; ++i) {
    rows.push_back(sampling(0.7f, 0, 0.9f));
    rows.back().position = i;
  }
  std::vector<int32_t> ids(4, -1);
  Law laws(4 * kVocabulary, 7u);
  Sample op;
  op.logits = view(logits, kVocabulary);
  op.source = view(source);
  op.rows = rows;
  op.ids = view(ids);
  op.laws = view(laws, kVocabulary);
  ops().sample(queue, op);
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<float> own(logits.begin() + source[i] * kVocabulary,
                                 logits.begin() + (source[i] + 1) * kVocabulary);
    const Law want = law(own, rows[i]);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), laws.begin() + ptrdiff_t(i * kVocabulary))) << i;
    int32_t alone = -1;
    Sample one;
    one.logits = view(own, kVocabulary);
    one.rows = {&rows[i], 1};
    one.ids = View<int32_t, 1>(&alone, {1});
    ops().sample(queue, one);
    EXPECT_EQ(ids[i], alone) << i;
  }
}

// 2,000 tokens: more than a block of the device looks at together. Bounds: a law of one token, of few, of all; lists
// with room for less and for more than that.
TEST_P(SampleTest, AListHasTheTokensOfTheLaw) {
  constexpr int64_t kVocabulary = 2'000;
  const auto logits = noise(4 * kVocabulary, 6);
  const std::vector<RowSampling> rows = {sampling(0), sampling(1, 40), sampling(1), sampling(0.3f, 0, 0.8f)};
  for (const bool dense : {false, true}) {
    for (const int64_t most : {int64_t(100), kVocabulary}) {
      std::vector<TokenWeight> lists(size_t(4 * most), TokenWeight{-1, 1});
      std::vector<int32_t> counts(4, -1), ids(4, -1);
      Law laws(4 * kVocabulary, 7u);
      Sample op;
      op.logits = view(logits, kVocabulary);
      op.rows = rows;
      op.ids = view(ids);
      if (dense) op.laws = view(laws, kVocabulary);
      op.lists = View<TokenWeight, 2>(lists.data(), {4, most});
      op.list_counts = view(counts);
      ops().sample(queue, op);
      for (int64_t r = 0; r < 4; ++r) {
        const Law want =
            law({logits.begin() + r * kVocabulary, logits.begin() + (r + 1) * kVocabulary}, rows[size_t(r)]);
        std::vector<TokenWeight> tokens;
        for (size_t id = 0; id < want.size(); ++id) {
          if (want[id] > 0) tokens.push_back({int32_t(id), want[id]});
        }
        ASSERT_EQ(counts[size_t(r)], int32_t(tokens.size())) << r;
        tokens.resize(std::min(tokens.size(), size_t(most)));
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), lists.begin() + r * most)) << r;
      }
    }
  }
}

// The model's vocabulary and others beside the sizes that backends cut rows at. Each kind of row: flat, peaked, masked
// but for a few, all equal, equal in hundreds, huge, with NaN; each with and without what cuts the law.
TEST_P(SampleTest, LongRowsHaveTheTokensAndLawsOfTheDefinitionToo) {
  for (const int64_t vocabulary : {1, 255, 16384, 16385, 40000, 129280, 140001, 262145}) {
    std::vector<std::vector<float>> kinds;
    const auto add = [&](uint64_t seed, const auto& change) {
      std::vector<float> row = noise(vocabulary, seed);
      for (size_t i = 0; i < row.size(); ++i) row[i] = change(row[i], i);
      kinds.push_back(std::move(row));
    };
    add(1, [](float x, size_t) { return 12 * x; });
    add(2, [](float x, size_t) { return 60 * x * std::abs(x); });
    add(3, [](float x, size_t i) { return i % 4097 == 100 ? 3 * x : -INFINITY; });
    add(4, [](float, size_t) { return 1.0f; });
    add(5, [](float x, size_t) { return std::round(x * 40) / 4; });
    add(6, [](float x, size_t) { return 1e30f * x; });
    add(7, [](float x, size_t i) { return i % 3 == 0 ? NAN : i % 3 == 1 ? -900 + x : 1e-20f * x; });
    std::vector<RowSampling> settings{sampling(1),
                                      sampling(0.7f),
                                      sampling(0),
                                      sampling(1, 0, 0.95f),
                                      sampling(1.3f, 40),
                                      sampling(0.6f, 700, 0.9f, 0.02f),
                                      sampling(1, 0, 1, 0.1f),
                                      sampling(1, 60000, 0.9999f)};
    std::vector<float> logits;
    std::vector<RowSampling> rows;
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      for (size_t i = 0; i < settings.size(); ++i) {
        if (vocabulary > 100000 && (kind + i) % 3 != 0) continue;  // the definition sorts each
        logits.insert(logits.end(), kinds[kind].begin(), kinds[kind].end());
        rows.push_back(settings[i]);
        rows.back().position = uint32_t(rows.size());
        rows.back().role = rows.size() % 3 == 0 ? kCoupled : kFresh;
      }
    }
    const int64_t count = int64_t(rows.size());
    const auto run = [&](const Operations& table, bool with_laws) {
      std::pair<std::vector<int32_t>, Law> out{std::vector<int32_t>(rows.size(), -1), Law{}};
      if (with_laws) out.second.assign(logits.size(), 7u);
      Sample op;
      op.logits = View<const float, 2>(logits.data(), {count, vocabulary});
      op.rows = rows;
      op.ids = view(out.first);
      if (with_laws) op.laws = view(out.second, vocabulary);
      table.sample(queue, op);
      return out;
    };
    const auto want = run(definition(), true), got = run(ops(), true);
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(got.first[r], want.first[r]) << "row " << r << " of " << vocabulary;
      EXPECT_TRUE(std::equal(got.second.begin() + int64_t(r) * vocabulary,
                             got.second.begin() + int64_t(r + 1) * vocabulary,
                             want.second.begin() + int64_t(r) * vocabulary))
          << "law of row " << r << " of " << vocabulary;
    }
    EXPECT_EQ(run(ops(), false).first, want.first);
  }
}

}  // namespace
}  // namespace fathom
