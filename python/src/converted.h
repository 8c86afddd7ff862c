// python/src/converted.h
#pragma once
#include <optional>

#include "fathom/recipe/settings.h"

namespace fathom::python {

/// ConversationRequest: what a converted request means, and what its answer needs to know of it.
struct PyConverted {
  recipe::ConvertedRequest request;
  recipe::Api api = recipe::Api::chat_completions;
  bool include_usage = false;  // Chat
  bool direct = false;         // made of a conversation: nothing has resolved the sampling
};

/// InferenceOptions.
struct PyInference {
  recipe::Inference inference;
  bool direct = false;

  std::optional<float> resolved(float value) const { return direct ? std::nullopt : std::optional(value); }
};

}  // namespace fathom::python
