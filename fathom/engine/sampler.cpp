#include "fathom/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fathom {
namespace {

constexpr uint64_t kDraftStream = 1'000'000'007;  // added to the seed for draws of drafts

bool has_penalties(const Sampling& s) {
  return s.presence_penalty != 0 || s.frequency_penalty != 0 || s.repetition_penalty != 1;
}

float penalised(float logit, const Sampling& s, int64_t count) {
  logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
  return count == 0 ? logit : logit - s.frequency_penalty * float(count) - s.presence_penalty;
}

RowSampling name_draw(const Choice& choice, int64_t offset, uint64_t stream) {
  const Sampling& s = choice.state->settings;
  return {.temperature = s.temperature,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .top_k = s.top_k,
          .seed = choice.state->seed + stream,
          .position = uint32_t(choice.position + offset),
          .role = 0};
}

}  // namespace

SamplerState make_sampler_state(const Sampling& settings, uint64_t seed, int32_t eos_id,
                                std::span<const int32_t> prompt) {
  SamplerState state;
  state.settings = settings;
  state.seed = seed;
  state.end_ids = settings.stop_ids;
  if (!settings.ignore_eos) state.end_ids.push_back(eos_id);
  if (has_penalties(settings)) {
    for (const int32_t id : prompt) state.counts.try_emplace(id, 0);
  }
  return state;
}

void count_token(SamplerState& state, int32_t token) {
  if (has_penalties(state.settings)) ++state.counts[token];
}

bool needs_adjustment(const SamplerState& state, int64_t generated) {
  return !state.settings.logit_bias.empty() || has_penalties(state.settings) || generated < state.settings.min_tokens;
}

void adjust_logits(std::span<float> logits, const SamplerState& state, std::span<const int32_t> assumed,
                   int64_t generated) {
  const Sampling& s = state.settings;
  for (const auto& [id, bias] : s.logit_bias) logits[size_t(id)] += bias;
  if (has_penalties(s)) {
    for (const auto& [id, count] : state.counts) {
      if (std::find(assumed.begin(), assumed.end(), id) != assumed.end()) continue;
      logits[size_t(id)] = penalised(logits[size_t(id)], s, count);
    }
    for (size_t i = 0; i < assumed.size(); ++i) {
      const int32_t id = assumed[i];
      if (std::find(assumed.begin(), assumed.begin() + ptrdiff_t(i), id) != assumed.begin() + ptrdiff_t(i)) continue;
      const auto known = state.counts.find(id);
      const int64_t count = (known == state.counts.end() ? 0 : known->second) +
                            std::count(assumed.begin() + ptrdiff_t(i), assumed.end(), id);
      logits[size_t(id)] = penalised(logits[size_t(id)], s, count);
    }
  }
  if (generated + int64_t(assumed.size()) < s.min_tokens) {
    for (const int32_t id : state.end_ids) logits[size_t(id)] = -std::numeric_limits<float>::infinity();
  }
}

TokenLogprob logprob_of(std::span<const float> logits, int32_t id, int top) {
  float best = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) best = std::max(best, logit);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double(logit) - double(best));
  const double log_sum = double(best) + std::log(sum);
  const auto logprob = [&](int32_t token) { return float(double(logits[size_t(token)]) - log_sum); };
  TokenLogprob out{id, logprob(id), {}};
  const size_t count = std::min(size_t(std::max(top, 0)), logits.size());
  if (count == 0) return out;
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  std::partial_sort(order.begin(), order.begin() + ptrdiff_t(count), order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[size_t(a)], y = logits[size_t(b)];
    return x > y || (x == y && a < b);
  });
  for (size_t i = 0; i < count; ++i) out.top.push_back({order[i], logprob(order[i])});
  return out;
}

// Sorts the deciding rows of all choices into those that are drawn from the logits as they are, those whose logits are
// changed first, and those of sampled rounds, whose laws the verification needs.
void Sampler::list_rows(std::span<const Choice> choices) {
  as_given_.clear();
  adjusted_.clear();
  sampled_.clear();
  int64_t place = 0;
  for (const Choice& choice : choices) {
    const bool wants_laws = !choice.drafts.empty() && !is_greedy(choice.state->settings);
    for (int offset = 0; offset <= int(choice.drafts.size()); ++offset, ++place) {
      const Row row{name_draw(choice, offset, 0), choice.row + offset, place, &choice, offset};
      const bool changed = needs_adjustment(*choice.state, choice.generated + offset);
      (wants_laws ? sampled_ : changed ? adjusted_ : as_given_).push_back(row);
    }
  }
  ids_.resize(size_t(place));
  const size_t copied = (sampled_.size() + adjusted_.size()) * size_t(vocabulary_);
  if (scratch_.size() < copied) scratch_.resize(copied);
}

// Copies the logits of these rows to scratch_ from row `first` on, and changes the copies as the requests want.
void Sampler::adjust(View<const float, 2> logits, std::span<Row> rows, int64_t first) {
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    const auto source = logits.row(row.source);
    row.source = first + int64_t(i);
    const std::span<float> copy(scratch_.data() + row.source * vocabulary_, size_t(vocabulary_));
    std::copy(source.begin(), source.end(), copy.begin());
    adjust_logits(copy, *row.choice->state, row.choice->drafts.first(size_t(row.offset)), row.choice->generated);
  }
}

