// The first draft block in full, then plain and speculative greedy decoding.
#include <algorithm>
#include <cstring>

#include "fathom/model/golden/golden_case.h"
#include "fathom/model/golden/tolerances.h"
#include "fathom/tensor/number_formats.h"

namespace fathom {
namespace {

std::vector<float> numbers(const Json* list) {
  std::vector<float> out;
  if (list) {
    for (const Json& item : list->items) out.push_back(float(item.as_double().value_or(0)));
  }
  return out;
}

int32_t argmax(std::span<const float> row) { return int32_t(std::max_element(row.begin(), row.end()) - row.begin()); }

struct Block {
  std::vector<float> tokens, confidence, hidden, base, bias;
};

Block draft_block(SingleSequence& sequence, int32_t newest) {
  Model& model = sequence.model();
  const ModelConfig& c = model.config();
  const Drafts drafts = sequence.draft(newest);
  Block out;
  out.base.resize(size_t(drafts.logits.size()));
  const auto logit_bytes = sequence.bytes({reinterpret_cast<const uint8_t*>(drafts.logits.data), DType::f32,
                                           drafts.logits.shape[0], drafts.logits.shape[1]});
  std::memcpy(out.base.data(), logit_bytes.data(), logit_bytes.size());
  const auto hidden_bytes = sequence.bytes(drafts.hidden);
  AnyView hidden = drafts.hidden;
  hidden.data = hidden_bytes.data();
  for (int64_t i = 0; i < hidden.rows; ++i) {
    for (int64_t h = 0; h < hidden.cols; ++h) {
      out.hidden.push_back(hidden.dtype == DType::bf16 ? bf16_to_float(hidden.as<uint16_t>()(i, h))
                                                       : hidden.as<float>()(i, h));
    }
  }
  std::vector<float> logits(static_cast<size_t>(c.vocab_size));
  int32_t previous = newest;
  for (int step = 0; step < c.dspark_block_size; ++step) {
    float confidence = 0;
    model.markov(sequence.queue(), step, {&previous, {1}}, {logits.data(), {1, c.vocab_size}}, {&confidence, {1}});
    for (size_t v = 0; v < logits.size(); ++v)
      out.bias.push_back(logits[v] - out.base[size_t(step) * logits.size() + v]);
    previous = argmax(logits);
    out.tokens.push_back(float(previous));
    out.confidence.push_back(confidence);
  }
  return out;
}

struct Spoken {
  std::vector<float> tokens, logits, accepted;
  std::vector<Block> rounds;
};

// Greedy continuation of `count` tokens or to the end token, with or without drafts.
Spoken continue_greedily(SingleSequence& sequence, int32_t first, size_t count, bool stop, bool drafts) {
  const ModelConfig& c = sequence.model().config();
  Spoken out;
  out.tokens.push_back(float(first));
  const auto done = [&] {
    return out.tokens.size() >= count || (stop && int32_t(out.tokens.back()) == c.eos_token_id);
  };
  while (!done()) {
    std::vector<int32_t> ids{int32_t(out.tokens.back())};
    if (drafts) {
      out.rounds.push_back(draft_block(sequence, ids[0]));
      for (const float t : out.rounds.back().tokens) ids.push_back(int32_t(t));
    }
    const int64_t start = sequence.length();
    std::vector<int64_t> positions;
    for (size_t i = 0; i < ids.size(); ++i) positions.push_back(start + int64_t(i));
    const auto logits = sequence.feed(ids, positions);
    int64_t accepted = 0;
    for (int64_t i = 0; i < logits.shape[0]; ++i) {
      const auto row = logits.row(i);
      out.logits.insert(out.logits.end(), row.begin(), row.end());
      const int32_t token = argmax(row);
      if (!done()) out.tokens.push_back(float(token));
      if (i + 1 == logits.shape[0] || token != ids[size_t(i) + 1]) break;
      ++accepted;
    }
    sequence.take_back(start + 1 + accepted);
    out.accepted.push_back(float(accepted));
  }
  return out;
}

}  // namespace

void run_dspark_case(const std::function<SingleSequence()>& make, const GoldenCase& c, const Report& report) {
  const auto& input = c.tensors.at("input_ids").values;
  const std::vector<int32_t> ids(input.begin(), input.end());
  const int64_t length = int64_t(ids.size()), last = length - 1;
  const auto prompt = [&](SingleSequence& sequence, std::vector<float>* logits) {
    sequence.begin(c.replay ? ReplayMode::compact : ReplayMode::off, length, c.replay);
    const auto row = sequence.feed(ids, {&last, 1});
    if (logits) logits->assign(row.data, row.data + row.size());
    return argmax(row.row(0));
  };
  const auto compare = [&](const std::string& stage, std::span<const float> found, std::span<const float> expected,
                           int64_t row_length) {
    report(compare_stage(stage, found, expected, row_length, tolerance_of(c, stage)));
  };

  SingleSequence sequence = make();
  std::vector<float> first_logits;
  const int32_t first = prompt(sequence, &first_logits);
  const ModelConfig& config = sequence.model().config();
  for (int stage = 0; stage < config.num_nextn_predict_layers; ++stage) {
    const std::string name = "mtp." + std::to_string(stage) + ".window_rows";
    const GoldenTensor& expected = c.tensors.at(name);
    std::vector<float> found;
    for (int64_t i = 0; i < expected.shape[1]; ++i) {
      const auto row = sequence.window_row(config.num_hidden_layers + stage, length - expected.shape[1] + i);
      found.insert(found.end(), row.begin(), row.end());
    }
    compare(name, found, expected.values, 1);  // one flipped code is one value
  }
  const Block block = draft_block(sequence, first);
  compare("hidden", block.hidden, c.tensors.at("hidden").values, config.hidden_size);
  compare("base_logits", block.base, c.tensors.at("base_logits").values, config.vocab_size);
  compare("markov_bias", block.bias, c.tensors.at("markov_bias").values, config.vocab_size);
  compare("draft_tokens", block.tokens, numbers(c.json.find("draft_tokens")), 1);
  compare("confidence", block.confidence, numbers(c.json.find("confidence")), 1);

  const auto greedy = numbers(c.json.find("greedy_tokens"));
  const bool stop = c.json.find("rounds") != nullptr;  // the trained cases end at the stop token
  SingleSequence plain_sequence = make();
  prompt(plain_sequence, nullptr);
  const Spoken plain = continue_greedily(plain_sequence, first, greedy.size(), stop, false);
  compare("greedy_tokens", plain.tokens, greedy, 1);
  std::vector<float> logits = first_logits;
  logits.insert(logits.end(), plain.logits.begin(), plain.logits.end());
  compare("plain_logits", logits, c.tensors.at("plain_logits").values, config.vocab_size);

  const Spoken spoken = continue_greedily(sequence, first, greedy.size(), stop, true);
  compare("greedy_tokens_with_drafts", spoken.tokens, greedy, 1);
  compare("accepted", spoken.accepted, numbers(c.json.find("accepted")), 1);
  if (const Json* rounds = c.json.find("rounds")) {
    std::vector<float> tokens, confidence, expected_tokens, expected_confidence;
    for (const Block& round : spoken.rounds) {
      tokens.insert(tokens.end(), round.tokens.begin(), round.tokens.end());
      confidence.insert(confidence.end(), round.confidence.begin(), round.confidence.end());
    }
    for (const Json& round : rounds->items) {
      for (const float t : numbers(round.find("draft_tokens"))) expected_tokens.push_back(t);
      for (const float t : numbers(round.find("confidence"))) expected_confidence.push_back(t);
    }
    compare("rounds.draft_tokens", tokens, expected_tokens, 1);
    compare("rounds.confidence", confidence, expected_confidence, 1);
  }
}

}  // namespace fathom
