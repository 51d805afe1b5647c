// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <tessera/cluster/unit_costs.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

[[noreturn]] inline void refuse_units(char const* call, unit_list const& units, size_bounds bounds) {
  throw error(errc::incompatible, std::string(call) + ": no placement of the units within the bounds was found",
              {{"units", units.count()}, {"largest unit", units.largest()}, {"least", bounds.least}, {"most", bounds.most}});
}

// Units of several sizes in clusters with bounds: whether they fit at all is a bin packing, so that this is a search for a good placement,
// not for the best. Single moves and swaps of two units bring sizes into bounds, then costs down, until none of them helps.
class unit_placement {
 public:
  unit_placement(matrix_view<std::int64_t const> costs, unit_list const& units, size_bounds bounds, vector_view<std::int32_t> labels);

  /// Places all units anew, the largest first. @throws tessera::error incompatible where no placement within bounds is found.
  void place(char const* call);
  /// Lowers the cost, within bounds. @pre sizes are within bounds
  void improve();

 private:
  std::int64_t& filled(std::int64_t c) { return filled_[static_cast<std::size_t>(c)]; }
  std::int64_t clusters() const noexcept { return costs_.columns(); }
  // Points too many, or too few, in a cluster of so many.
  std::int64_t breach(std::int64_t size) const noexcept {
    return std::max<std::int64_t>(size - bounds_.most, 0) + std::max<std::int64_t>(bounds_.least - size, 0);
  }
  // By how much breaches grow when `points` go from a to b.
  std::int64_t breach_change(std::int64_t a, std::int64_t b, std::int64_t points) {
    return breach(filled(a) - points) + breach(filled(b) + points) - breach(filled(a)) - breach(filled(b));
  }
  std::int64_t cost_change(std::int64_t u, std::int64_t to) const { return costs_(u, to) - costs_(u, labels_[u]); }
  void put(std::int64_t u, std::int64_t to);
  void swap(std::int64_t u, std::int64_t v);

  void place_largest_first(bool by_cost);

  struct step {
    std::int64_t breach = 0, cost = 0, u = -1, to = -1, v = -1;  // v: the unit that comes back, or -1
    bool operator<(step const& o) const noexcept { return breach != o.breach ? breach < o.breach : cost < o.cost; }
  };

  // The step that mends most each time, of those the cheapest.
  bool bring_into_bounds();

  bool move_or_swap(std::int64_t u);

  matrix_view<std::int64_t const> costs_;  // (m, k)
  unit_list const& units_;
  size_bounds bounds_;                // of each cluster
  vector_view<std::int32_t> labels_;  // (m,)
  std::vector<std::int64_t> filled_;  // (k,): points
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/cluster/unit_placement.ipp>
#endif
