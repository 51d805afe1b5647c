// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>

#include "chart_text.hpp"

namespace examples {

/// What a part is in every bar of a chart: one colour.
struct bar_part {
  std::string name;
  std::vector<double> values;  ///< (bars,), 0 or more

  bar_part(std::string name, std::vector<double> values) : name(std::move(name)), values(std::move(values)) {}
};

/// A chart of bars, each of parts on top of each other; with its sum written above.
struct bar_chart {
  std::string title, y_label;
  std::vector<std::string> bars;  ///< their names
  std::vector<bar_part> parts;

  bar_chart(std::string title, std::string y_label, std::vector<std::string> bars, std::vector<bar_part> parts)
      : title(std::move(title)), y_label(std::move(y_label)), bars(std::move(bars)), parts(std::move(parts)) {}
};

namespace detail {

/// One chart of bars as SVG, drawn in the page's colours.
class bar_drawing {
 public:
  /// @throws tessera::error shape_mismatch for a part of other bars, invalid_argument for a value that is negative or no number.
  explicit bar_drawing(bar_chart const& chart) : chart_(chart), sums_(chart.bars.size()) {
    for (auto const& part : chart.parts) {
      if (part.values.size() != chart.bars.size())
        throw tessera::error(tessera::errc::shape_mismatch, "html_page: a part has one value a bar",
                             {{"part", part.name}, {"values", part.values.size()}, {"bars", chart.bars.size()}});
      for (std::size_t b = 0; b < sums_.size(); ++b) {
        if (!(part.values[b] >= 0 && part.values[b] <= 1e300))
          throw tessera::error(tessera::errc::invalid_argument, "html_page: a bar's value",
                               {{"part", part.name}, {"bar", chart.bars[b]}, {"value", part.values[b]}});
        sums_[b] += part.values[b];
      }
    }
    for (auto const sum : sums_) most_ = std::max(most_, sum);
    if (most_ == 0) most_ = 1;
  }

  std::string svg() {
    out_ = "<figure><figcaption>" + html_text(chart_.title) + "</figcaption><svg viewBox=\"0 0 560 300\" role=\"img\" aria-label=\"" +
           html_text(chart_.title) + "\">";
    for (auto const tick : axis_ticks(0, most_, 5)) {
      line(left, at_y(tick), right, at_y(tick));
      label("end", left - 8, at_y(tick) + 4, short_number(tick));
    }
    out_ += "<text transform=\"translate(14 " + coordinate((top + bottom) / 2) + ") rotate(-90)\" text-anchor=\"middle\">" +
            html_text(chart_.y_label) + "</text>";
    auto const width = (right - left) / static_cast<double>(std::max<std::size_t>(chart_.bars.size(), 1));
    for (std::size_t b = 0; b < chart_.bars.size(); ++b) {
      auto const x = left + width * (static_cast<double>(b) + 0.2);
      double below = 0;
      for (std::size_t p = 0; p < chart_.parts.size(); ++p) {
        auto const value = chart_.parts[p].values[b];
        out_ += "<rect class=\"b" + std::to_string(p % 6) + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(at_y(below + value)) +
                "\" width=\"" + coordinate(0.6 * width) + "\" height=\"" + coordinate(at_y(below) - at_y(below + value)) + "\"><title>" +
                html_text(chart_.bars[b] + ", " + chart_.parts[p].name) + ": " + short_number(value) + "</title></rect>";
        below += value;
      }
      label("middle", x + 0.3 * width, at_y(below) - 5, short_number(below));
      label("middle", x + 0.3 * width, bottom + 18, chart_.bars[b]);
    }
    out_ += "</svg>";
    if (chart_.parts.size() > 1) {
      out_ += "<p class=\"legend\">";
      for (std::size_t p = 0; p < chart_.parts.size(); ++p)
        out_ += "<span class=\"k" + std::to_string(p % 6) + "\">" + html_text(chart_.parts[p].name) + "</span>";
      out_ += "</p>";
    }
    return std::exchange(out_, {}) + "</figure>\n";
  }

 private:
  static constexpr double left = 70, right = 550, top = 20, bottom = 260;

  double at_y(double value) const { return bottom - (bottom - top) * value / most_; }
  static std::string coordinate(double value) { return number_text(value, std::chars_format::fixed, 1); }
  void line(double x1, double y1, double x2, double y2) {
    out_ += "<line class=\"grid\" x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" + coordinate(x2) + "\" y2=\"" +
            coordinate(y2) + "\"/>";
  }
  void label(char const* anchor, double x, double y, std::string const& text) {
    out_ += "<text text-anchor=\"" + std::string(anchor) + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\">" + html_text(text) +
            "</text>";
  }

  bar_chart const& chart_;
  std::vector<double> sums_;
  double most_ = 0;
  std::string out_;
};

}  // namespace detail

}  // namespace examples
