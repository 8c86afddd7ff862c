// fathom/recipe/answerable.h
// Whether a converted request can be answered as it was promised: a program that would have to ignore a part of it
// refuses it, and says where in the request that part stands. What can be kept is the caller's to say, since the codec
// enforces nothing. Pure. Source: spec/codec-policy.md 5.
#pragma once
#include <functional>

#include "fathom/base/result.h"
#include "fathom/recipe/codec.h"

namespace fathom::recipe {

/// Whether the answer must keep to it: tools that may be called, none of them strict, promise nothing.
bool is_promise(const grammar::Constraint& constraint);

/// Says what is wrong with a constraint; its error's `where` lies inside of the constraint: the path in a schema or in
/// the list of tools, a place in an expression.
using ConstraintCheck = std::function<Result<void>(const grammar::Constraint&)>;

/// What is promised can be kept. Errors: usage, with the check's `where`.
Result<void> check_promise(const CodecRequest& request, const ConstraintCheck& check);
/// The same; `where` is the path in the request: response_format.json_schema.schema.properties.a.not. A place that is
/// no path stands in the message.
Result<void> check_constraint(const CodecRequest& request, const ConstraintCheck& check);
/// Errors: usage for the first image; `where` is its path: messages[0].content[1].
Result<void> check_images(const CodecRequest& request);

}  // namespace fathom::recipe
