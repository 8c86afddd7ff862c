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

int64_t sampler_bytes(int64_t vocabulary, int64_t sequences, int64_t drafts, bool on_device) {
  const int64_t list = most_draft_tokens(vocabulary) * int64_t(sizeof(TokenWeight)) + int64_t(sizeof(int32_t));
  // A sequence is not split.
  const int64_t group = (on_device ? Sampler::kDeviceGroupRows : Sampler::kGroupRows) + drafts;
  // Copies of logits and laws of the target; lists of drafts' laws, once in a group, once as drawn and once kept.
  return group * (vocabulary * int64_t(sizeof(float) + sizeof(uint32_t)) + list) + sequences * (drafts + 1) * list;
}

RowSampling draft_sampling(const SamplerState& state, int64_t position, int64_t vocabulary) {
  RowSampling out = name_draw(state, position, kDraftStream);
  if (!verified_by_laws(state)) return out;
  const int32_t most = most_draft_tokens(vocabulary);
  if (most < vocabulary) out.top_k = out.top_k > 0 ? std::min(out.top_k, most) : most;
  return out;
}

float logprob_in(std::span<const TokenWeight> law, int32_t id) {
  double sum = 0, own = 0;  // exact: integers below 2^32
  for (const TokenWeight& token : law) {
    sum += token.weight;
    if (token.id == id) own = token.weight;
  }
  return float(std::log(own / sum));
}

TokenLogprob Sampler::sampled_logprob(std::span<const float> logits, const SamplerState& state,
                                      std::span<const int32_t> assumed, int64_t generated, int32_t id, int top,
                                      bool smaller) {
  const size_t size = size_t(vocabulary_);
  if (row_.size() < size) row_.resize(size);
  if (law_.size() < size) law_.resize(size);
  const std::span<float> copy(row_.data(), size);
  std::copy(logits.begin(), logits.end(), copy.begin());
  adjust_logits(copy, state, assumed, generated);
  const RowSampling name = name_draw(state, 0, 0);  // the position is not read: nothing is drawn
  ops_.sample(*queue_, {View<const float, 2>(copy.data(), {1, vocabulary_}),
                        {&name, 1},
                        {},
                        View<uint32_t, 2>(law_.data(), {1, vocabulary_})});
  const std::span<const uint32_t> law(law_.data(), size);
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
// changed first, and both once more of sampled rounds, whose laws the verification needs: a choice's rows stay together
// there.
void Sampler::list_rows(std::span<const Choice> choices, int64_t first_place) {
  for (auto* list : {&as_given_, &changed_, &sampled_, &sampled_changed_}) list->clear();
  int64_t place = first_place;
  for (const Choice& choice : choices) {
    const bool wants_laws = !choice.drafts.empty() && verified_by_laws(*choice.state);
    const auto golden = [&](int offset) { return golden_token(choice.state->settings, choice.generated + offset); };
    const auto changes = [&](int offset) {
      return needs_adjustment(*choice.state, choice.generated + offset) || golden(offset) >= 0;
    };
    const int rows = int(choice.drafts.size()) + 1;
    bool any = false;
    for (int offset = 0; offset < rows; ++offset) any = any || changes(offset);
    for (int offset = 0; offset < rows; ++offset, ++place) {
      const Row row{name_draw(*choice.state, choice.position + offset, 0),
                    choice.row + offset,
                    place,
                    &choice,
                    offset,
                    golden(offset)};
      if (wants_laws) {
        (any ? sampled_changed_ : sampled_).push_back(row);
      } else {
        (changes(offset) ? changed_ : as_given_).push_back(row);
      }
    }
  }
}

// `from` -> `to`, both where logits lie, changed as the request wants.
void Sampler::change_row(std::span<const float> from, std::span<float> to, const Row& row) {
  const std::span<float> seen = memory_.host_visible ? to : std::span<float>(staged_.data, size_t(staged_.shape[0]));
  if (seen.data() != from.data()) memory_.copy(seen.data(), from.data(), int64_t(from.size_bytes()));
  const Choice& choice = *row.choice;
  if (row.golden >= 0) {
    force(seen, row.golden);
  } else {
    adjust_logits(seen, *choice.state, choice.drafts.first(size_t(row.offset)), choice.generated);
  }
  if (seen.data() != to.data()) memory_.copy(to.data(), seen.data(), int64_t(seen.size_bytes()));
}

// Copies the logits of these rows to copies_ from row `first` on, and changes the copies as the requests want.
void Sampler::adjust(View<const float, 2> logits, std::span<Row> rows, int64_t first) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto source = logits.row(rows[i].source);
    rows[i].source = first + int64_t(i);
    change_row(source, copies_.row(rows[i].source), rows[i]);
  }
}

