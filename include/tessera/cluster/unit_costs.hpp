// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <tessera/cluster/min_cost_flow.hpp>
#include <tessera/cluster/points.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Which points stay together: units 0 … m - 1 in the order of their first points. Without a caller's list each point is one.
class unit_list {
 public:
  unit_list(char const* call, host_exec const& exec, std::int64_t n, vector_view<std::int64_t const> named) : n_(n), m_(n) {
    if (!named.empty() && named.size() != n)
      throw error(errc::shape_mismatch, std::string(call) + ": each point needs a unit",
                  {{"points", n}, {"units of points", named.size()}});
    if (named.empty()) return;
    unit_of_.resize(exec, n);
    std::unordered_map<std::int64_t, std::int32_t> numbers;
    for (std::int64_t p = 0; p < n; ++p) {
      auto const number = static_cast<std::int32_t>(sizes_.size());
      auto const [place, is_new] = numbers.try_emplace(named[p], number);
      if (is_new) {
        sizes_.push_back(0);
        names_.push_back(named[p]);
      }
      unit_of_[p] = place->second;
      ++sizes_[static_cast<std::size_t>(place->second)];
    }
    m_ = static_cast<std::int64_t>(sizes_.size());
    if (m_ == n)
      sizes_.clear();  // each point alone: units have the numbers of their points
    else
      lists_.emplace_back(exec, unit_of_.view(), m_);
  }

  std::int64_t count() const noexcept { return m_; }
  std::int64_t points() const noexcept { return n_; }
  bool each_point_alone() const noexcept { return sizes_.empty(); }
  std::int64_t size(std::int64_t u) const { return sizes_.empty() ? 1 : sizes_[static_cast<std::size_t>(u)]; }
  /// (m,), or empty where each point is alone.
  vector_view<std::int64_t const> sizes() const noexcept { return sizes_; }
  /// The caller's name of a unit.
  std::int64_t name(std::int64_t u) const { return names_.empty() ? u : names_[static_cast<std::size_t>(u)]; }
  std::int64_t largest() const { return sizes_.empty() ? 1 : *std::max_element(sizes_.begin(), sizes_.end()); }
  std::int64_t smallest() const { return sizes_.empty() ? 1 : *std::min_element(sizes_.begin(), sizes_.end()); }
  std::int64_t unit_of(std::int64_t p) const { return sizes_.empty() ? p : unit_of_[p]; }
  /// Calls f(p) for the points of a unit, in their order.
  template <class F>
  void for_each_point(std::int64_t u, F const& f) const {
    if (sizes_.empty()) return f(u);
    auto const& list = lists_.front();
    for (auto i = list.first[u]; i < list.first[u + 1]; ++i) f(static_cast<std::int64_t>(list.members[i]));
  }

 private:
  std::int64_t n_, m_;
  buffer<std::int32_t> unit_of_;      // (n,)
  std::vector<std::int64_t> sizes_;   // (m,), or empty
  std::vector<std::int64_t> names_;   // (m,), or empty
  std::vector<cluster_lists> lists_;  // one, or none where each point is alone
};

// The sum of squared distances of a unit's points to each centre, as integers: a squared distance times `scale()`, a power of two, is
// rounded to the nearest. So a sum over n points is off by at most n / (2 scale()), and an assignment that is best by these costs is at
// most n / scale() from the best. 1 / scale() is at most 2^-44 of the squared diagonal of the box around points and centres for k < 2^8
// clusters and n <= 2^16 points, each alone; beyond, `largest_assignment_cost` makes it coarser. It stays for all iterations, so that
// prices keep their meaning.
class unit_costs {
 public:
  unit_costs(host_exec const& exec, double const* points, std::int64_t d, std::int64_t k, unit_list const& units, double squared_diagonal)
      : exec_(exec), points_(points), d_(d), k_(k), units_(units), centres_(exec, k, d), costs_(exec, units.count() * k) {
    auto const largest = std::min(std::int64_t{1} << 50, largest_assignment_cost(units.count(), k) / units.largest());
    // The squared diagonal times the scale is below a power of two that is at most half of `largest`, as a factor may be 2.
    if (squared_diagonal > 0)
      scale_ = std::ldexp(1.0, std::min(std::ilogb(static_cast<double>(largest)) - std::ilogb(squared_diagonal) - 2, 1000));
  }

