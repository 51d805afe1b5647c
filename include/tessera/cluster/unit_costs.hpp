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
  unit_list(char const* call, host_exec const& exec, std::int64_t n, vector_view<std::int64_t const> named);

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
  unit_costs(host_exec const& exec, double const* points, std::int64_t d, std::int64_t k, unit_list const& units, double squared_diagonal);

  double scale() const noexcept { return scale_; }
  matrix_view<std::int64_t const> view() const noexcept { return {costs_.data(), units_.count(), k_}; }

  void compute(double const* centres);

  // As `compute`, of points each alone, times a factor: what the inertia falls by where a point leaves its cluster, and what it grows by where
  // one comes, when centres follow it. That is 1 + 1 / (m - 1) and 1 - 1 / (m + 1) of a cluster of m, Hartigan's rule; a `strength` below
  // 1 takes so much of it.
  void compute_exchange(double const* centres, vector_view<std::int32_t const> labels, double strength);

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
double squared_diagonal(double const* points, std::int64_t n, double const* centres, std::int64_t k, std::int64_t d);

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/cluster/unit_costs.ipp>
#endif
