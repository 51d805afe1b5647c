// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>

#include "hosts.hpp"
#include "random.hpp"

/// What tests of clusterings share.
namespace cluster_tests {

/// Points in rows of `stride` doubles.
struct point_set {
  std::int64_t n, d, stride;
  std::vector<double> values;

  point_set(std::int64_t n, std::int64_t d, std::int64_t gap = 0)
      : n(n), d(d), stride(d + gap), values(static_cast<std::size_t>(n * (d + gap)), 1e300) {}
  point_set(std::int64_t d, std::vector<double> list)
      : n(static_cast<std::int64_t>(list.size()) / d), d(d), stride(d), values(std::move(list)) {}

  double& at(std::int64_t p, std::int64_t j) { return values[static_cast<std::size_t>(p * stride + j)]; }
  double at(std::int64_t p, std::int64_t j) const { return values[static_cast<std::size_t>(p * stride + j)]; }
  tessera::matrix_view<double const> view() const { return {values.data(), n, d, stride}; }
};

inline point_set random_points(std::mt19937_64& random, std::int64_t n, std::int64_t d, std::int64_t gap = 0) {
  point_set points(n, d, gap);
  std::normal_distribution<double> draw;
  for (std::int64_t p = 0; p < n; ++p)
    for (std::int64_t j = 0; j < d; ++j) points.at(p, j) = draw(random);
  return points;
}

/// `each` points about each of k centres 100 apart; point p is of blob p % k.
inline point_set blobs(std::mt19937_64& random, std::int64_t k, std::int64_t each, std::int64_t d) {
  auto points = random_points(random, k * each, d);
  for (std::int64_t p = 0; p < points.n; ++p) points.at(p, 0) += 100.0 * static_cast<double>(p % k);
  return points;
}

inline std::vector<std::int64_t> sizes_of(std::vector<std::int32_t> const& labels, std::int64_t k) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(k));
  for (auto const label : labels) ++sizes.at(static_cast<std::size_t>(label));
  return sizes;
}

/// The inertia of labels about their own means, by the definition.
inline double inertia_of(point_set const& points, std::vector<std::int32_t> const& labels, std::int64_t k) {
  auto const sizes = sizes_of(labels, k);
  std::vector<double> means(static_cast<std::size_t>(k * points.d));
  for (std::int64_t p = 0; p < points.n; ++p)
    for (std::int64_t j = 0; j < points.d; ++j)
      means[static_cast<std::size_t>(labels[static_cast<std::size_t>(p)] * points.d + j)] += points.at(p, j);
  double inertia = 0;
  for (std::int64_t p = 0; p < points.n; ++p) {
    auto const label = labels[static_cast<std::size_t>(p)];
    for (std::int64_t j = 0; j < points.d; ++j) {
      auto const mean = means[static_cast<std::size_t>(label * points.d + j)] / static_cast<double>(sizes[static_cast<std::size_t>(label)]);
      inertia += (points.at(p, j) - mean) * (points.at(p, j) - mean);
    }
  }
  return inertia;
}

/// Whether points have the same label exactly where they are of the same blob.
inline bool finds_blobs(std::vector<std::int32_t> const& labels, std::int64_t k) {
  std::set<std::int32_t> found;
  for (std::size_t p = 0; p < labels.size(); ++p) {
    if (labels[p] != labels[p % static_cast<std::size_t>(k)]) return false;
    found.insert(labels[p]);
  }
  return static_cast<std::int64_t>(found.size()) == k;
}

template <class F>
std::string refusal(F const& f) {
  try {
    f();
  } catch (tessera::error const& e) {
    return e.what();
  }
  return "none";
}

}  // namespace cluster_tests
