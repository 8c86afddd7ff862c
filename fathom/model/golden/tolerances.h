// fathom/model/golden/tolerances.h
// What has to hold for each stage of each golden mode, and why. Private to the room; docs/numerics.md has the long
// form.
#pragma once
#include <string>

#include "fathom/model/golden/golden_case.h"

namespace fathom {

Tolerance tolerance_of(const GoldenCase& c, const std::string& stage);

}  // namespace fathom
