// Scores of cached entries, and the choice of the best. A score is rounded to float before anything is compared, so
// that two entries with the same score are a tie, and ties go to the lower entry.
#include <cmath>
#include <numeric>
#include <vector>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {
namespace {

// The `count` best of `choice` by value, in rising order; -inf and NaN are never chosen.
std::vector<int32_t> best(std::vector<int32_t> choice, const std::vector<float>& value, int64_t count) {
  std::erase_if(choice, [&](int32_t i) { return !(value[size_t(i)] > -INFINITY); });
  if (int64_t(choice.size()) > count) {
    std::stable_sort(choice.begin(), choice.end(),
                     [&](int32_t a, int32_t b) { return value[size_t(a)] > value[size_t(b)]; });
    choice.resize(size_t(count));
    std::sort(choice.begin(), choice.end());
  }
  return choice;
}

void write(const std::vector<int32_t>& chosen, std::span<int32_t> out, int32_t& count) {
  std::fill(std::copy(chosen.begin(), chosen.end(), out.begin()), out.end(), -1);
  count = int32_t(chosen.size());
}

// The entries that row r may choose from, in rising order: all visible ones, or those inside its candidate blocks.
std::vector<int32_t> choice_of(const SelectRows& op, int64_t r, int64_t visible) {
  std::vector<int32_t> choice;
  if (op.block_size == 0 || op.candidate_source) {
    choice.resize(size_t(visible));
    std::iota(choice.begin(), choice.end(), 0);
    return choice;
  }
  for (int64_t b = 0; b < op.block_count[r]; ++b) {
    const int64_t first = int64_t(op.blocks(r, b)) * op.block_size;
    for (int64_t e = first; e < std::min(first + op.block_size, visible); ++e) choice.push_back(int32_t(e));
  }
  return choice;
}

// Row r's score of each of `choice`, by entry; -inf elsewhere.
std::vector<float> scores_of(const SelectRows& op, int64_t r, int64_t visible, const std::vector<int32_t>& choice) {
  const int64_t bytes = row_bytes(op.format, op.channels);
  std::vector<float> query(size_t(op.heads) * size_t(op.channels)), key(size_t(op.channels), 0.0f);
  for (int64_t h = 0; h < op.heads; ++h) {
    decode_row(op.format, op.queries.row(r).data() + h * bytes,
               std::span(query).subspan(size_t(h * op.channels), size_t(op.channels)));
  }
  std::vector<float> scores(size_t(visible), -INFINITY);
  for (const int32_t e : choice) {
    decode_row(op.format, op.keys.entry(op.rows.sequence[r], e), key);
    double score = 0;
    for (int64_t h = 0; h < op.heads; ++h) {
      const float weight = load(op.head_weights.dtype, op.head_weights.row(r), h) * op.weight_scale;
      double dot = 0;
      for (int64_t i = 0; i < op.channels; ++i) dot += double(query[size_t(h * op.channels + i)]) * key[size_t(i)];
      score += weight * std::max(dot, 0.0);
    }
    scores[size_t(e)] = float(score);
  }
  return scores;
}

// A block is worth its best entry; the one with the newest visible entry always stays.
void choose_blocks(const SelectRows& op, int64_t r, int64_t visible, const std::vector<float>& scores) {
  std::vector<float> worth(size_t((visible + op.block_size - 1) / op.block_size), -INFINITY);
  for (int64_t e = 0; e < visible; ++e) {
    float& block = worth[size_t(e / op.block_size)];
    block = std::max(block, scores[size_t(e)]);
  }
  if (visible > 0) worth.back() = INFINITY;
  std::vector<int32_t> all(worth.size());
  std::iota(all.begin(), all.end(), 0);
  write(best(std::move(all), worth, op.top_blocks), op.blocks.row(r), op.block_count[r]);
}

}  // namespace

void select_rows(Queue& queue, const SelectRows& op) {
  for_each_row(queue, op.rows.rows(), [&](int64_t r) {
    const int64_t visible = (op.rows.positions[r] + 1) / op.ratio;
    const auto choice = choice_of(op, r, visible);
    const bool all_blocks = !op.candidate_source || visible <= int64_t(op.top_blocks) * op.block_size;
    const bool everything = int64_t(choice.size()) <= op.top_k && all_blocks && op.scores.empty();
    // Who takes everything need not look at it.
    const auto scores = everything ? std::vector<float>(size_t(visible), 0.0f) : scores_of(op, r, visible, choice);
    if (op.candidate_source) choose_blocks(op, r, visible, scores);
    write(best(choice, scores, op.top_k), op.entries.row(r), op.count[r]);
    if (op.scores.empty()) return;
    const auto out = op.scores.row(r);
    std::fill(out.begin(), out.end(), -1e30f);
    for (const int32_t e : choice) out[size_t(e)] = scores[size_t(e)];
  });
}

}  // namespace fathom::reference
