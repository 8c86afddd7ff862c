#include "fathom/model/golden/tolerances.h"

namespace fathom {

Tolerance tolerance_of(const GoldenCase&, const std::string& stage) {
  if (stage.ends_with("engram_rows") || stage.ends_with("tokens") || stage == "accepted") return {};
  return {.informative = true};
}

}  // namespace fathom
