// fathom/server/question_images.h
// The images of a request, got while nothing waits for them but the request itself.
#pragma once
#include <functional>
#include <vector>

#include "fathom/recipe/prompt.h"
#include "fathom/server/image_data.h"
#include "fathom/server/image_parts.h"
#include "fathom/server/question.h"
#include "fathom/server/service.h"

namespace fathom {

/// Calls `go_on` with the images of `prompt`, in the order of their tokens: at once when it has none, else on a worker
/// once all are there; the sources in the prompt are used up. What is wrong with one of them is the answer to the
/// request, and `go_on` is not called; nor when the client goes away, which stops the downloads. `parts` are those of
/// the request's body.
void with_images(Service& service, const SharedExchange& exchange, recipe::Prompt& prompt, const ImageParts& parts,
                 std::function<void(std::vector<ImageData>)> go_on);

}  // namespace fathom
