// fathom/recipe/conformance/observe.h
// The parts of observe(), by kind of row. Private to this folder.
#pragma once
#include "fathom/recipe/codec.h"
#include "fathom/recipe/conformance/check_row.h"

namespace fathom::recipe {

Result<Json> observe_request(const Json& row, const RowCheck& check);
Result<Json> observe_refusal(const Json& row, const RowCheck& check);
Result<Json> observe_prompt_tokens(const Json& row, const RowCheck& check);
Result<Json> observe_stream(const Json& row, const RowCheck& check);
Result<Json> observe_splits(const Json& row, const RowCheck& check);
Result<Json> observe_image(const Json& row);

/// The row's request through its API. Errors: the refusal of the codec.
Result<CodecRequest> read_row_request(const Json& row, const ConversionOptions& options);
/// A refusal where the row expects none: {"refused": message}.
Json refusal_as_json(const Error& error, const Json& row);
/// Errors: not_found.
Result<const Tokenizer*> row_tokenizer(const Json& row, const RowCheck& check);
/// JSON that we have written ourselves.
Json parsed(std::string_view json);

}  // namespace fathom::recipe
