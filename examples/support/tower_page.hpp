// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tower/feature_affinity.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_partitioner.hpp>

#include "chart_text.hpp"
#include "html_page.hpp"

namespace examples {

/// Mean affinity of the pairs of features that share a tower, and of those that do not; 0 where there is no such pair.
struct affinity_means {
  double within = 0, between = 0;
};

inline affinity_means means_of_towers(tessera::matrix_view<double const> affinity, std::vector<std::int64_t> const& tower_of) {
  double sums[2] = {}, pairs[2] = {};
  for (std::int64_t i = 0; i < affinity.rows(); ++i)
    for (std::int64_t j = 0; j < i; ++j) {
      auto const apart = tower_of[static_cast<std::size_t>(i)] != tower_of[static_cast<std::size_t>(j)];
      sums[apart] += affinity(i, j);
      pairs[apart] += 1;
    }
  return {pairs[0] > 0 ? sums[0] / pairs[0] : 0, pairs[1] > 0 ? sums[1] / pairs[1] : 0};
}

namespace detail {

/// The two pictures of a partition: the affinity of all pairs, features sorted by tower, and where the features came to lie.
class tower_drawing {
 public:
  tower_drawing(std::vector<std::string> const& names, tessera::matrix_view<double const> affinity,
                tessera::tower_partition const& partition)
      : names_(names), affinity_(affinity), towers_(partition.towers) {}

  std::string matrix() {
    auto const features = static_cast<std::int64_t>(names_.size());
    auto const cell = side / static_cast<double>(features);
    open("affinity of each pair, features sorted by tower");
    double row = 0;
    for (std::size_t t = 0; t < towers_.size(); ++t) {
      auto const first = row;
      for (auto const i : towers_[t]) {
        double column = 0;
        for (auto const& tower : towers_)
          for (auto const j : tower) rectangle(column++, row, cell, i, j);
        if (features <= most_labels) label("end", left - 6, top + (row + 0.7) * cell, name(i));
        ++row;
      }
      auto const size = static_cast<double>(towers_[t].size());
      out_ += "<rect fill=\"none\" stroke=\"" + colour(t) + "\" stroke-width=\"2.5\" x=\"" + coordinate(left + first * cell) + "\" y=\"" +
              coordinate(top + first * cell) + "\" width=\"" + coordinate(size * cell) + "\" height=\"" + coordinate(size * cell) +
              "\"><title>tower " + std::to_string(t) + "</title></rect>";
    }
    return close();
  }

  /// `points` (features, dims): their first two dims.
  std::string scatter(tessera::matrix_view<double const> points) {
    std::pair<double, double> x{0, 0}, y{0, 0};
    auto const second = [&](std::int64_t f) { return points.columns() > 1 ? points(f, 1) : 0.0; };
    for (std::int64_t f = 0; f < points.rows(); ++f) {
      x = {std::min(x.first, points(f, 0)), std::max(x.second, points(f, 0))};
      y = {std::min(y.first, second(f)), std::max(y.second, second(f))};
    }
    // One scale for both axes, so that distances are seen.
    auto const span = std::max({x.second - x.first, y.second - y.first, 1e-12});
    auto const at = [&](double value, std::pair<double, double> of) {
      return margin + ((value - (of.first + of.second) / 2) / span + 0.5) * (side - 2 * margin);
    };
    open(points.columns() > 2 ? "features by the first two of " + std::to_string(points.columns()) + " dims, coloured by tower"
                              : "features where they came to lie, coloured by tower");
    out_ += "<rect fill=\"none\" class=\"grid\" x=\"" + coordinate(left) + "\" y=\"" + coordinate(top) + "\" width=\"" + coordinate(side) +
            "\" height=\"" + coordinate(side) + "\"/>";
    for (std::size_t t = 0; t < towers_.size(); ++t)
      for (auto const f : towers_[t]) {
        auto const across = left + at(points(f, 0), x), down = top + at(second(f), y);
        out_ += "<circle style=\"fill:" + colour(t) + "\" r=\"5\" cx=\"" + coordinate(across) + "\" cy=\"" + coordinate(down) +
                "\"><title>" + html_text(name(f)) + ", tower " + std::to_string(t) + "</title></circle>";
        if (static_cast<std::int64_t>(names_.size()) <= most_labels) label("start", across + 7, down + 4, name(f));
      }
    return close();
  }

