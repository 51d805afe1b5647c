// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>

#include "bar_chart.hpp"
#include "chart_text.hpp"

namespace examples {

/// A line of a chart. A NaN or a number beyond 1e300 in `x` or `y` leaves a gap.
struct chart_series {
  std::string name;
  std::vector<double> x, y;
  bool points = false;  ///< a dot at each point
  bool dashed = false;

  chart_series(std::string name, std::vector<double> x, std::vector<double> y, bool points = false, bool dashed = false)
      : name(std::move(name)), x(std::move(x)), y(std::move(y)), points(points), dashed(dashed) {}
};

/// A chart of lines. The axes end where the data do, unless a range is given.
struct line_chart {
  std::string title, x_label, y_label;
  std::vector<chart_series> series;
  double y_least = std::numeric_limits<double>::quiet_NaN(), y_most = std::numeric_limits<double>::quiet_NaN();

  line_chart(std::string title, std::string x_label, std::string y_label, std::vector<chart_series> series)
      : title(std::move(title)), x_label(std::move(x_label)), y_label(std::move(y_label)), series(std::move(series)) {}
};

namespace detail {

/// One chart as SVG, drawn in the page's colours.
class chart_drawing {
 public:
  explicit chart_drawing(line_chart const& chart) : chart_(chart) {
    for (auto const& s : chart.series)
      for (std::size_t i = 0; i < s.x.size(); ++i)
        if (drawable(s.x[i], s.y[i])) {
          widen(x_, s.x[i]);
          widen(y_, s.y[i]);
        }
    if (drawable(0, chart.y_least)) y_.first = chart.y_least;
    if (drawable(0, chart.y_most)) y_.second = chart.y_most;
    open(x_);
    open(y_);
  }

  std::string svg() {
    out_ = "<figure><figcaption>" + html_text(chart_.title) + "</figcaption><svg viewBox=\"0 0 640 320\" role=\"img\" aria-label=\"" +
           html_text(chart_.title) + "\">";
    for (auto const tick : axis_ticks(x_.first, x_.second, 6)) {
      line("grid", at_x(tick), top, at_x(tick), bottom);
      label("middle", at_x(tick), bottom + 18, short_number(tick));
    }
    for (auto const tick : axis_ticks(y_.first, y_.second, 5)) {
      line("grid", left, at_y(tick), right, at_y(tick));
      label("end", left - 8, at_y(tick) + 4, short_number(tick));
    }
    label("middle", (left + right) / 2, bottom + 38, chart_.x_label);
    label("start", left, top - 10, chart_.y_label);
    for (std::size_t s = 0; s < chart_.series.size(); ++s) draw(chart_.series[s], s % 6);
    out_ += "</svg>";
    legend();
    return out_ + "</figure>\n";
  }

 private:
  using range = std::pair<double, double>;
  static constexpr double left = 64, right = 624, top = 28, bottom = 270;

  // Neither NaN nor so large that the axis' length would be infinite.
  static bool drawable(double x, double y) noexcept { return std::abs(x) <= 1e300 && std::abs(y) <= 1e300; }
  static void widen(range& r, double value) {
    r.first = std::min(r.first, value);
    r.second = std::max(r.second, value);
  }
  // No data, or values that are nearly one: an axis all the same.
  static void open(range& r) {
    if (!(r.first <= r.second)) r = {0, 1};
    auto const size = std::max(std::abs(r.first), std::abs(r.second));
    if (r.second - r.first <= 1e-12 * size || size < 1e-300) {
      auto const margin = size < 1e-300 ? 1 : size / 10;
      r = {r.first - margin, r.second + margin};
    }
  }

  double at_x(double x) const { return left + (x - x_.first) / (x_.second - x_.first) * (right - left); }
  double at_y(double y) const { return bottom - (y - y_.first) / (y_.second - y_.first) * (bottom - top); }
  static std::string coordinate(double v) { return number_text(v, std::chars_format::fixed, 1); }
  void line(char const* kind, double x1, double y1, double x2, double y2) {
    out_ += std::string("<line class=\"") + kind + "\" x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" + coordinate(x2) +
            "\" y2=\"" + coordinate(y2) + "\"/>";
  }
  void label(char const* anchor, double x, double y, std::string const& text) {
    out_ += "<text text-anchor=\"" + std::string(anchor) + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\">" + html_text(text) +
            "</text>";
  }

  void draw(chart_series const& s, std::size_t colour) {
    std::string path;
    bool pen = false;
    for (std::size_t i = 0; i < s.x.size(); ++i) {
      if (!drawable(s.x[i], s.y[i])) {
        pen = false;
        continue;
      }
      path += (pen ? "L" : "M") + coordinate(at_x(s.x[i])) + " " + coordinate(at_y(s.y[i]));
      pen = true;
    }
    auto const kind = "s" + std::to_string(colour) + (s.dashed ? " dashed" : "");
    out_ += "<path class=\"" + kind + "\" d=\"" + path + "\"><title>" + html_text(s.name) + "</title></path>";
    if (!s.points) return;
    for (std::size_t i = 0; i < s.x.size(); ++i)
      if (drawable(s.x[i], s.y[i]))
        out_ += "<circle class=\"" + kind + "\" r=\"3.5\" cx=\"" + coordinate(at_x(s.x[i])) + "\" cy=\"" + coordinate(at_y(s.y[i])) +
                "\"><title>" + html_text(s.name) + ": " + short_number(s.x[i]) + ", " + short_number(s.y[i]) + "</title></circle>";
  }