// Draws rows[i] from row rows[i].source of `logits`.
void Sampler::draw(View<const float, 2> logits, std::span<const Row> rows, const Drawn& out) {
  if (rows.empty()) return;
  const auto count = int64_t(rows.size());
  const auto source = shared_.vector<int32_t>(count);
  const auto samplings = shared_.vector<RowSampling>(count);
  for (int64_t i = 0; i < count; ++i) {
    source[i] = int32_t(rows[size_t(i)].source);
    samplings[i] = rows[size_t(i)].sampling;
    ids_[size_t(rows[size_t(i)].place)] = out.ids.data + i;
  }
  Sample op;
  op.logits = logits;
  op.source = source;
  op.rows = {samplings.data, size_t(count)};
  op.ids = out.ids;
  op.laws = out.laws;
  op.lists = out.lists;
  op.list_counts = out.counts;
  ops_.sample(*queue_, op);
}

// A device's operations search in them.
View<const TokenWeight, 1> Sampler::in_own_memory(const std::vector<TokenWeight>& laws) {
  const auto count = int64_t(laws.size());
  if (memory_.host_visible) return {laws.data(), {count}};
  constexpr int64_t kPiece = 256;  // copied by an operation, so that nobody waits
  const int64_t pieces = (count + kPiece - 1) / kPiece;
  const auto there = shared_.vector<TokenWeight>(pieces * kPiece), here = own_.vector<TokenWeight>(pieces * kPiece);
  std::copy(laws.begin(), laws.end(), there.data);
  const auto order = shared_.vector<int32_t>(pieces);
  for (int64_t i = 0; i < pieces; ++i) order[i] = int32_t(i);
  const auto rows = [&](View<TokenWeight, 1> list) {
    return AnyViewMut(reinterpret_cast<uint8_t*>(list.data), DType::i32, pieces, 2 * kPiece);
  };
  if (count > 0) ops_.gather_rows(*queue_, {rows(there), order, rows(here)});
  return {here.data, {count}};
}

// Of law_rows_, whose laws are those of laws_; target_ids are their fresh draws.
void Sampler::verify_laws(View<const int32_t, 1> target_ids, Group& group) {
  const int64_t rows = int64_t(law_rows_.size());
  const auto draft_ids = shared_.vector<int32_t>(rows), draft_begin = shared_.vector<int32_t>(rows + 1);
  const auto samplings = shared_.vector<RowSampling>(rows);
  std::vector<int32_t>& begin = law_begin_;
  begin.assign(1, 0);
  draft_laws_.clear();
  draft_begin[0] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = law_rows_[size_t(r)];
    const Choice& choice = *row.choice;
    const DraftLaws& laws = choice.state->draft_laws;
    const bool drafted = size_t(row.offset) < choice.drafts.size();
    draft_ids[r] = -1;
    samplings[r] = row.sampling;
    law_row_[size_t(row.place)] = int32_t(r);
    if (row.offset == 0) verified_[size_t(row.place)] = int32_t(begin.size()) - 1;
    if (drafted) {
      check(laws.rows() > row.offset, "every sampled draft has its law");
      draft_ids[r] = choice.drafts[size_t(row.offset)];
      const auto law = laws.row(row.offset);
      draft_laws_.tokens.insert(draft_laws_.tokens.end(), law.begin(), law.end());
    } else {
      begin.push_back(int32_t(r) + 1);
    }
    draft_begin[r + 1] = int32_t(draft_laws_.tokens.size());
  }
  const int64_t sequences = int64_t(begin.size()) - 1;
  const auto ends = shared_.vector<int32_t>(sequences + 1);
  std::copy(begin.begin(), begin.end(), ends.data);
  group.accepted = shared_.vector<int32_t>(sequences);
  group.next = shared_.vector<int32_t>(sequences);
  group.common = shared_.vector<uint64_t>(rows);
  ops_.accept(*queue_, {ends,
                        View<const uint32_t, 2>(laws_.data, {rows, vocabulary_}),
                        target_ids,
                        draft_ids,
                        draft_begin,
                        in_own_memory(draft_laws_.tokens),
                        {samplings.data, size_t(rows)},
                        group.accepted,
                        group.next,
                        group.common});
}

