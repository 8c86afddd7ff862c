// fathom/recipe/describe.h
// A converted request as JSON, in the form of the recipe vectors: what `fathom codec` prints and `fathom codec check`
// compares. Source: vectors/recipe/README.md (requests.jsonl).
#pragma once
#include "fathom/base/json.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

/// {"model_version", "stream", "conversation", "image_sources", "inference", "parsing"}. `prompt` and its ranges are
/// not part of it, as they take a rendering. Fields that the vectors lack appear only when they are in use: the
/// conversation's effort_number, inference.frequency_penalty and presence_penalty.
Json describe(const ConvertedRequest& request);

Json describe(const Conversation& conversation);
Json describe(const Message& message);
Json describe(const ToolDefinition& tool);
Json describe(const ImageSource& image);
Json describe(const Inference& inference);
Json describe(const Parsing& parsing);
/// {full name: [namespace, local name]}
Json describe(const NamespaceMap& namespaces);

/// "v4", "v4.1".
const char* name_of(ModelVersion version);
/// "ReasoningStart", "ReasoningContinuation", "ContentContinuation".
const char* name_of(ThinkingStage stage);

}  // namespace fathom::recipe