  double scale() const noexcept { return scale_; }
  matrix_view<std::int64_t const> view() const noexcept { return {costs_.data(), units_.count(), k_}; }

  void compute(double const* centres) {
    centres_.set_all(centres, k_);
    for_each_piece(exec_, units_.count(), points_per_sum, [&](std::int64_t first, std::int64_t last) {
      std::vector<double> distances(static_cast<std::size_t>(centres_.room()));
      for (auto u = first; u < last; ++u) {
        auto* const row = costs_.data() + u * k_;
        if (!units_.each_point_alone()) std::fill(row, row + k_, 0);
        units_.for_each_point(u, [&](std::int64_t p) {
          centres_.squared_distances(points_ + p * d_, distances.data());
          if (units_.each_point_alone())
            for (std::int64_t c = 0; c < k_; ++c) row[c] = rounded(distances[static_cast<std::size_t>(c)]);
          else
            for (std::int64_t c = 0; c < k_; ++c) row[c] += rounded(distances[static_cast<std::size_t>(c)]);
        });
      }
    });
  }

  // As `compute`, of points each alone, times a factor: what the inertia falls by where a point leaves its cluster, and what it grows by where
  // one comes, when centres follow it. That is 1 + 1 / (m - 1) and 1 - 1 / (m + 1) of a cluster of m, Hartigan's rule; a `strength` below
  // 1 takes so much of it.
  void compute_exchange(double const* centres, vector_view<std::int32_t const> labels, double strength) {
    centres_.set_all(centres, k_);
    std::vector<double> sizes(static_cast<std::size_t>(k_)), joins(sizes.size());
    for (auto const label : labels) ++sizes[static_cast<std::size_t>(label)];
    for (std::size_t c = 0; c < sizes.size(); ++c) joins[c] = 1 - strength / (sizes[c] + 1);
    for_each_piece(exec_, units_.count(), points_per_sum, [&](std::int64_t p, std::int64_t last) {
      std::vector<double> distances(static_cast<std::size_t>(centres_.room()));
      for (; p < last; ++p) {
        centres_.squared_distances(points_ + p * d_, distances.data());
        auto const own = static_cast<std::size_t>(labels[p]);
        auto const stays = distances[own] * (1 + strength / std::max(sizes[own] - 1, 1.0));
        auto* const row = costs_.data() + p * k_;
        for (std::int64_t c = 0; c < k_; ++c) row[c] = rounded(distances[static_cast<std::size_t>(c)] * joins[static_cast<std::size_t>(c)]);
        row[own] = rounded(stays);
      }
    });
  }

 private:
  // The sum with 2^52 has the integer in its low bits, which a vector unit without a conversion to int64 can take.
  std::int64_t rounded(double squared) const noexcept {
    return std::bit_cast<std::int64_t>(squared * scale_ + 0x1p52) - std::bit_cast<std::int64_t>(0x1p52);
  }

  host_exec const& exec_;
  double const* points_;
  std::int64_t d_, k_;
  unit_list const& units_;
  tiled_centres centres_;
  buffer<std::int64_t> costs_;  // (m, k)
  double scale_ = 1;
};

// Of the box around points and centres.
inline double squared_diagonal(double const* points, std::int64_t n, double const* centres, std::int64_t k, std::int64_t d) {
  double sum = 0;
  for (std::int64_t j = 0; j < d; ++j) {
    double lowest = n > 0 ? points[j] : 0, highest = lowest;
    auto const widen = [&](double const* values, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        lowest = std::min(lowest, values[i * d + j]);
        highest = std::max(highest, values[i * d + j]);
      }
    };
    widen(points, n);
    widen(centres, k);
    sum += (highest - lowest) * (highest - lowest);
  }
  return sum;
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
