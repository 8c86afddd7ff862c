// fathom/engine/sampler.h
// From logits to tokens: what a request asks of them (bias, penalties, forbidden tokens, teacher forcing), one draw a
// row, and the verification of drafts. The draws are the backend's operations `sample` and `accept`.
//
// Order of a row (engine.md R-33): bias, repetition penalty, frequency and presence penalty, the process's blacklist,
// forbidden end tokens, the mask of its constraint, then inside the operation temperature, min-p, joint top-k/top-p,
// renormalisation. A golden token (teacher forcing) replaces all of it: it is certain. Drafts are drawn without knowing
// it, and accepted iff they are it.
//
// Names of draws (engine.md 8.2; docs/sampling.md tells all of it): the key is the request's seed for the target and
// seed + 1,000,000,007 for drafts, the position is the absolute one of the token that is drawn, the role 0, 1 or 2 for
// a fresh token, the replacement of a refused draft, and the decision about a draft. Each number decides one emitted
// token at most: what is drawn behind a refused draft is thrown away and influences nothing, so it may be drawn by the
// same name again. A transparent request has role 3 and the same key for target and drafts: they run the same
// race (backend/race.h), a draft is accepted iff it is the target's own token, and no law is needed.
//
// A greedy request (temperature below 1e-5) needs no law either: a draft is accepted if it is the largest logit, which
// is what rejection sampling of two laws with all mass on one token comes to.
//
// Penalties see a row's past as it will be if the row counts: prompt, answer, and the drafts before that row. Drafts
// are drawn with the same bias and penalties, so that both laws stay close and acceptance does not suffer.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/engine/draft_laws.h"
#include "fathom/engine/request.h"
#include "fathom/engine/token_masks.h"
#include "fathom/model/scratch.h"

namespace fathom {

/// How often a token stands in the answer; a token that is only in the prompt counts 0. Kept for penalties.
using TokenCounts = std::unordered_map<int32_t, int32_t>;

/// What the next draw of a sequence depends on, besides its logits.
struct SamplerState {
  Sampling settings;
  uint64_t seed = 0;
  Verification verification = Verification::rejection;
  int32_t eos_id = -1;
  std::vector<int32_t> end_ids;       // end-of-text and stop tokens: forbidden until settings.min_tokens are there
  std::vector<int32_t> blacklist;     // of the process
  TokenCounts counts;                 // filled only when a penalty is on
  DraftLaws draft_laws;               // of the drafts proposed; empty where verification needs none
  const TokenMasks* masks = nullptr;  // of a constrained answer: of every row that is adjusted; not owned
};

SamplerState make_sampler_state(const Sampling& settings, uint64_t seed, int32_t eos_id,
                                std::span<const int32_t> prompt, Verification verification = Verification::rejection,
                                std::span<const int32_t> blacklist = {});
/// Takes a token of the answer into account.
void count_token(SamplerState& state, int32_t token);
/// The answer is these tokens and no others.
void recount_tokens(SamplerState& state, std::span<const int32_t> prompt, std::span<const int32_t> answer);

inline bool is_greedy(const Sampling& settings) { return settings.temperature < 1e-5f; }
/// Whether a draft is accepted by the laws of both sides; else iff it is the target's own token.
inline bool verified_by_laws(const SamplerState& state) {
  return !is_greedy(state.settings) && state.verification == Verification::rejection;
}
/// Token `index` of the answer where it is forced, else -1.
inline int32_t golden_token(const Sampling& settings, int64_t index) {
  return index < int64_t(settings.golden_token_ids.size()) ? settings.golden_token_ids[size_t(index)] : -1;
}
/// Whether adjust_logits would change a row behind `generated` tokens.
bool needs_adjustment(const SamplerState& state, int64_t generated);
/// The part of R-33 before the temperature, in place; golden tokens are not part of it. `assumed`: drafts before this
/// row; `generated` does not count them.
void adjust_logits(std::span<float> logits, const SamplerState& state, std::span<const int32_t> assumed,
                   int64_t generated);

/// Log-probability of `id` and of the `top` best (ties to the lower id) by the raw logits; sums in double, in id order.
/// `smaller`: and sum_smaller_probs.
TokenLogprob logprob_of(std::span<const float> logits, int32_t id, int top, bool smaller = false);

/// How propose() draws the draft of a sequence that is to stand at `position`.
RowSampling draft_sampling(const SamplerState& state, int64_t position, int64_t vocabulary);
/// Whether that needs nobody to look at its logits, of any draft behind `generated` tokens.
inline bool draws_unseen(const SamplerState& state, int64_t generated, bool wants_logprob) {
  return !needs_adjustment(state, generated) &&
         (!wants_logprob || is_greedy(state.settings) || verified_by_laws(state));
}
/// Log-probability of `id` by a law that is given as a list.
float logprob_in(std::span<const TokenWeight> law, int32_t id);

/// Most memory that Sampler and the sequences' draft laws take in a step, beside the logits themselves.
int64_t sampler_bytes(int64_t vocabulary, int64_t sequences, int64_t drafts, bool on_device = false);

/// One sequence whose next token is chosen.
struct Choice {
  SamplerState* state = nullptr;         // propose(): null leaves the sequence out
  int64_t row = 0;                       // choose(): the first of its drafts + 1 neighbouring logit rows
  std::span<const int32_t> drafts = {};  // choose(): proposals to verify; propose(): drafts of this block so far
  int64_t position = 0;   // of the first token that its logits are about, the first draft's or the answer's
  int64_t generated = 0;  // tokens of the answer so far, drafts not counted
  /// choose(): out, of each draft the probability that it is accepted as far as it is known, whether or not one before
  /// it is refused: 1 - residual mass where both laws are there (acceptance_of), else 1 or 0 for whether it is the
  /// target's own token. Greedy that is the same number, as laws of one token have it; a transparent request keeps no
  /// laws, and its race accepts with another probability. Empty: not wanted.
  std::span<float> acceptance = {};
  float* logprob = nullptr;  // propose(): out, of the draft by the law that it is drawn from; null: not wanted
};

/// Owns scratch that grows to the largest step ever and is then reused. Rows whose logits are copied or whose laws are
/// needed are worked on in groups, so that scratch does not grow with the number of sequences. Laws of the target stay
/// in the backend's memory; on a device nobody waits between two operations but where logits are changed by the
/// processor. One thread at a time.
class Sampler {
 public:
  static constexpr int64_t kGroupRows = 64, kDeviceGroupRows = 256;