  void legend() {
    if (chart_.series.size() < 2) return;
    out_ += "<p class=\"legend\">";
    for (std::size_t s = 0; s < chart_.series.size(); ++s)
      out_ += "<span class=\"k" + std::to_string(s % 6) + "\">" + html_text(chart_.series[s].name) + "</span>";
    out_ += "</p>";
  }

  line_chart const& chart_;
  range x_{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  range y_ = x_;
  std::string out_;
};

inline constexpr char const* html_style = R"(
:root{color-scheme:light dark;--ink:#1c1e21;--soft:#5f6670;--rule:#dfe3e8;--paper:#fff;
--c0:#2563c9;--c1:#c2571a;--c2:#1f8a5b;--c3:#8a4fc0;--c4:#b03060;--c5:#6b7280}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--soft:#9aa2ad;--rule:#353a41;--paper:#16181b;
--c0:#7aa7f5;--c1:#f0955c;--c2:#5cc697;--c3:#c094ee;--c4:#ee7da5;--c5:#aab1bc}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:72rem;margin:2rem auto;padding:0 1.2rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}p{color:var(--soft);max-width:46rem}
.figures{display:flex;flex-wrap:wrap;gap:1.5rem}figure{flex:1 1 26rem;margin:0}figcaption{font-weight:600}
svg{width:100%;height:auto}svg text{font-size:12px;fill:var(--soft)}.grid{stroke:var(--rule);stroke-width:1}
path{fill:none;stroke-width:2}.dashed{stroke-dasharray:5 5;stroke-width:1.5}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}
.b0{fill:var(--c0)}.b1{fill:var(--c1)}.b2{fill:var(--c2)}.b3{fill:var(--c3)}.b4{fill:var(--c4)}.b5{fill:var(--c5)}
circle{fill:var(--paper);stroke-width:2}.legend{margin:.2rem 0;font-size:13px}.legend span{margin-right:1.2rem}
.legend span::before{content:"";display:inline-block;width:.8rem;height:.2rem;margin-right:.4rem;vertical-align:middle;background:currentColor}
.k0::before{color:var(--c0)}.k1::before{color:var(--c1)}.k2::before{color:var(--c2)}.k3::before{color:var(--c3)}
.k4::before{color:var(--c4)}.k5::before{color:var(--c5)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .9rem .25rem 0;text-align:right;border-bottom:1px solid var(--rule)}th:first-child,td:first-child{text-align:left}
th{color:var(--soft);font-weight:600}
)";

}  // namespace detail

/// Builds one self-contained HTML page, without scripts and without anything to be fetched: headings, text, tables and charts, in the order
/// of the calls. Every text is escaped.
class html_page {
 public:
  explicit html_page(std::string_view title) : title_(detail::html_text(title)) { body_ = "<h1>" + title_ + "</h1>\n"; }

  void heading(std::string_view text) { body_ += "<h2>" + detail::html_text(text) + "</h2>\n"; }
  void paragraph(std::string_view text) { body_ += "<p>" + detail::html_text(text) + "</p>\n"; }

  /// @throws tessera::error shape_mismatch for a row of another number of cells than the header.
  void table(std::vector<std::string> const& header, std::vector<std::vector<std::string>> const& rows) {
    std::string text = "<div class=\"scroll\"><table><thead>" + cells(header, "th") + "</thead><tbody>\n";
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows[row].size() != header.size())
        throw tessera::error(tessera::errc::shape_mismatch, "html_page: a table's row and its header differ",
                             {{"row", row}, {"cells", rows[row].size()}, {"header", header.size()}});
      text += cells(rows[row], "td") + "\n";
    }
    body_ += text + "</tbody></table></div>\n";
  }

  /// Charts side by side, as far as the window is wide. @throws tessera::error shape_mismatch when a series has more x than y or fewer.
  void charts(std::vector<line_chart> const& charts) {
    std::string text = "<div class=\"figures\">\n";
    for (auto const& chart : charts) {
      for (auto const& s : chart.series)
        if (s.x.size() != s.y.size())
          throw tessera::error(tessera::errc::shape_mismatch, "html_page: a series' x and y differ in size",
                               {{"series", s.name}, {"x", s.x.size()}, {"y", s.y.size()}});
      text += detail::chart_drawing(chart).svg();
    }
    body_ += text + "</div>\n";
  }

  /// Likewise, of bars. @throws tessera::error shape_mismatch for a part of other bars, invalid_argument for a value that is negative or no
  /// number.
  void bars(std::vector<bar_chart> const& charts) {
    std::string text = "<div class=\"figures\">\n";
    for (auto const& chart : charts) text += detail::bar_drawing(chart).svg();
    body_ += text + "</div>\n";
  }

  /// Figures that are drawn elsewhere, side by side. Each is a whole element of HTML, whose texts are escaped.
  void figures(std::vector<std::string> const& drawn) {
    body_ += "<div class=\"figures\">\n";
    for (auto const& figure : drawn) body_ += figure;
    body_ += "</div>\n";
  }

  /// The whole page.
  std::string text() const {
    return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
           "content=\"width=device-width\"><title>" +
           title_ + "</title><style>" + detail::html_style + "</style></head>\n<body>\n" + body_ + "</body></html>\n";
  }

 private:
  static std::string cells(std::vector<std::string> const& texts, char const* tag) {
    std::string row = "<tr>";
    for (auto const& text : texts) row += std::string("<") + tag + ">" + detail::html_text(text) + "</" + tag + ">";
    return row + "</tr>";
  }

  std::string title_, body_;
};

}  // namespace examples
