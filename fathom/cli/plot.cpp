#include "fathom/cli/plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

constexpr double kWidth = 720, kHeight = 480, kLeft = 90, kRight = 30, kTop = 40, kBottom = 60;

std::string xml_text(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

bool shown(const PlotPoint& point) { return point.x > 0 && point.y > 0; }

}  // namespace

std::string to_svg(const Plot& plot) {
  // Both axes are logarithmic: a batch of 64 is to be seen beside a batch of 1.
  double least_x = 1e300, most_x = 0, least_y = 1e300, most_y = 0;
  for (const PlotCurve& curve : plot.curves) {
    for (const PlotPoint& point : curve.points) {
      if (!shown(point)) continue;
      least_x = std::min(least_x, point.x), most_x = std::max(most_x, point.x);
      least_y = std::min(least_y, point.y), most_y = std::max(most_y, point.y);
    }
  }
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + fixed(kWidth, 0) + " " +
                    fixed(kHeight, 0) + "\" font-family=\"sans-serif\" font-size=\"12\">\n" +
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  if (most_x == 0) return out + "</svg>\n";
  least_x /= 1.2, most_x *= 1.2, least_y /= 1.2, most_y *= 1.2;
  const auto at_x = [&](double x) {
    return kLeft + (kWidth - kLeft - kRight) * std::log(x / least_x) / std::log(most_x / least_x);
  };
  const auto at_y = [&](double y) {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * std::log(y / least_y) / std::log(most_y / least_y);
  };
  const auto text = [&](double x, double y, const std::string& anchor, const std::string& what,
                        const std::string& more) {
    out += "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" text-anchor=\"" + anchor + "\"" + more + ">" +
           xml_text(what) + "</text>\n";
  };
  const auto line = [&](double x1, double y1, double x2, double y2) {
    out += "<line x1=\"" + fixed(x1, 1) + "\" y1=\"" + fixed(y1, 1) + "\" x2=\"" + fixed(x2, 1) + "\" y2=\"" +
           fixed(y2, 1) + "\" stroke=\"#ddd\"/>\n";
  };
  const int first_power = int(std::floor(std::log10(std::min(least_x, least_y))));
  const int last_power = int(std::floor(std::log10(std::max(most_x, most_y))));
  for (int power = first_power; power <= last_power; ++power) {
    const double decade = std::pow(10, power);
    for (const double tick : {decade, 2 * decade, 5 * decade}) {
      if (tick > least_x && tick < most_x) {
        line(at_x(tick), kTop, at_x(tick), kHeight - kBottom);
        text(at_x(tick), kHeight - kBottom + 16, "middle", brief(tick), "");
      }
      if (tick > least_y && tick < most_y) {
        line(kLeft, at_y(tick), kWidth - kRight, at_y(tick));
        text(kLeft - 6, at_y(tick) + 4, "end", brief(tick), "");
      }
    }
  }
  text((kLeft + kWidth - kRight) / 2, kHeight - 18, "middle", plot.x_axis, "");
  text(20, (kTop + kHeight - kBottom) / 2, "middle", plot.y_axis,
       " transform=\"rotate(-90 20 " + fixed((kTop + kHeight - kBottom) / 2, 1) + ")\"");
  text(kLeft, 22, "start", plot.title, "");
  constexpr std::array<const char*, 6> kColours = {"#0b6e99", "#d9480f", "#2b8a3e", "#862e9c", "#5c5f66", "#c2255c"};
  size_t number = 0;
  for (const PlotCurve& curve : plot.curves) {
    const std::string colour = kColours[number % kColours.size()];
    std::string path;
    for (const PlotPoint& point : curve.points) {
      if (shown(point)) path += fixed(at_x(point.x), 1) + "," + fixed(at_y(point.y), 1) + " ";
    }
    if (path.empty()) continue;
    out += "<polyline points=\"" + path + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"2\"/>\n";
    for (const PlotPoint& point : curve.points) {
      if (!shown(point)) continue;
      out += "<circle cx=\"" + fixed(at_x(point.x), 1) + "\" cy=\"" + fixed(at_y(point.y), 1) + "\" r=\"3.5\" fill=\"" +
             colour + "\"/>\n";
      text(at_x(point.x) + 6, at_y(point.y) - 6, "start", point.label, "");
    }
    text(kWidth - kRight, kTop + 16 * double(number), "end", curve.name, " fill=\"" + colour + "\"");
    ++number;
  }
  return out + "</svg>\n";
}

}  // namespace fathom::cli