void Sampler::queue_group(View<const float, 2> logits, std::span<const Choice> choices, Group& group) {
  list_rows(choices, int64_t(group.rows));
  const auto ids = [&](const std::vector<Row>& rows) { return shared_.vector<int32_t>(int64_t(rows.size())); };
  const int64_t plain = int64_t(sampled_.size()), changed = int64_t(sampled_changed_.size());
  // First what needs nothing from the processor.
  draw(logits, as_given_, {.ids = ids(as_given_)});
  const auto target_ids = shared_.vector<int32_t>(plain + changed);
  draw(logits, sampled_, {.ids = {target_ids.data, {plain}}, .laws = {laws_.data, {plain, vocabulary_}}});
  adjust(logits, changed_, changed);
  adjust(logits, sampled_changed_, 0);
  draw(copies_, changed_, {.ids = ids(changed_)});
  draw(copies_, sampled_changed_,
       {.ids = {target_ids.data + plain, {changed}},
        .laws = {laws_.data + plain * vocabulary_, {changed, vocabulary_}}});
  law_rows_ = sampled_;
  law_rows_.insert(law_rows_.end(), sampled_changed_.begin(), sampled_changed_.end());
  if (!law_rows_.empty()) verify_laws(target_ids, group);
}

void Sampler::begin_choice(View<const float, 2> logits, std::span<const Choice> choices) {
  shared_.reset();
  own_.reset();
  staged_ = {};
  groups_.clear();
  int64_t rows = 0, most = 0, lawful = 0, copied = 0;  // of all; of a group; of all that have laws; that may be changed
  for (size_t first = 0, end = 0; first < choices.size(); first = end) {
    const int64_t before = rows;
    while (end < choices.size() && rows - before < group_rows_) {
      const Choice& choice = choices[end++];
      const auto own = int64_t(choice.drafts.size()) + 1;
      rows += own;
      if (own > 1 && verified_by_laws(*choice.state)) lawful += own;
      const bool golden = !choice.state->settings.golden_token_ids.empty();
      if (golden || needs_adjustment(*choice.state, choice.generated)) copied += own;
    }
    groups_.push_back({first, end, size_t(before), {}, {}, {}});
    most = std::max(most, rows - before);
  }
  ids_.assign(size_t(rows), nullptr);
  law_row_.assign(size_t(rows), -1);
  verified_.assign(size_t(rows), -1);
  laws_ = own_.table<uint32_t>(std::min(most, lawful), vocabulary_);
  copies_ = own_.table<float>(std::min(most, copied), vocabulary_);
  if (copied > 0 && !memory_.host_visible) staged_ = shared_.vector<float>(vocabulary_);
  for (Group& group : groups_) queue_group(logits, choices.subspan(group.first, group.end - group.first), group);
}

