// tests/end_to_end/miniature.h
// The embedded miniature, opened once, and engines on it.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "fathom/checkpoint/embedded_model.h"
#include "fathom/engine/engine.h"
#include "fathom/model/open_model.h"
#include "fathom/tokenizer/compressed_vocabulary.h"

namespace fathom {

struct Miniature {
  OpenedModel model;
  Tokenizer tokenizer;
  CompressedVocabulary vocabulary;
};

inline const Miniature& miniature() {
  static const Miniature* one = [] {
    auto model = open_model(embedded_model());
    check(model.ok(), "the embedded model opens");
    std::string_view text;
    for (const EmbeddedFile& file : embedded_model()) {
      if (file.name == "tokenizer.json") text = {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
    }
    auto tokenizer = Tokenizer::parse(text, "tokenizer.json");
    check(tokenizer.ok(), "its tokenizer opens");
    auto vocabulary = compress_vocabulary(*tokenizer);
    check(vocabulary.ok(), "its vocabulary can be compressed");
    return new Miniature{std::move(*model), std::move(*tokenizer), std::move(*vocabulary)};
  }();
  return *one;
}

inline Result<Engine> try_engine(EngineOptions options) {
  return Engine::open(miniature().model.checkpoint, miniature().vocabulary.map, std::move(options));
}

inline Engine open_engine(EngineOptions options) {
  auto engine = try_engine(std::move(options));
  check(engine.ok(), engine.ok() ? "" : to_string(engine.error()).c_str());
  return std::move(*engine);
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  Finish finish;
};

/// Runs until nothing is left; answers by request.
inline std::map<RequestId, Answer> run(Engine& engine) {
  std::map<RequestId, Answer> answers;
  while (!engine.idle()) {
    for (const Event& event : engine.step()) {
      Answer& answer = answers[event.request];
      answer.ids.insert(answer.ids.end(), event.ids.begin(), event.ids.end());
      for (const TokenLogprob& token : event.logprobs) answer.logprobs.push_back(token.logprob);
      if (event.finish) answer.finish = *event.finish;
    }
  }
  return answers;
}

inline RequestId submit(Engine& engine, Request request) {
  auto id = engine.submit(std::move(request));
  check(id.ok(), id.ok() ? "" : to_string(id.error()).c_str());
  return *id;
}

/// Mean of accepted drafts a round.
inline double accepted_per_round(const Usage& usage) {
  int64_t accepted = 0;
  for (const int64_t count : usage.accepted) accepted += count;
  return usage.rounds == 0 ? 0 : double(accepted) / double(usage.rounds);
}

inline Request greedy(std::vector<int32_t> ids, int64_t max_tokens) {
  Request request;
  request.ids = std::move(ids);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  return request;
}

}  // namespace fathom
