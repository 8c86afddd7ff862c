#include "fathom/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fathom/backend/draw.h"

namespace fathom {
namespace {

constexpr uint64_t kDraftStream = 1'000'000'007;  // added to the seed for draws of drafts
constexpr float kForbidden = -std::numeric_limits<float>::infinity();

bool has_penalties(const Sampling& s) {
  return s.presence_penalty != 0 || s.frequency_penalty != 0 || s.repetition_penalty != 1;
}

float penalised(float logit, const Sampling& s, int64_t count) {
  logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
  return count == 0 ? logit : logit - s.frequency_penalty * float(count) - s.presence_penalty;
}

RowSampling name_draw(const SamplerState& state, int64_t position, uint64_t stream) {
  const Sampling& s = state.settings;
  const bool coupled = state.verification == Verification::transparent;
  return {.temperature = s.temperature,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .top_k = s.top_k,
          .seed = state.seed + (coupled ? 0 : stream),
          .position = uint32_t(position),
          .role = coupled ? kCoupled : kFresh};
}

void force(std::span<float> logits, int32_t token) {
  std::fill(logits.begin(), logits.end(), kForbidden);
  logits[size_t(token)] = 0;
}

// Leaves what the mask has.
void apply_mask(std::span<float> logits, std::span<const uint32_t> mask) {
  const size_t size = std::min(logits.size(), mask.size() * 32);
  for (size_t first = 0; first < size; first += 32) {
    const uint32_t word = mask[first / 32];
    if (word == ~uint32_t(0)) continue;
    const size_t count = std::min<size_t>(32, size - first);
    for (size_t i = 0; i < count; ++i) {
      if ((word >> i & 1) == 0) logits[first + i] = kForbidden;
    }
  }
  std::fill(logits.begin() + ptrdiff_t(size), logits.end(), kForbidden);
}

// Of the values ranked at or below that of `id`: smaller ones, and equal ones of no lower id.
template <class T, class Mass>
double mass_at_or_below(std::span<const T> values, int32_t id, Mass mass) {
  const T own = values[size_t(id)];
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < own || (values[i] == own && i >= size_t(id))) sum += mass(values[i]);
  }
  return sum;
}

// The ids of the `count` largest values, ties to the lower id.
template <class T>
std::vector<int32_t> best_ids(std::span<const T> values, size_t count) {
  std::vector<int32_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  std::partial_sort(order.begin(), order.begin() + ptrdiff_t(count), order.end(), [&](int32_t a, int32_t b) {
    const T x = values[size_t(a)], y = values[size_t(b)];
    return x > y || (x == y && a < b);
  });
  order.resize(count);
  return order;
}

}  // namespace

SamplerState make_sampler_state(const Sampling& settings, uint64_t seed, int32_t eos_id,
                                std::span<const int32_t> prompt, Verification verification,
                                std::span<const int32_t> blacklist) {
  SamplerState state;
  state.verification = verification;
  state.eos_id = eos_id;
  state.blacklist.assign(blacklist.begin(), blacklist.end());
  state.settings = settings;
  state.seed = seed;
  state.end_ids = settings.stop_ids;
  if (!settings.ignore_eos) state.end_ids.push_back(eos_id);
  recount_tokens(state, prompt, {});
  return state;
}

void count_token(SamplerState& state, int32_t token) {
  if (has_penalties(state.settings)) ++state.counts[token];
}

void recount_tokens(SamplerState& state, std::span<const int32_t> prompt, std::span<const int32_t> answer) {
  if (!has_penalties(state.settings)) return;
  state.counts.clear();
  for (const int32_t id : prompt) state.counts.try_emplace(id, 0);
  for (const int32_t id : answer) ++state.counts[id];
}

bool needs_adjustment(const SamplerState& state, int64_t generated) {
  const Sampling& s = state.settings;
  return !s.logit_bias.empty() || has_penalties(s) || !state.blacklist.empty() || generated < s.min_tokens ||
         generated < s.first_n_token_no_eos || state.masks != nullptr;
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
  for (const int32_t id : state.blacklist) logits[size_t(id)] = kForbidden;
  const int64_t index = generated + int64_t(assumed.size());
  // A constraint that is fulfilled and cannot go on is stronger than the least length.
  const bool must_end = state.masks != nullptr && state.masks->only_ends[assumed.size()] != 0;
  if (index < s.min_tokens && !must_end) {
    for (const int32_t id : state.end_ids) logits[size_t(id)] = kForbidden;
  }
  if (index < s.first_n_token_no_eos && !must_end && state.eos_id >= 0) logits[size_t(state.eos_id)] = kForbidden;
  if (state.masks != nullptr) apply_mask(logits, state.masks->row(assumed.size()));
}