  /// `memory`: in which the logits lie that it is given.
  Sampler(const Operations& ops, Queue& queue, int64_t vocabulary, const Memory& memory = reference_backend().memory)
      : ops_(ops),
        queue_(&queue),
        vocabulary_(vocabulary),
        memory_(memory),
        group_rows_(memory.host_visible ? kGroupRows : kDeviceGroupRows),
        shared_(Scratch::shared(memory)),
        own_(memory) {}

  /// For each choice, appends the drafts that are accepted and one more token to `tokens`, and the new length of
  /// `tokens` to `begin`.
  void choose(View<const float, 2> logits, std::span<const Choice> choices, std::vector<int32_t>& tokens,
              std::vector<int32_t>& begin) {
    begin_choice(logits, choices);
    end_choice(choices, tokens, begin);
  }
  /// Its two halves: the first queues what is to be done, the second waits for it. Choices and their drafts must stay
  /// as they are in between.
  void begin_choice(View<const float, 2> logits, std::span<const Choice> choices);
  void end_choice(std::span<const Choice> choices, std::vector<int32_t>& tokens, std::vector<int32_t>& begin);

  /// Log-probability of `id`, and of the `top` best that can be drawn, by the law that sequence draws from: `logits`
  /// are raw, `assumed` and `generated` as for adjust_logits. What cannot be drawn has kNever.
  TokenLogprob sampled_logprob(std::span<const float> logits, const SamplerState& state,
                               std::span<const int32_t> assumed, int64_t generated, int32_t id, int top,
                               bool smaller = false);

  /// Draws one draft for each sequence from its row of `logits` [sequences, vocabulary], which is changed in place. The
  /// law of a sampled one is appended to its draft_laws; whoever begins a new block of drafts clears them.
  ///   ids  [sequences] out; entries of sequences that are left out stay as they are
  void propose(View<float, 2> logits, std::span<const Choice> sequences, std::span<int32_t> ids);

 private:
  struct Row {
    RowSampling sampling;
    int64_t source = 0;  // row of the logits
    int64_t place = 0;   // its own number among all rows of the choices
    const Choice* choice = nullptr;
    int offset = 0;       // number of drafts before it
    int32_t golden = -1;  // the token that it must be
  };
  /// Choices that are worked on together, and where the processor finds what came of them.
  struct Group {
    size_t first = 0, end = 0;        // choices
    size_t rows = 0;                  // the first of them, among all
    View<int32_t, 1> accepted, next;  // of those that are verified by laws
    View<uint64_t, 1> common;         // [rows of those]
  };
  /// What is wanted of a draw of some rows, and where it goes.
  struct Drawn {
    View<int32_t, 1> ids = {};
    View<uint32_t, 2> laws = {};
    View<TokenWeight, 2> lists = {};
    View<int32_t, 1> counts = {};
  };
  void list_rows(std::span<const Choice> choices, int64_t first_place);
  void queue_group(View<const float, 2> logits, std::span<const Choice> choices, Group& group);
  void adjust(View<const float, 2> logits, std::span<Row> rows, int64_t first);
  void change_row(std::span<const float> from, std::span<float> to, const Row& row);
  void draw(View<const float, 2> logits, std::span<const Row> rows, const Drawn& out);
  void verify_laws(View<const int32_t, 1> target_ids, Group& group);
  View<const TokenWeight, 1> in_own_memory(const std::vector<TokenWeight>& laws);

  Operations ops_;
  Queue* queue_;
  int64_t vocabulary_;
  Memory memory_;
  int64_t group_rows_;
  Scratch shared_, own_;    // of one call: what both sides reach; what only operations do
  View<float, 2> copies_;   // of logits that are changed, [rows of a group, vocabulary]
  View<uint32_t, 2> laws_;  // [sampled rows of a group, vocabulary]
  View<float, 1> staged_;   // a row of logits on its way to the processor and back
  // Rows drawn from the logits as they are, with or without keeping the law, and those changed before.
  std::vector<Row> as_given_, changed_, sampled_, sampled_changed_;
  std::vector<Group> groups_;
  std::vector<const int32_t*> ids_;  // [all rows] where each one's draw lies
  std::vector<int32_t> law_row_;     // [all rows] its number among its group's that are verified by laws
  std::vector<int32_t> verified_;    // [all rows] of a choice's first: its own number among those of its group
  std::vector<Row> law_rows_;        // of a group, with laws
  std::vector<int32_t> law_begin_;
  DraftLaws draft_laws_;
  std::vector<float> row_;  // of sampled_logprob
  std::vector<uint32_t> law_;
};

}  // namespace fathom
