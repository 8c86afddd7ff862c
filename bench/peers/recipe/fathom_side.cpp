// bench/peers/recipe/fathom_side.cpp
// Our side of bench/peers/recipe/run: writes the inputs and what we make of them, or measures once.
//
//   recipe_peer TOKENIZER.json inputs            one JSON object: for each API requests, answers in pieces, and the
//                                                prompts, ids and events that the strict policy gives
//   recipe_peer TOKENIZER.json measure SECONDS   one JSON object a line: the cost of one API under one policy
#include <cstdlib>
#include <iostream>

#include "fathom/base/mapped_file.h"
#include "fathom/recipe/conformance/check_row.h"
#include "fathom/recipe/conformance/codec_cost.h"

namespace fathom::recipe {
namespace {

constexpr Api kApis[] = {Api::chat_completions, Api::responses, Api::messages};
constexpr int kRequests = 8;

Json strings(const std::vector<std::string>& values) {
  Json list = Json::array();
  for (const std::string& value : values) list.push(Json::of(value));
  return list;
}

Result<void> print_inputs(const Tokenizer& tokenizer) {
  ConversionOptions options;
  options.policy = Policy::strict;
  Json all = Json::object();
  for (Api api : kApis) {
    const CodecWork work = make_codec_work(api, tokenizer, kRequests);
    Json answers = Json::array(), prompts = Json::array(), ids = Json::array(), events = Json::array();
    for (size_t i = 0; i < work.requests.size(); ++i) {
      const auto request = read_request(api, std::string_view(work.requests[i]), options);
      if (!request) return request.error();
      const Prompt prompt = render(request->converted, options);
      const auto encoded = encode(prompt, tokenizer);
      if (!encoded) return encoded.error();
      const auto texts = events_of(*request, work.answers[i]);
      if (!texts) return texts.error();
      prompts.push(Json::of(prompt.text));
      Json list = Json::array();
      for (int32_t id : *encoded) list.push(Json::of(int64_t(id)));
      ids.push(std::move(list));
      events.push(strings(*texts));
      Json phases = Json::array();
      for (const auto& phase : work.answers[i]) phases.push(strings(phase));
      answers.push(std::move(phases));
    }
    Json of_api = Json::object();
    of_api.set("requests", strings(work.requests));
    of_api.set("answers", std::move(answers));
    of_api.set("prompts", std::move(prompts));
    of_api.set("ids", std::move(ids));
    of_api.set("events", std::move(events));
    all.set(name_of(api), std::move(of_api));
  }
  std::cout << to_string(all) << "\n";
  return {};
}

Result<void> print_costs(const Tokenizer& tokenizer, double seconds) {
  for (Api api : kApis) {
    const CodecWork work = make_codec_work(api, tokenizer, kRequests);
    for (Policy policy : {Policy::lenient, Policy::strict}) {
      const auto cost = measure_codec(work, policy, tokenizer, seconds);
      if (!cost) return cost.error();
      Json row = Json::object();
      row.set("api", Json::of(name_of(api)));
      row.set("policy", Json::of(name_of(policy)));
      row.set("request_bytes", Json::of(cost->request_bytes));
      row.set("prompt_tokens", Json::of(cost->prompt_tokens));
      row.set("convert", Json::of(cost->convert));
      row.set("render", Json::of(cost->render));
      row.set("encode", Json::of(cost->encode));
      for (size_t phase = 0; phase < kAnswerPhases.size(); ++phase) {
        row.set(kAnswerPhases[phase], Json::of(cost->chunks[phase]));
      }
      std::cout << to_string(row) << "\n";
    }
  }
  return {};
}

Result<void> run(int count, char** words) {
  const std::string_view verb = count > 2 ? words[2] : "";
  if (verb != "inputs" && verb != "measure") {
    return Error{ErrorCode::usage, "nothing to do", "recipe_peer", "pass TOKENIZER.json inputs|measure SECONDS"};
  }
  const auto text = read_file(words[1], int64_t(64) << 20);
  if (!text) return text.error();
  const auto tokenizer = derive_v41_tokenizer(*text);
  if (!tokenizer) return tokenizer.error();
  if (verb == "inputs") return print_inputs(*tokenizer);
  return print_costs(*tokenizer, count > 3 ? std::atof(words[3]) : 0.2);
}

}  // namespace
}  // namespace fathom::recipe

int main(int count, char** words) {
  const auto done = fathom::recipe::run(count, words);
  if (done) return 0;
  std::cerr << "recipe_peer: " << done.error().message << " (" << done.error().where << "): " << done.error().remedy
            << "\n";
  return 1;
}
