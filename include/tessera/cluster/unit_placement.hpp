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
  unit_placement(matrix_view<std::int64_t const> costs, unit_list const& units, size_bounds bounds, vector_view<std::int32_t> labels)
      : costs_(costs), units_(units), bounds_(bounds), labels_(labels), filled_(static_cast<std::size_t>(costs.columns())) {
    for (std::int64_t u = 0; u < labels.size(); ++u)
      if (labels[u] >= 0) filled(labels[u]) += units.size(u);
  }

  /// Places all units anew, the largest first. @throws tessera::error incompatible where no placement within bounds is found.
  void place(char const* call) {
    place_largest_first(true);
    if (!bring_into_bounds()) {
      place_largest_first(false);  // as even as can be, whatever it costs
      if (!bring_into_bounds()) refuse_units(call, units_, bounds_);
    }
  }
  /// Lowers the cost, within bounds. @pre sizes are within bounds
  void improve() {
    for (bool improved = true; improved;) {
      improved = false;
      for (std::int64_t u = 0; u < units_.count(); ++u) improved = move_or_swap(u) || improved;
    }
  }

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
  void put(std::int64_t u, std::int64_t to) {
    filled(labels_[u]) -= units_.size(u);
    filled(to) += units_.size(u);
    labels_[u] = static_cast<std::int32_t>(to);
  }
  void swap(std::int64_t u, std::int64_t v) {
    auto const a = labels_[u], b = labels_[v];
    put(u, b);
    put(v, a);
  }

  void place_largest_first(bool by_cost) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(units_.count()));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t u, std::int64_t v) { return units_.size(u) > units_.size(v); });
    std::fill(filled_.begin(), filled_.end(), 0);
    for (auto const u : order) {
      std::int64_t best = -1;
      if (by_cost)
        for (std::int64_t c = 0; c < clusters(); ++c)
          if (filled(c) + units_.size(u) <= bounds_.most && (best < 0 || costs_(u, c) < costs_(u, best))) best = c;
      if (best < 0) best = std::min_element(filled_.begin(), filled_.end()) - filled_.begin();
      labels_[u] = static_cast<std::int32_t>(best);
      filled(best) += units_.size(u);
    }
  }

  struct step {
    std::int64_t breach = 0, cost = 0, u = -1, to = -1, v = -1;  // v: the unit that comes back, or -1
    bool operator<(step const& o) const noexcept { return breach != o.breach ? breach < o.breach : cost < o.cost; }
  };

  // The step that mends most each time, of those the cheapest.
  bool bring_into_bounds() {
    for (;;) {
      std::int64_t left = 0;
      for (auto const size : filled_) left += breach(size);
      if (left == 0) return true;
      step best;
      for (std::int64_t u = 0; u < units_.count(); ++u) {
        auto const a = labels_[u];
        for (std::int64_t c = 0; c < clusters(); ++c)
          if (c != a) best = std::min(best, step{breach_change(a, c, units_.size(u)), cost_change(u, c), u, c, -1});
        for (auto v = u + 1; v < units_.count(); ++v)
          if (labels_[v] != a && units_.size(u) != units_.size(v))
            best = std::min(best, step{breach_change(a, labels_[v], units_.size(u) - units_.size(v)),
                                       cost_change(u, labels_[v]) + cost_change(v, a), u, labels_[v], v});
      }
      if (best.breach >= 0) return false;
      if (best.v < 0)
        put(best.u, best.to);
      else
        swap(best.u, best.v);
    }
  }

  bool move_or_swap(std::int64_t u) {
    bool improved = false;
    for (std::int64_t c = 0; c < clusters(); ++c) {
      if (cost_change(u, c) >= 0 || breach_change(labels_[u], c, units_.size(u)) > 0) continue;
      put(u, c);
      improved = true;
    }
    for (auto v = u + 1; v < units_.count(); ++v) {
      auto const a = labels_[u], b = labels_[v];
      if (a == b || cost_change(u, b) + cost_change(v, a) >= 0 || breach_change(a, b, units_.size(u) - units_.size(v)) > 0) continue;
      swap(u, v);
      improved = true;
    }
    return improved;
  }

  matrix_view<std::int64_t const> costs_;  // (m, k)
  unit_list const& units_;
  size_bounds bounds_;                // of each cluster
  vector_view<std::int32_t> labels_;  // (m,)
  std::vector<std::int64_t> filled_;  // (k,): points
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
