// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cluster/unit_costs.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE unit_list::unit_list(char const* call, host_exec const& exec, std::int64_t n, vector_view<std::int64_t const> named)
    : n_(n), m_(n) {
  if (!named.empty() && named.size() != n)
    throw error(errc::shape_mismatch, std::string(call) + ": each point needs a unit", {{"points", n}, {"units of points", named.size()}});
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

TESSERA_INLINE unit_costs::unit_costs(host_exec const& exec, double const* points, std::int64_t d, std::int64_t k, unit_list const& units,
                                      double squared_diagonal)
    : exec_(exec), points_(points), d_(d), k_(k), units_(units), centres_(exec, k, d), costs_(exec, units.count() * k) {
  auto const largest = std::min(std::int64_t{1} << 50, largest_assignment_cost(units.count(), k) / units.largest());
  // The squared diagonal times the scale is below a power of two that is at most half of `largest`, as a factor may be 2.
  if (squared_diagonal > 0)
    scale_ = std::ldexp(1.0, std::min(std::ilogb(static_cast<double>(largest)) - std::ilogb(squared_diagonal) - 2, 1000));
}

TESSERA_INLINE void unit_costs::compute(double const* centres) {
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

TESSERA_INLINE void unit_costs::compute_exchange(double const* centres, vector_view<std::int32_t const> labels, double strength) {
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

TESSERA_INLINE double squared_diagonal(double const* points, std::int64_t n, double const* centres, std::int64_t k, std::int64_t d) {
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
