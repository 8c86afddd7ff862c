// python/src/tokenizer.h
#pragma once
#include <memory>

#include "fathom/tokenizer/tokenizer.h"

namespace fathom::python {

/// Shared with the encodings, processors and answers that use it.
struct PyTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
};

}  // namespace fathom::python
