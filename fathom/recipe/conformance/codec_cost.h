// fathom/recipe/conformance/codec_cost.h
// What the codec costs on agent_workload.h: the work of `fathom bench codec` and of bench/peers/recipe. One thread;
// processor time, so that a busy machine disturbs less.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/recipe/codec.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

inline constexpr std::array<std::string_view, 3> kAnswerPhases = {"reasoning", "content", "calls"};

/// Inputs, made once: request bodies, and answers cut into texts of one token each, by phase.
struct CodecWork {
  using Answer = std::array<std::vector<std::string>, kAnswerPhases.size()>;
  Api api = Api::chat_completions;
  std::vector<std::string> requests;
  std::vector<Answer> answers;
};
/// `count` requests and as many answers, of the seeds 1 to count.
CodecWork make_codec_work(Api api, const Tokenizer& tokenizer, int count);

/// Means over the work, in seconds.
struct CodecCost {
  double convert = 0, render = 0, encode = 0;            // a request
  std::array<double, kAnswerPhases.size()> chunks = {};  // a chunk of one token in this phase, to its events
  double answer = 0;                                     // a whole answer: its stream made, fed, finished
  double request_bytes = 0, prompt_tokens = 0;           // of a request
  double answer_tokens = 0, event_bytes = 0;             // of an answer: tokens in, bytes of JSON out
};
/// Takes about `seconds` for each of four measurements, and some unmeasured work before. Errors: those of the codec,
/// which the work does not cause.
Result<CodecCost> measure_codec(const CodecWork& work, Policy policy, const Tokenizer& tokenizer, double seconds);

/// All events of an answer, one JSON text each.
Result<std::vector<std::string>> events_of(const CodecRequest& request, const CodecWork::Answer& answer);

}  // namespace fathom::recipe
