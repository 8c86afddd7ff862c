#include "python/src/module.h"

#include "fathom/recipe/image_layout.h"

NB_MODULE(_native, module) {
  using namespace fathom::python;
  module.doc() = "The token codec of fathom: requests to prompts, model output to answers.";
  module.attr("__version__") = FATHOM_VERSION;
  module.attr("IMAGE_SPECIAL_TOKEN_ID") = 129264;  // V4.1 (spec/recipe.md 5)
  bind_errors(module);
  bind_special_tokens(module);
  bind_conversation(module);
  bind_options(module);
  bind_prompts(module);
  bind_requests(module);
  bind_chunks(module);
  bind_answers(module);
  bind_images(module);
}