TokenLogprob logprob_of(std::span<const float> logits, int32_t id, int top, bool smaller) {
  float best = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) best = std::max(best, logit);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double(logit) - double(best));
  const double log_sum = double(best) + std::log(sum);
  const auto logprob = [&](int32_t token) { return float(double(logits[size_t(token)]) - log_sum); };
  TokenLogprob out{id, logprob(id), {}};
  if (smaller) {
    const auto mass = [&](float logit) { return std::exp(double(logit) - double(best)); };
    out.sum_smaller_probs = float(mass_at_or_below(logits, id, mass) / sum);
  }
  const size_t count = std::min(size_t(std::max(top, 0)), logits.size());
  if (count == 0) return out;
  for (const int32_t best_id : best_ids(logits, count)) out.top.push_back({best_id, logprob(best_id)});
  return out;
}

int64_t sampler_bytes(int64_t vocabulary, int64_t sequences, int64_t drafts) {
  const int64_t list = most_draft_tokens(vocabulary) * int64_t(sizeof(TokenWeight)) + int64_t(sizeof(int32_t));
  const int64_t group = Sampler::kGroupRows + drafts;  // a sequence is not split
  // Copies of logits and laws of the target; lists of drafts' laws, once in a group and once kept.
  return group * (vocabulary * int64_t(sizeof(float) + sizeof(uint32_t)) + list) + sequences * drafts * list;
}