void Sampler::end_choice(std::span<const Choice> choices, std::vector<int32_t>& tokens, std::vector<int32_t>& begin) {
  queue_->wait();
  for (const Group& group : groups_) {
    size_t place = group.rows;
    for (size_t i = group.first; i < group.end; ++i) {
      const Choice& choice = choices[i];
      const size_t drafts = choice.drafts.size();
      size_t accepted = 0;
      int32_t next = 0;
      if (drafts > 0 && verified_by_laws(*choice.state)) {
        for (size_t d = 0; d < choice.acceptance.size(); ++d) {
          choice.acceptance[d] = acceptance_of(group.common[law_row_[place + d]]);
        }
        accepted = size_t(group.accepted[verified_[place]]);
        next = group.next[verified_[place]];
      } else {
        const auto id = [&](size_t row) { return *ids_[place + row]; };
        for (size_t d = 0; d < choice.acceptance.size(); ++d) {
          choice.acceptance[d] = choice.drafts[d] == id(d) ? 1.f : 0.f;
        }
        while (accepted < drafts && choice.drafts[accepted] == id(accepted)) ++accepted;
        next = id(accepted);
      }
      tokens.insert(tokens.end(), choice.drafts.begin(), choice.drafts.begin() + ptrdiff_t(accepted));
      tokens.push_back(next);
      begin.push_back(int32_t(tokens.size()));
      place += drafts + 1;
    }
  }
}

void Sampler::propose(View<float, 2> logits, std::span<const Choice> sequences, std::span<int32_t> ids) {
  shared_.reset();
  own_.reset();
  staged_ = {};
  for (auto* list : {&as_given_, &sampled_, &changed_}) list->clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Choice& choice = sequences[i];
    if (choice.state == nullptr) continue;
    const Row row{draft_sampling(*choice.state, choice.position, vocabulary_),
                  int64_t(i),
                  int64_t(i),
                  &choice,
                  int(choice.drafts.size()),
                  -1};
    const bool greedy = is_greedy(choice.state->settings);
    if (verified_by_laws(*choice.state)) {
      sampled_.push_back(row);
    } else if (choice.logprob != nullptr && !greedy) {
      changed_.push_back(row);  // a law, as long as it is, that only its log-probability is read from
    } else {
      if (choice.logprob != nullptr) *choice.logprob = 0;  // the largest logit is certain
      as_given_.push_back(row);
    }
    if (!needs_adjustment(*choice.state, choice.generated + int64_t(choice.drafts.size()))) continue;
    if (!memory_.host_visible && staged_.shape[0] == 0) staged_ = shared_.vector<float>(vocabulary_);
    change_row(logits.row(int64_t(i)), logits.row(int64_t(i)), row);
  }
  ids_.assign(sequences.size(), nullptr);
  draw(logits, as_given_, {.ids = shared_.vector<int32_t>(int64_t(as_given_.size()))});
  const auto draw_lists = [&](const std::vector<Row>& rows, int64_t list_tokens) {
    const auto count = int64_t(rows.size());
    Drawn out;
    out.ids = shared_.vector<int32_t>(count);
    out.lists = shared_.table<TokenWeight>(count, list_tokens);
    out.counts = shared_.vector<int32_t>(count);
    draw(logits, rows, out);
    return out;
  };
  const Drawn kept = draw_lists(sampled_, std::min<int64_t>(most_draft_tokens(vocabulary_), vocabulary_));
  const Drawn whole = draw_lists(changed_, vocabulary_);
  queue_->wait();
  const auto tell = [&](const std::vector<Row>& rows, const Drawn& drawn) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const Choice& choice = *rows[i].choice;
      const auto law = drawn.lists.row(int64_t(i)).first(size_t(drawn.counts[int64_t(i)]));
      if (verified_by_laws(*choice.state)) choice.state->draft_laws.append(law);
      if (choice.logprob != nullptr) *choice.logprob = logprob_in(law, drawn.ids[int64_t(i)]);
    }
  };
  tell(sampled_, kept);
  tell(changed_, whole);
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i] != nullptr) ids[i] = *ids_[i];
  }
}

}  // namespace fathom
