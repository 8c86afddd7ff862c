// fathom/server/receipt.h
// What a request cost, for a client that asked with the header `x-fathom-receipt: 1`: a member `fathom` of the complete
// answer, or of its last event when it streams.
#pragma once
#include <string>

#include "fathom/engine/request.h"

namespace fathom {

/// {"prompt_tokens","cached_tokens","replayed_tokens","encoder_rows","decoder_rows","generated_tokens","rounds",
/// "drafts_offered":[…],"drafts_accepted":[…],"preemptions","queue_ms","first_token_ms","total_ms"}. Lists are by
/// position of the draft.
std::string receipt_json(const Usage& usage);

/// Makes it the last member of the JSON object that ends `json`.
void add_receipt(std::string& json, const Usage& usage);

}  // namespace fathom