TokenLogprob Sampler::sampled_logprob(std::span<const float> logits, const SamplerState& state,
                                      std::span<const int32_t> assumed, int64_t generated, int32_t id, int top,
                                      bool smaller) {
  const size_t size = size_t(vocabulary_);
  if (scratch_.size() < size) scratch_.resize(size);
  if (laws_.size() < size) laws_.resize(size);
  const std::span<float> copy(scratch_.data(), size);
  std::copy(logits.begin(), logits.end(), copy.begin());
  adjust_logits(copy, state, assumed, generated);
  const RowSampling name = name_draw(state, 0, 0);  // the position is not read: nothing is drawn
  ops_.sample(*queue_, {View<const float, 2>(copy.data(), {1, vocabulary_}),
                        {&name, 1},
                        {},
                        View<uint32_t, 2>(laws_.data(), {1, vocabulary_})});
  const std::span<const uint32_t> law(laws_.data(), size);
  double sum = 0;  // exact: integers below 2^32
  for (const uint32_t weight : law) sum += weight;
  const auto logprob = [&](int32_t token) {
    return law[size_t(token)] == 0 ? kNever : float(std::log(double(law[size_t(token)]) / sum));
  };
  TokenLogprob out{id, logprob(id), {}};
  if (smaller) {
    out.sum_smaller_probs = float(mass_at_or_below(law, id, [](uint32_t weight) { return double(weight); }) / sum);
  }
  const size_t count = std::min(size_t(std::max(top, 0)), size);
  if (count == 0) return out;
  for (const int32_t best : best_ids(law, count)) {
    if (law[size_t(best)] > 0) out.top.push_back({best, logprob(best)});
  }
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
    const bool wants_laws = !choice.drafts.empty() && verified_by_laws(*choice.state);
    for (int offset = 0; offset <= int(choice.drafts.size()); ++offset, ++place) {
      const Row row{name_draw(*choice.state, choice.position + offset, 0), choice.row + offset, place, &choice, offset};
      const bool changed = needs_adjustment(*choice.state, choice.generated + offset) ||
                           golden_token(choice.state->settings, choice.generated + offset) >= 0;
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
    logits_memory_.copy(copy.data(), source.data(), int64_t(source.size_bytes()));
    const Choice& choice = *row.choice;
    const int32_t golden = golden_token(choice.state->settings, choice.generated + row.offset);
    if (golden >= 0) {
      force(copy, golden);
    } else {
      adjust_logits(copy, *choice.state, choice.drafts.first(size_t(row.offset)), choice.generated);
    }
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
  draft_laws_.clear();
  draft_ids_.assign(size_t(rows), -1);
  law_begin_.assign(1, 0);
  for (const Choice& choice : choices) {
    if (choice.drafts.empty() || !verified_by_laws(*choice.state)) continue;
    const DraftLaws& laws = choice.state->draft_laws;
    check(laws.rows() >= int64_t(choice.drafts.size()), "every sampled draft has its law");
    const int32_t first = law_begin_.back();
    std::copy(choice.drafts.begin(), choice.drafts.end(), draft_ids_.begin() + first);
    for (int64_t i = 0; i < int64_t(choice.drafts.size()); ++i) {
      const auto law = laws.row(i);
      draft_laws_.tokens.insert(draft_laws_.tokens.end(), law.begin(), law.end());
      draft_laws_.begin.push_back(int32_t(draft_laws_.tokens.size()));
    }
    draft_laws_.begin.push_back(draft_laws_.begin.back());  // the row behind the drafts has none
    law_begin_.push_back(first + int32_t(choice.drafts.size()) + 1);
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
  ops_.accept(
      *queue_,
      {View<const int32_t, 1>(law_begin_.data(), {sequences + 1}),
       View<const uint32_t, 2>(laws_.data(), {rows, vocabulary_}), View<const int32_t, 1>(drawn_.data(), {rows}),
       View<const int32_t, 1>(draft_ids_.data(), {rows}), View<const int32_t, 1>(draft_laws_.begin.data(), {rows + 1}),
       View<const TokenWeight, 1>(draft_laws_.tokens.data(), {int64_t(draft_laws_.tokens.size())}), samplings_,
       View<int32_t, 1>(accepted_.data(), {sequences}), View<int32_t, 1>(next_.data(), {sequences})});
}

void Sampler::choose(View<const float, 2> logits, std::span<const Choice> choices, std::vector<int32_t>& tokens,
                     std::vector<int32_t>& begin) {
  for (size_t first = 0, end = 0; first < choices.size(); first = end) {
    int64_t rows = 0;
    while (end < choices.size() && rows < kGroupRows) rows += int64_t(choices[end++].drafts.size()) + 1;
    choose_group(logits, choices.subspan(first, end - first), tokens, begin);
  }
}

void Sampler::choose_group(View<const float, 2> logits, std::span<const Choice> choices, std::vector<int32_t>& tokens,
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

  size_t place = 0, verified = 0, law = 0;
  for (const Choice& choice : choices) {
    const size_t drafts = choice.drafts.size();
    size_t accepted = 0;
    int32_t next = 0;
    if (drafts > 0 && verified_by_laws(*choice.state)) {
      for (size_t i = 0; i < choice.acceptance.size(); ++i) {
        choice.acceptance[i] =
            acceptance_of(std::span(laws_).subspan((law + i) * size_t(vocabulary_), size_t(vocabulary_)),
                          choice.state->draft_laws.row(int64_t(i)));
      }
      law += drafts + 1;
      accepted = size_t(accepted_[verified]);
      next = next_[verified++];
    } else {
      for (size_t i = 0; i < choice.acceptance.size(); ++i) {
        choice.acceptance[i] = choice.drafts[i] == ids_[place + i] ? 1.f : 0.f;
      }
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
    Row row{name_draw(*choice.state, choice.position, kDraftStream), int64_t(i), int64_t(i), &choice, 0};
    if (verified_by_laws(*choice.state)) {
      const int32_t most = most_draft_tokens(vocabulary_);
      if (most < vocabulary_) row.sampling.top_k = row.sampling.top_k > 0 ? std::min(row.sampling.top_k, most) : most;
      sampled_.push_back(row);
    } else if (choice.logprob != nullptr && !is_greedy(choice.state->settings)) {
      sampled_.push_back(row);  // a law that only its log-probability is read from
    } else {
      if (choice.logprob != nullptr) *choice.logprob = 0;  // the largest logit is certain
      as_given_.push_back(row);
    }
    if (needs_adjustment(*choice.state, choice.generated + int64_t(choice.drafts.size()))) {
      adjust_logits(logits.row(int64_t(i)), *choice.state, choice.drafts, choice.generated);
    }
  }
  ids_.assign(ids.begin(), ids.end());
  draw(logits, as_given_, false);
  for (size_t first = 0; first < sampled_.size(); first += size_t(kGroupRows)) {
    propose_rows(logits,
                 std::span<const Row>(sampled_).subspan(first, std::min(sampled_.size() - first, size_t(kGroupRows))));
  }
  std::copy(ids_.begin(), ids_.end(), ids.begin());
}

// Draws drafts with their laws, and keeps of these what is needed.
void Sampler::propose_rows(View<const float, 2> logits, std::span<const Row> rows) {
  draw(logits, rows, true);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Choice& choice = *rows[i].choice;
    const auto law = std::span<const uint32_t>(laws_).subspan(i * size_t(vocabulary_), size_t(vocabulary_));
    if (verified_by_laws(*choice.state)) choice.state->draft_laws.append(law);
    if (choice.logprob == nullptr) continue;
    double sum = 0;  // exact: integers below 2^32
    for (const uint32_t weight : law) sum += weight;
    *choice.logprob = float(std::log(double(law[size_t(ids_[size_t(rows[i].place)])]) / sum));
  }
}

}  // namespace fathom
