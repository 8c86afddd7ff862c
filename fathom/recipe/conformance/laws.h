// fathom/recipe/conformance/laws.h
// What must hold for every request and every answer, tried on random ones. The tests run thousands, `fathom codec fuzz`
// as many as asked for. Source: spec/codec-policy.md 6 (3), spec/recipe.md 6.5, 8.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "fathom/recipe/policy.h"

namespace fathom::recipe {

/// A law that did not hold, with what is needed to see it again.
struct BrokenLaw {
  std::string law;     // "special ranges spell special tokens"
  std::string detail;  // inputs and outputs
};

/// A random request is answered with a prompt or with a refusal whose body is right; the prompt's special ranges ascend
/// and spell special tokens; converting twice gives the same.
std::optional<BrokenLaw> try_request(Api api, uint64_t seed, Policy policy);

/// A random output, whole and in random pieces, gives the same body (lenient; strict: outside of JSON mode); markup of
/// calls is never content (but in JSON mode, where everything behind the first brace is the value: recipe.md 8.1);
/// arguments of the body's calls are JSON (lenient); reasoning tokens <= completion tokens.
std::optional<BrokenLaw> try_answer(Api api, uint64_t seed, Policy policy);

/// A random assistant turn, rendered as history, parses to itself.
std::optional<BrokenLaw> try_round_trip(uint64_t seed, Policy policy);

}  // namespace fathom::recipe
