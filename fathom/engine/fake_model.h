// fathom/engine/fake_model.h
// For tests: a network whose next token depends on a hash of everything before it, so that one wrong row, block, slot,
// position or rollback changes the text. It keeps its past where the real one does, in blocks and rings, and checks
// what it is given.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "fathom/base/philox.h"
#include "fathom/engine/runner.h"

namespace fathom {

class FakeModel {
 public:
  struct Shape {
    int64_t vocabulary = 17;
    int block = 5;
    int history = 3;
    float spread = 4;              // of the logits
    float draft_noise = 1;         // added to the target's logits to make those of drafts; 0: drafts equal the target
    bool vary_confidence = false;  // with the draft's text; else 0.5
    bool at_once = false;          // it has expect() and propose()
    ReplayShape replay{32, 6, 4, 4};
  };

  explicit FakeModel(Shape shape) : shape_(shape) {}

  ModelPort port() {
    ModelPort out;
    out.vocabulary = shape_.vocabulary;
    out.block = shape_.block;
    out.history = shape_.history;
    out.forward = [this](const Batch& batch) { return forward(batch); };
    out.draft = [this](const DraftBatch& batch) { draft(batch); };
    out.markov = [this](int step, View<const int32_t, 1> previous, View<float, 2> logits, View<float, 1> confidence) {
      markov(step, previous, logits, confidence);
    };
    if (shape_.at_once) {
      out.expect = [this](const Batch& batch) { expected_ = positions_of(batch); };
      out.propose = [this](const DraftBatch& batch, const DraftDraws& draws) { return propose(batch, draws); };
    }
    out.copy_block = [this](int32_t from, int32_t to) { blocks_[to] = blocks_[from]; };
    out.copy_slot = [this](int32_t from, int32_t to) { rings_[to] = rings_[from]; };
    return out;
  }

