#include "fathom/server/engine_port.h"

#include <algorithm>
#include <utility>

#include "fathom/base/json.h"

namespace fathom {

EnginePort port_of(Engine& engine) {
  const ModelConfig& config = engine.config();
  const EngineOptions& options = engine.options();
  EnginePort port;
  port.submit = [&engine](Request request) { return engine.submit(std::move(request)); };
  port.cancel = [&engine](RequestId id) { engine.cancel(id); };
  port.step = [&engine]() -> Result<std::span<const Event>> { return engine.step(); };
  port.idle_work = [&engine] {
    if (engine.idle()) return engine.idle_work();
    engine.step();  // a step behind the last answer is still to be taken back
    return true;
  };
  port.state = [&engine](size_t most_steps) {
    return R"({"engine":)" + to_string(engine.state()) + R"(,"log":)" + engine.steps_json(most_steps) + "}";
  };
  port.limits.vocabulary = config.vocab_size;
  port.limits.context = options.context;
  port.limits.drafts = config.num_nextn_predict_layers > 0 ? std::min(config.dspark_block_size, kMaxDrafts) : 0;
  port.limits.eos_id = config.eos_token_id;
  port.limits.batch_invariant = options.batch_invariant;
  port.limits.blacklist = options.token_blacklist;
  port.sequences = options.sequences;
  return port;
}

}  // namespace fathom
