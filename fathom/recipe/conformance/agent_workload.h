// fathom/recipe/conformance/agent_workload.h
// What a coding agent sends and gets, for measurements: the same bytes on every machine, other texts for other seeds.
// Texts are prose, source code, listings and logs, so that a tokenizer meets what it meets in use.
#pragma once
#include <cstdint>
#include <string>

#include "fathom/base/json.h"
#include "fathom/recipe/policy.h"

namespace fathom::recipe {

/// A request body of about 43 kB: a system text, 18 tools with nested schemas, twelve turns with reasoning, calls and
/// their results, and a last question. V4.1, streaming, thinking on. The same conversation in each API.
Json agent_request(Api api, uint64_t seed);

/// An answer to it in the parts that an engine's output goes through. The text that a model writes is the three behind
/// each other.
struct AgentAnswer {
  std::string reasoning;  // with its end marker and the line breaks behind it
  std::string content;
  std::string calls;  // with all markup: an edit with lines of code, and a call with raw JSON values
};
AgentAnswer agent_answer(uint64_t seed);

}  // namespace fathom::recipe
