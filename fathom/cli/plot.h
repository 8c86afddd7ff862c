// fathom/cli/plot.h
// A picture of a Pareto front as a self-contained SVG file: throughput of all against speed for one, on logarithmic
// axes. Pure.
#pragma once
#include <string>
#include <vector>

namespace fathom::cli {

struct PlotPoint {
  double x = 0, y = 0;
  std::string label;
};
struct PlotCurve {
  std::string name;
  std::vector<PlotPoint> points;  // joined in this order
};
struct Plot {
  std::string title, x_axis, y_axis;
  std::vector<PlotCurve> curves;
};

/// Points that are not above 0 are left out: a logarithmic axis has no place for them.
std::string to_svg(const Plot& plot);

}  // namespace fathom::cli
