// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cluster/constrained_kmeans.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_constrained(char const* call, std::int64_t n, std::int64_t k, size_bounds bounds, unit_list const& units) {
  if (bounds.least < 0 || bounds.most < bounds.least)
    throw error(errc::invalid_argument, std::string(call) + ": bounds are not 0 <= least <= most",
                {{"least", bounds.least}, {"most", bounds.most}});
  if (bounds.least > n / k)
    throw error(errc::invalid_argument, std::string(call) + ": so many clusters of the least size need more points than there are",
                {{"points", n}, {"clusters", k}, {"least", bounds.least}});
  if (bounds.most < divide_up(n, k))
    throw error(errc::invalid_argument, std::string(call) + ": so many clusters of the largest size hold fewer points than there are",
                {{"points", n}, {"clusters", k}, {"most", bounds.most}});
  for (std::int64_t u = 0; u < units.count(); ++u)
    if (units.size(u) > bounds.most)
      throw error(errc::invalid_argument, std::string(call) + ": a unit has more points than a cluster may",
                  {{"unit", units.name(u)}, {"points", units.size(u)}, {"most", bounds.most}});
  // Units of one size are counted; others have to be placed to know.
  if (auto const size = units.largest(); size == units.smallest())
    if (divide_up(bounds.least, size) > units.count() / k || bounds.most / size < divide_up(units.count(), k))
      refuse_units(call, units, bounds);
}

TESSERA_INLINE bounded_centres::bounded_centres(char const* call, host_exec const& exec, double const* points, std::int64_t d,
                                                std::int64_t k, size_bounds bounds, unit_list const& units, double diagonal, bool exchanges)
    : call_(call),
      exec_(exec),
      k_(k),
      bounds_(bounds),
      exchanges_(exchanges),
      units_(units),
      costs_(exec, points, d, k, units, diagonal),
      prices_(static_cast<std::size_t>(k)),
      unit_labels_(static_cast<std::size_t>(units.count()), -1),
      own_(static_cast<std::size_t>(units.count())) {}

TESSERA_INLINE void bounded_centres::operator()(double const* centres, vector_view<std::int32_t> labels) {
  costs_.compute(centres);
  if (units_.largest() == units_.smallest()) {
    assign_units();
  } else {
    unit_placement placement(costs_.view(), units_, bounds_, unit_labels_);
    if (unit_labels_[0] < 0) placement.place(call_);
    placement.improve();
  }
  if (bounds_.least == 0) fill_empty();
  for (std::int64_t p = 0; p < labels.size(); ++p) labels[p] = unit_labels_[static_cast<std::size_t>(units_.unit_of(p))];
}

TESSERA_INLINE bool bounded_centres::exchange(double const* centres, vector_view<std::int32_t> labels, double strength) {
  if (!exchanges_ || !units_.each_point_alone()) return false;
  costs_.compute_exchange(centres, labels, strength);
  std::copy(labels.begin(), labels.end(), unit_labels_.begin());
  assign_units();
  if (bounds_.least == 0) fill_empty();
  std::copy(unit_labels_.begin(), unit_labels_.end(), labels.begin());
  return true;
}

TESSERA_INLINE void bounded_centres::assign_units() {
  auto const size = units_.largest();
  auto const most = bounds_.most / size;
  std::vector<size_bounds> const bounds(static_cast<std::size_t>(k_), {divide_up(bounds_.least, size), most});
  // Where many had to move, centres will: prices then make a worse start than none.
  if (many_moved_) std::fill(prices_.begin(), prices_.end(), 0);
  auto const paths = assign_within_bounds(exec_, costs_.view(), bounds, prices_, unit_labels_).paths;
  many_moved_ = paths > units_.count() / 6;
}

TESSERA_INLINE void bounded_centres::fill_empty() {
  auto const costs = costs_.view();
  for (std::size_t u = 0; u < own_.size(); ++u) own_[u] = costs(static_cast<std::int64_t>(u), unit_labels_[u]);
  fill_empty_clusters(vector_view<std::int32_t>(unit_labels_), units_.sizes(), k_, bounds_.least, bounds_.most, own_.data());
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
