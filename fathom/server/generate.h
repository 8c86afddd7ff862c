// fathom/server/generate.h
// The common end of all routes that generate: a question goes to the engine under the rights of its key, and an Answer
// waits for what comes.
#pragma once
#include "fathom/server/answer.h"
#include "fathom/server/question.h"
#include "fathom/server/service.h"

namespace fathom {

/// What every plan has: who asks, since when, what to log at the end. The route adds writers and parsing.
AnswerPlan plan_of(Service& service, const SharedExchange& exchange);

/// Submits; a refusal of the engine is answered at once. `plan.parsing`, `end_ids` and `prompt_tokens` are taken from
/// the question.
void generate(Service& service, const SharedExchange& exchange, Question question, AnswerPlan plan);

}  // namespace fathom