 private:
  static constexpr double left = 110, top = 12, side = 440, margin = 40;
  static constexpr std::int64_t most_labels = 48;

  std::string const& name(std::int64_t feature) const { return names_[static_cast<std::size_t>(feature)]; }
  static std::string coordinate(double value) { return number_text(value, std::chars_format::fixed, 1); }
  // Hues around the circle, neighbours of different lightness.
  std::string colour(std::size_t tower) const {
    auto const hue = 360 * static_cast<double>(tower) / static_cast<double>(towers_.size());
    return "hsl(" + number_text(hue, std::chars_format::fixed, 0) + " 65% " + (tower % 2 == 0 ? "45%" : "62%") + ")";
  }

  void open(std::string const& title) {
    out_ = "<figure><figcaption>" + html_text(title) + "</figcaption><svg viewBox=\"0 0 640 464\" role=\"img\" aria-label=\"" +
           html_text(title) + "\">";
  }
  std::string close() { return std::exchange(out_, {}) + "</svg></figure>\n"; }
  void label(char const* anchor, double x, double y, std::string const& text) {
    out_ += std::string("<text text-anchor=\"") + anchor + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\">" + html_text(text) +
            "</text>";
  }
  void rectangle(double column, double row, double cell, std::int64_t i, std::int64_t j) {
    auto const value = i == j ? 1.0 : affinity_(i, j);
    out_ += "<rect class=\"b0\" fill-opacity=\"" + number_text(value, std::chars_format::fixed, 3) + "\" x=\"" +
            coordinate(left + column * cell) + "\" y=\"" + coordinate(top + row * cell) + "\" width=\"" + coordinate(cell) +
            "\" height=\"" + coordinate(cell) + "\"><title>" + html_text(name(i) + ", " + name(j)) + ": " + short_number(value) +
            "</title></rect>";
  }

  std::vector<std::string> const& names_;
  tessera::matrix_view<double const> affinity_;
  std::vector<std::vector<std::int64_t>> const& towers_;
  std::string out_;
};

}  // namespace detail

/// Adds to a page what a partition of features into towers looks like: the affinity of all pairs, the features' points, and a table of towers.
/// `names` (features,). @throws tessera::error shape_mismatch where names, affinity and points are not of as many features; as `check_affinity`
/// and `check_towers`.
inline void add_towers(html_page& page, std::vector<std::string> const& names, tessera::matrix_view<double const> affinity,
                       tessera::partitioned_features const& result) {
  auto const features = static_cast<std::int64_t>(names.size());
  auto const points = result.point_rows();
  if (affinity.rows() != features || points.rows() != features)
    throw tessera::error(tessera::errc::shape_mismatch, "add_towers: names, affinity and points of as many features",
                         {{"names", features}, {"affinity rows", affinity.rows()}, {"points", points.rows()}});
  tessera::check_affinity(affinity);
  auto const tower_of = tessera::towers_of_features(result.partition, features);
  auto const means = means_of_towers(affinity, tower_of);
  page.paragraph("Mean affinity of two features of one tower: " + detail::short_number(means.within) +
                 "; of two towers: " + detail::short_number(means.between) +
                 ". Relative stress of the embedding: " + detail::short_number(result.relative_stress) + ".");
  detail::tower_drawing drawing(names, affinity, result.partition);
  auto const matrix = drawing.matrix();
  page.figures({matrix, drawing.scatter(points)});
  std::vector<std::vector<std::string>> rows;
  for (std::size_t t = 0; t < result.partition.towers.size(); ++t) {
    std::string members;
    for (auto const f : result.partition.towers[t]) members += (members.empty() ? "" : ", ") + names[static_cast<std::size_t>(f)];
    rows.push_back({std::to_string(t), std::to_string(result.partition.towers[t].size()), members});
  }
  page.table({"tower", "features", "which"}, rows);
}

}  // namespace examples
