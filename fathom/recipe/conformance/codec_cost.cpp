#include "fathom/recipe/conformance/codec_cost.h"

#include <ctime>

#include "fathom/recipe/conformance/agent_workload.h"

namespace fathom::recipe {
namespace {

/// Processor seconds of this thread.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

/// One token a piece. A token that ends inside a character is joined with the next.
std::vector<std::string> pieces_of(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<std::string> pieces(1);
  for (int32_t id : tokenizer.encode(text)) {
    if (valid_utf8_prefix(pieces.back()) == pieces.back().size() && !pieces.back().empty()) pieces.emplace_back();
    pieces.back() += tokenizer.bytes_of(id);
  }
  return pieces;
}

AnswerStream stream_for(const CodecRequest& request) {
  return AnswerStream(make_writer(request, {"chatcmpl-0123456789abcdef", request.model, 1796000000}, nullptr),
                      request.converted.parsing, nullptr, 1);
}

/// Seconds of one call of `each`, which is given the numbers from 0 to count - 1 again and again. Once over all of them
/// goes unmeasured before.
template <class Each>
Result<double> time_a_call(size_t count, double seconds, Each each) {
  int64_t calls = 0;
  for (size_t i = 0; i < count; ++i) {
    if (auto done = each(i); !done) return done.error();
  }
  const double begin = now();
  double spent = 0;
  while (spent < seconds) {
    for (size_t i = 0; i < count; ++i, ++calls) {
      if (auto done = each(i); !done) return done.error();
    }
    spent = now() - begin;
  }
  return spent / double(calls);
}

/// Feeds an answer; adds the seconds of each phase and counts what comes out.
Result<void> feed(AnswerStream& stream, const CodecWork::Answer& answer, WireEvents& out,
                  std::array<double, kAnswerPhases.size()>& seconds, int64_t& bytes) {
  for (size_t phase = 0; phase < answer.size(); ++phase) {
    const double begin = now();
    for (const std::string& piece : answer[phase]) {
      out.clear();
      if (auto fed = stream.text(piece, 1, out); !fed) return fed;
      bytes += int64_t(out.text.size());
    }
    seconds[phase] += now() - begin;
  }
  return {};
}

Result<void> measure_answers(const CodecWork& work, const std::vector<CodecRequest>& requests, double seconds,
                             CodecCost& cost) {
  WireEvents out;
  std::array<double, kAnswerPhases.size()> phases = {};
  std::array<int64_t, kAnswerPhases.size()> chunks = {};
  int64_t bytes = 0, answers = 0;
  const auto all = [&]() -> Result<void> {
    for (size_t i = 0; i < work.answers.size(); ++i, ++answers) {
      out.clear();
      AnswerStream stream = stream_for(requests[i]);
      if (auto ready = stream.ready({.prompt_tokens = 1}, {}, out); !ready) return ready;
      bytes += int64_t(out.text.size());
      if (auto fed = feed(stream, work.answers[i], out, phases, bytes); !fed) return fed;
      out.clear();
      if (auto finished = stream.finish(BackendFinish::stop, out); !finished) return finished;
      bytes += int64_t(out.text.size());
      for (size_t phase = 0; phase < chunks.size(); ++phase) chunks[phase] += int64_t(work.answers[i][phase].size());
    }
    return {};
  };
  if (auto warm = all(); !warm) return warm;
  phases = {}, chunks = {}, bytes = answers = 0;
  const double begin = now();
  double spent = 0;
  while (spent < seconds) {
    if (auto fed = all(); !fed) return fed;
    spent = now() - begin;
  }
  cost.answer = spent / double(answers);
  cost.event_bytes = double(bytes) / double(answers);
  for (size_t phase = 0; phase < chunks.size(); ++phase) {
    cost.chunks[phase] = phases[phase] / double(chunks[phase]);
    cost.answer_tokens += double(chunks[phase]) / double(answers);
  }
  return {};
}

}  // namespace

CodecWork make_codec_work(Api api, const Tokenizer& tokenizer, int count) {
  CodecWork work;
  work.api = api;
  for (int i = 1; i <= count; ++i) {
    work.requests.push_back(to_string(agent_request(api, uint64_t(i))));
    const AgentAnswer answer = agent_answer(uint64_t(i));
    work.answers.push_back({pieces_of(answer.reasoning, tokenizer), pieces_of(answer.content, tokenizer),
                            pieces_of(answer.calls, tokenizer)});
  }
  return work;
}

Result<CodecCost> measure_codec(const CodecWork& work, Policy policy, const Tokenizer& tokenizer, double seconds) {
  ConversionOptions options;
  options.policy = policy;
  CodecCost cost;
  std::vector<CodecRequest> requests;
  std::vector<Prompt> prompts;
  const double count = double(work.requests.size());
  for (const std::string& body : work.requests) {
    auto request = read_request(work.api, std::string_view(body), options);
    if (!request) return request.error();
    requests.push_back(std::move(*request));
    prompts.push_back(render(requests.back().converted, options));
    const auto ids = encode(prompts.back(), tokenizer);
    if (!ids) return ids.error();
    cost.request_bytes += double(body.size()) / count;
    cost.prompt_tokens += double(ids->size()) / count;
  }
  const auto convert = time_a_call(requests.size(), seconds, [&](size_t i) -> Result<void> {
    const auto request = read_request(work.api, std::string_view(work.requests[i]), options);
    return request ? Result<void>() : request.error();
  });
  if (!convert) return convert.error();
  cost.convert = *convert;
  const auto rendering = time_a_call(requests.size(), seconds, [&](size_t i) -> Result<void> {
    prompts[i] = render(requests[i].converted, options);
    return {};
  });
  if (!rendering) return rendering.error();
  cost.render = *rendering;
  const auto encoding = time_a_call(requests.size(), seconds, [&](size_t i) -> Result<void> {
    const auto ids = encode(prompts[i], tokenizer);
    return ids ? Result<void>() : ids.error();
  });
  if (!encoding) return encoding.error();
  cost.encode = *encoding;
  if (auto measured = measure_answers(work, requests, seconds, cost); !measured) return measured.error();
  return cost;
}

Result<std::vector<std::string>> events_of(const CodecRequest& request, const CodecWork::Answer& answer) {
  AnswerStream stream = stream_for(request);
  WireEvents out;
  if (auto ready = stream.ready({.prompt_tokens = 1}, {}, out); !ready) return ready.error();
  for (const auto& phase : answer) {
    for (const std::string& piece : phase) {
      if (auto fed = stream.text(piece, 1, out); !fed) return fed.error();
    }
  }
  if (auto finished = stream.finish(BackendFinish::stop, out); !finished) return finished.error();
  std::vector<std::string> events;
  for (const auto& event : out.events) events.emplace_back(out.json(event));
  return events;
}

}  // namespace fathom::recipe