// Draws rows[i] from row rows[i].source of `logits`. Neighbouring rows go to the operation together: in a plain greedy
// step that is all of them. The law of rows[i] becomes row i of laws_.
void Sampler::draw(View<const float, 2> logits, std::span<const Row> rows, bool keep_laws) {
  if (keep_laws && laws_.size() < rows.size() * size_t(vocabulary_)) laws_.resize(rows.size() * size_t(vocabulary_));
  samplings_.clear();
  for (const Row& row : rows) samplings_.push_back(row.sampling);
  drawn_.resize(rows.size());
  for (size_t i = 0, end = 0; i < rows.size(); i = end) {
    while (end < rows.size() && rows[end].source == rows[i].source + int64_t(end - i)) ++end;
    const int64_t count = int64_t(end - i);
    Sample op;
    op.logits = {logits.data + rows[i].source * logits.stride[0], {count, vocabulary_}, logits.stride};
    op.rows = std::span(samplings_).subspan(i, end - i);
    op.ids = View<int32_t, 1>(drawn_.data() + i, {count});
    if (keep_laws) op.laws = View<uint32_t, 2>(laws_.data() + int64_t(i) * vocabulary_, {count, vocabulary_});
    ops_.sample(*queue_, op);
  }
  for (size_t i = 0; i < rows.size(); ++i) ids_[size_t(rows[i].place)] = drawn_[i];
}

void Sampler::verify_laws(std::span<const Choice> choices) {
  const int64_t rows = int64_t(sampled_.size());
  const size_t needed = size_t(rows * vocabulary_);
  if (draft_laws_.size() < needed) draft_laws_.resize(needed);
  draft_ids_.assign(size_t(rows), -1);
  law_begin_.assign(1, 0);
  for (const Choice& choice : choices) {
    if (choice.drafts.empty() || is_greedy(choice.state->settings)) continue;
    const int64_t first = law_begin_.back();
    const auto& laws = choice.state->draft_laws;
    check(int64_t(laws.size()) >= int64_t(choice.drafts.size()) * vocabulary_, "every sampled draft has its law");
    std::copy_n(laws.begin(), int64_t(choice.drafts.size()) * vocabulary_, draft_laws_.begin() + first * vocabulary_);
    std::copy(choice.drafts.begin(), choice.drafts.end(), draft_ids_.begin() + first);
    law_begin_.push_back(int32_t(first) + int32_t(choice.drafts.size()) + 1);
  }
  const int64_t sequences = int64_t(law_begin_.size()) - 1;
  samplings_.clear();
  drawn_.resize(size_t(rows));
  for (size_t i = 0; i < sampled_.size(); ++i) {
    samplings_.push_back(sampled_[i].sampling);
    drawn_[i] = ids_[size_t(sampled_[i].place)];
  }
  accepted_.resize(size_t(sequences));
  next_.resize(size_t(sequences));
  ops_.accept(*queue_,
              {View<const int32_t, 1>(law_begin_.data(), {sequences + 1}),
               View<const uint32_t, 2>(laws_.data(), {rows, vocabulary_}),
               View<const int32_t, 1>(drawn_.data(), {rows}), View<const int32_t, 1>(draft_ids_.data(), {rows}),
               View<const uint32_t, 2>(draft_laws_.data(), {rows, vocabulary_}), samplings_,
               View<int32_t, 1>(accepted_.data(), {sequences}), View<int32_t, 1>(next_.data(), {sequences})});
}

void Sampler::choose(View<const float, 2> logits, std::span<const Choice> choices, std::vector<int32_t>& tokens,
                     std::vector<int32_t>& begin) {
  list_rows(choices);
  const int64_t laws = int64_t(sampled_.size()), changed = int64_t(adjusted_.size());
  const View<const float, 2> copies(scratch_.data(), {laws + changed, vocabulary_});
  draw(logits, as_given_, false);
  adjust(logits, adjusted_, laws);
  draw(copies, adjusted_, false);
  adjust(logits, sampled_, 0);
  draw(copies, sampled_, true);
  if (laws > 0) verify_laws(choices);

  size_t place = 0, verified = 0;
  for (const Choice& choice : choices) {
    const size_t drafts = choice.drafts.size();
    size_t accepted = 0;
    int32_t next = 0;
    if (drafts > 0 && !is_greedy(choice.state->settings)) {
      accepted = size_t(accepted_[verified]);
      next = next_[verified++];
    } else {
      while (accepted < drafts && choice.drafts[accepted] == ids_[place + accepted]) ++accepted;
      next = ids_[place + accepted];
    }
    tokens.insert(tokens.end(), choice.drafts.begin(), choice.drafts.begin() + ptrdiff_t(accepted));
    tokens.push_back(next);
    begin.push_back(int32_t(tokens.size()));
    place += drafts + 1;
  }
}

void Sampler::propose(View<float, 2> logits, std::span<const Choice> sequences, std::span<int32_t> ids) {
  as_given_.clear();
  sampled_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Choice& choice = sequences[i];
    if (choice.state == nullptr) continue;
    const Row row{name_draw(choice, 0, kDraftStream), int64_t(i), int64_t(i), &choice, 0};
    (is_greedy(choice.state->settings) ? as_given_ : sampled_).push_back(row);
    if (needs_adjustment(*choice.state, choice.generated + int64_t(choice.drafts.size()))) {
      adjust_logits(logits.row(int64_t(i)), *choice.state, choice.drafts, choice.generated);
    }
  }
  ids_.assign(ids.begin(), ids.end());
  draw(logits, as_given_, false);
  draw(logits, sampled_, true);
  for (size_t i = 0; i < sampled_.size(); ++i) {
    const auto law = laws_.begin() + int64_t(i) * vocabulary_;
    auto& kept = sampled_[i].choice->state->draft_laws;
    kept.insert(kept.end(), law, law + vocabulary_);
  }
  std::copy(ids_.begin(), ids_.end(), ids.begin());
}

}  // namespace fathom