  static uint64_t extend(uint64_t hash, int32_t token) {
    const auto words = philox(hash, {uint32_t(token), 1, 2, 3});
    return words[0] | uint64_t(words[1]) << 32;
  }
  static uint64_t hash_of(std::span<const int32_t> tokens) {
    uint64_t hash = 0;
    for (const int32_t token : tokens) hash = extend(hash, token);
    return hash;
  }
  float logit(uint64_t hash, int64_t token) const {
    const auto wish = preferred.find(hash);
    const float bonus = wish != preferred.end() && wish->second == token ? 100 : 0;
    return bonus + shape_.spread * (float(philox(hash, {uint32_t(token), 7, 7, 7})[0]) / 4294967296.f - 0.5f);
  }
  float draft_logit(uint64_t hash, int64_t token) const {
    return logit(hash, token) +
           shape_.draft_noise * (float(philox(hash, {uint32_t(token), 8, 8, 8})[0]) / 4294967296.f - 0.5f);
  }
  std::vector<float> logits_after(std::span<const int32_t> tokens) const {
    std::vector<float> out;
    for (int64_t token = 0; token < shape_.vocabulary; ++token) out.push_back(logit(hash_of(tokens), token));
    return out;
  }
  /// The greedy answer of `count` tokens, or up to a stop token.
  std::vector<int32_t> greedy(std::vector<int32_t> tokens, int64_t count, int32_t stop) const {
    const size_t prompt = tokens.size();
    while (int64_t(tokens.size() - prompt) < count) {
      const auto logits = logits_after(tokens);
      tokens.push_back(int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      if (tokens.back() == stop) break;
    }
    return {tokens.begin() + ptrdiff_t(prompt), tokens.end()};
  }

  /// By the hash of a text: the token that it wants next.
  std::map<uint64_t, int32_t> preferred;
  int64_t calls = 0, most_rows = 0, most_prompt_rows = 0;
  int64_t foreseen = 0;  // calls of forward() whose rows expect() had said

 private:
  struct Entry {
    int32_t token = -1;
    int64_t position = -1;
    uint64_t hash = 0;  // of all tokens up to this one
  };
  Entry& block_entry(const Batch& batch, int64_t sequence, int64_t position) {
    const int32_t block = batch.blocks(sequence, position / kBlockTokens);
    EXPECT_GT(block, 0) << "a row has a block";
    return blocks_[block][size_t(position % kBlockTokens)];
  }
  Entry& ring_entry(int32_t slot, int64_t position) {
    EXPECT_GT(slot, 0) << "a sequence has a slot";
    auto& ring = rings_.try_emplace(slot, std::vector<Entry>(size_t(ring_capacity(shape_.replay)))).first->second;
    return ring[size_t(position) % ring.size()];
  }

  void check_history(const Batch& batch, int64_t sequence) {
    const int64_t first = batch.rows.positions[batch.rows.begin[sequence]];
    for (int64_t back = 1; back <= shape_.history; ++back) {
      const int64_t position = first - back;
      const int32_t want = position < 0 ? -1 : block_entry(batch, sequence, position).token;
      EXPECT_EQ(batch.history(sequence, back - 1), want);
    }
  }

  // Of each row its sequence's slot and its position.
  static std::vector<int64_t> positions_of(const Batch& batch) {
    std::vector<int64_t> out;
    for (int64_t r = 0; r < batch.rows.rows(); ++r) {
      out.push_back(batch.slots[batch.rows.sequence[r]]);
      out.push_back(batch.rows.positions[r]);
    }
    return out;
  }

  View<const float, 2> forward(const Batch& batch) {
    ++calls;
    foreseen += positions_of(batch) == expected_;
    expected_.clear();
    std::vector<uint64_t> hashes;
    int64_t prompt_rows = 0;
    for (int64_t s = 0; s < batch.rows.sequences(); ++s) {
      check_history(batch, s);
      for (int64_t r = batch.rows.begin[s]; r < batch.rows.begin[s + 1]; ++r) {
        const int64_t position = batch.rows.positions[r];
        EXPECT_EQ(batch.rows.sequence[r], s);
        if (r > batch.rows.begin[s]) {
          EXPECT_EQ(position, batch.rows.positions[r - 1] + 1);
        }
        uint64_t before = 0;
        if (position > 0) {
          const Entry& last = block_entry(batch, s, position - 1);
          EXPECT_EQ(last.position, position - 1) << "the row before has been run";
          before = last.hash;
          const Replay& replay = batch.replay[size_t(s)];
          if (position - 1 >= std::max(replay.decoder_from, replay.start) && r == batch.rows.begin[s]) {
            EXPECT_EQ(ring_entry(batch.slots[s], position - 1).hash, before) << "ring and blocks agree";
          }
        }
        const Entry entry{batch.ids[r], position, extend(before, batch.ids[r])};
        block_entry(batch, s, position) = entry;
        if (position >= batch.replay[size_t(s)].decoder_from) ring_entry(batch.slots[s], position) = entry;
        hashes.push_back(entry.hash);
      }
      const int64_t rows = batch.rows.begin[s + 1] - batch.rows.begin[s];
      if (rows > shape_.block + 1) prompt_rows += rows;
    }
    most_rows = std::max(most_rows, batch.rows.rows());
    most_prompt_rows = std::max(most_prompt_rows, prompt_rows);
    logits_.resize(size_t(batch.logit_rows.size() * shape_.vocabulary));
    for (int64_t i = 0; i < batch.logit_rows.size(); ++i) {
      if (i > 0) {
        EXPECT_GT(batch.logit_rows[i], batch.logit_rows[i - 1]);
      }
      for (int64_t token = 0; token < shape_.vocabulary; ++token) {
        logits_[size_t(i * shape_.vocabulary + token)] = logit(hashes[size_t(batch.logit_rows[i])], token);
      }
    }
    return View<const float, 2>(logits_.data(), {batch.logit_rows.size(), shape_.vocabulary});
  }

  void draft(const DraftBatch& batch) {
    drafting_.clear();
    for (int64_t s = 0; s < batch.tokens.size(); ++s) {
      const int64_t last = batch.last[s];
      const int64_t seen = std::max(batch.replay[size_t(s)].decoder_from, batch.replay[size_t(s)].start);
      for (int64_t p = std::max(seen, last - shape_.replay.window + 1); p <= last; ++p) {
        EXPECT_EQ(ring_entry(batch.slots[s], p).position, p) << "the window is there";
      }
      drafting_.push_back(extend(ring_entry(batch.slots[s], last).hash, batch.tokens[s]));
      newest_.assign(batch.tokens.data, batch.tokens.data + batch.tokens.size());
    }
  }

  void markov(int step, View<const int32_t, 1> previous, View<float, 2> logits, View<float, 1> confidence) {
    EXPECT_LT(step, shape_.block);
    for (size_t s = 0; s < drafting_.size(); ++s) {
      if (step == 0) {
        EXPECT_EQ(previous[int64_t(s)], newest_[s]);
      }
      if (step > 0) drafting_[s] = extend(drafting_[s], previous[int64_t(s)]);
      for (int64_t token = 0; token < shape_.vocabulary; ++token) {
        logits(int64_t(s), token) = draft_logit(drafting_[s], token);
      }
      confidence[int64_t(s)] =
          shape_.vary_confidence ? float(philox(drafting_[s], {9, 9, 9, 9})[0]) / 4294967296.f : 0.5f;
    }
  }

  // By the definition of an operation, position after position.
  DrawnDrafts propose(const DraftBatch& batch, const DraftDraws& draws) {
    const int64_t n = batch.tokens.size(), most = draws.law_tokens;
    draft(batch);
    std::vector<float> logits(size_t(n * shape_.vocabulary));
    std::vector<int32_t> previous(batch.tokens.data, batch.tokens.data + n);
    ids_.clear();
    scores_.clear();
    laws_.assign(size_t(draws.positions * n * most), {});
    counts_.assign(size_t(draws.positions * n), 0);
    for (int p = 0; p < draws.positions; ++p) {
      std::vector<float> confidence(static_cast<size_t>(n));
      const View<float, 2> rows(logits.data(), {n, shape_.vocabulary});
      markov(p, View<const int32_t, 1>(previous.data(), {n}), rows, View<float, 1>(confidence.data(), {n}));
      Sample op;
      op.logits = rows;
      op.rows = draws.rows.subspan(size_t(p * n), size_t(n));
      op.ids = View<int32_t, 1>(previous.data(), {n});
      if (most > 0) {
        op.lists = View<TokenWeight, 2>(laws_.data() + p * n * most, {n, most});
        op.list_counts = View<int32_t, 1>(counts_.data() + p * n, {n});
      }
      reference_operations().sample(*queue_, op);
      ids_.insert(ids_.end(), previous.begin(), previous.end());
      for (const float c : confidence) scores_.push_back(std::log(c / (1 - c)));
    }
    return {View<const int32_t, 2>(ids_.data(), {draws.positions, n}),
            View<const float, 2>(scores_.data(), {draws.positions, n}),
            View<const TokenWeight, 2>(laws_.data(), {draws.positions * n, most}),
            View<const int32_t, 1>(counts_.data(), {draws.positions * n})};
  }

  Shape shape_;
  std::unique_ptr<Queue> queue_ = std::move(*reference_backend().open_queue(1));
  std::vector<int64_t> expected_;
  std::vector<int32_t> ids_, counts_;  // of propose()
  std::vector<float> scores_;
  std::vector<TokenWeight> laws_;
  std::map<int32_t, std::array<Entry, kBlockTokens>> blocks_;
  std::map<int32_t, std::vector<Entry>> rings_;
  std::vector<float> logits_;
  std::vector<uint64_t> drafting_;
  std::vector<int32_t> newest_;
};

}  // namespace fathom
