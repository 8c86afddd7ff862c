// fathom/cli/engine_load.h
// A request trace on the real engine, by the wall clock: what `fathom bench engine` measures.
#pragma once
#include <functional>
#include <span>

#include "fathom/engine/engine.h"
#include "fathom/engine/load_report.h"
#include "fathom/engine/trace.h"

namespace fathom::cli {

struct EngineLoad {
  LoadReport load;
  int64_t rounds = 0, offered = 0, accepted = 0;  // rounds that verified a draft; drafts
};

/// Submits each request at its time and runs until all have ended. Answers have exactly the tokens of the trace (an end
/// token does not end them), drawn at temperature 1 from the request's own seed. Where the trace repeats an answer in a
/// later prompt, the tokens that the model really gave stand there, so that the prefix cache finds them. `keep_going`
/// is called between steps with the answers that have ended; false: stop. Errors: interrupted.
Result<EngineLoad> run_load(Engine& engine, std::span<const TraceRequest> trace,
                            const std::function<bool(int64_t ended)>& keep_going);

}  // namespace fathom::cli
