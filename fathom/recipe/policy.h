// fathom/recipe/policy.h
// The one switch of the codec. Every difference is a branch on it at the place that its rule names
// (spec/codec-policy.md D-1 to D-14), never a second implementation.
#pragma once

namespace fathom::recipe {

enum class Policy {
  lenient,  // "default": accepts what can be understood without harm, never gives out broken arguments, counts truly
  strict,   // "strict": exactly deepseek-recipe 0.2.0
};

/// The three request formats.
enum class Api { chat_completions, responses, messages };

/// Which prompt format a model reads.
enum class ModelVersion { v4, v41 };

}  // namespace fathom::recipe
