// Decode steps of the whole engine, once all sequences decode and until the first one ends: what `fathom bench decode`
// measures of the model alone, with scheduler, sampler and drafts around it.
//
//   engine_steps PRESET BACKEND TOKENS PROMPT CASE...
//
// PRESET: mini-random, flash-rank (one rank of 64); weights are random, so few drafts are accepted. TOKENS and PROMPT:
// of each sequence. CASE: ROWS:DRAFTS:TEMPERATURE:AHEAD, for example 64:5:1:1 (DRAFTS -1: scheduled; top-p 0.95 where
// the temperature is not 0; AHEAD 1: steps are planned while one runs). A line a case, a JSON object: milliseconds of a
// step by the clock and by the engine's own account, the processor's milliseconds a step, and a number made of all
// texts, which is the same where they are.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "fathom/base/json.h"
#include "fathom/base/philox.h"
#include "fathom/engine/engine.h"
#include "fathom/model/make_checkpoint.h"
#include "fathom/model/presets.h"

namespace fathom {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct Case {
  int rows = 1, drafts = 0, ahead = 1;
  float temperature = 0;
};

struct Point {
  LoopTimes times;
  double clock = 0, processor = 0;
};

Result<Json> run(const Checkpoint& checkpoint, std::span<const int32_t> token_map, EngineOptions options, const Case& c,
                 int64_t prompt, int64_t tokens, int64_t vocabulary) {
  options.sequences = c.rows;
  options.drafts = c.drafts;
  options.schedule_drafts = c.drafts < 0;
  options.context = prompt + tokens + 16;
  options.prefix_cache = false;
  options.asynchronous = c.ahead != 0;
  options.step_log = true;
  auto engine = Engine::open(checkpoint, token_map, options);
  if (!engine) return engine.error();
  for (int r = 0; r < c.rows; ++r) {
    Request request;
    for (int64_t i = 0; i < prompt; ++i) {
      request.ids.push_back(int32_t(philox(3, {uint32_t(r), uint32_t(i), 0, 0})[0] % uint64_t(vocabulary)));
    }
    request.sampling.max_tokens = tokens;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = c.temperature;
    request.sampling.top_p = 0.95f;
    request.sampling.seed = uint64_t(r);
    if (auto id = engine->submit(std::move(request)); !id) return id.error();
  }
  std::vector<int64_t> told(size_t(c.rows) + 1, 0);  // by request, from 1
  std::vector<uint64_t> texts(told.size(), 0);
  Point from, to;
  int64_t in_between = 0;
  bool steady = false, over = false;
  const auto point = [&] { return Point{engine->times(), now(), processor_seconds()}; };
  while (!engine->idle()) {
    for (const Event& event : engine->step()) {
      const auto request = size_t(event.request);
      told[request] += int64_t(event.ids.size());
      for (const int32_t id : event.ids) texts[request] = texts[request] * 1099511628211u + uint64_t(id) + 1;
      over = over || event.finish;
      if (steady && !over) in_between += int64_t(event.ids.size());
    }
    if (steady && !over) to = point();
    // Shapes are recorded when they come for the third time.
    if (!steady && *std::min_element(told.begin() + 1, told.end()) >= 6) steady = true, from = to = point();
  }
  uint64_t all = 0;
  for (const uint64_t text : texts) all = all * 31 + text;
  const double steps = std::max<double>(1, double(to.times.steps - from.times.steps));
  double forward = 0, choosing = 0;
  int counted = 0;
  const auto log = parse_json(engine->steps_json(30), "steps");
  for (const Json& step : log->find("steps")->items) {
    if (step.find("decode_sequences")->as_int64().value_or(0) != c.rows) continue;
    forward += step.find("forward_seconds")->as_double().value_or(0);
    choosing += step.find("sample_seconds")->as_double().value_or(0);
    ++counted;
  }
  const auto ms = [](double seconds, double over_steps) { return Json::of(1e3 * seconds / std::max(1.0, over_steps)); };
  Json out = Json::object();
  out.set("rows", Json::of(c.rows));
  out.set("drafts", Json::of(c.drafts));
  out.set("temperature", Json::of(double(c.temperature)));
  out.set("ahead", Json::of(c.ahead));
  out.set("steps", Json::of(steps));
  out.set("step_ms", ms(to.clock - from.clock, steps));
  out.set("forward_ms", ms(forward, counted));
  out.set("choosing_and_drafts_ms", ms(choosing, counted));
  out.set("host_ms", ms(to.times.host_seconds - from.times.host_seconds, steps));
  out.set("processor_ms", ms(to.processor - from.processor, steps));
  out.set("tokens_a_step_and_row", Json::of(double(in_between) / steps / c.rows));
  out.set("texts", Json::of(std::to_string(all)));
  return out;
}

int measure(int count, char** words) {
  if (count < 6) {
    std::fputs("usage: engine_steps PRESET BACKEND TOKENS PROMPT ROWS:DRAFTS:TEMPERATURE:AHEAD...\n", stderr);
    return 2;
  }
  const auto failed = [](const Error& error) {
    std::fprintf(stderr, "engine_steps: %s\n", to_string(error).c_str());
    return 1;
  };
  const std::string preset = words[1];
  const auto config = preset_config(preset);
  if (!config) return failed(config.error());
  EngineOptions options;
  options.backend = words[2];
  const bool drawn = preset.starts_with("flash");  // where they are read
  if (drawn) options.draw_seed = 1;
  ThreadPool pool(8);
  const auto files = make_checkpoint_in_memory(*config, {.seed = 1, .holes = drawn}, int64_t(1) << 36, pool);
  if (!files) return failed(files.error());
  const auto checkpoint = Checkpoint::open(files->files());
  if (!checkpoint) return failed(checkpoint.error());
  std::vector<int32_t> token_map;
  for (int64_t i = 0; i < config->vocab_size; ++i) {
    token_map.push_back(int32_t(i % int64_t(config->engram_compressed_vocab_size)));
  }
  for (int i = 5; i < count; ++i) {
    Case one;
    if (std::sscanf(words[i], "%d:%d:%f:%d", &one.rows, &one.drafts, &one.temperature, &one.ahead) != 4) return 2;
    const auto row =
        run(*checkpoint, token_map, options, one, std::atoll(words[4]), std::atoll(words[3]), config->vocab_size);
    if (!row) return failed(row.error());
    std::printf("%s\n", to_string(*row).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace fathom

int main(int count, char** words) { return fathom::measure(count, words); }
