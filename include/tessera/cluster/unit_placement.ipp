// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cluster/unit_placement.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE unit_placement::unit_placement(matrix_view<std::int64_t const> costs, unit_list const& units, size_bounds bounds,
                                              vector_view<std::int32_t> labels)
    : costs_(costs), units_(units), bounds_(bounds), labels_(labels), filled_(static_cast<std::size_t>(costs.columns())) {
  for (std::int64_t u = 0; u < labels.size(); ++u)
    if (labels[u] >= 0) filled(labels[u]) += units.size(u);
}

TESSERA_INLINE void unit_placement::place(char const* call) {
  place_largest_first(true);
  if (!bring_into_bounds()) {
    place_largest_first(false);  // as even as can be, whatever it costs
    if (!bring_into_bounds()) refuse_units(call, units_, bounds_);
  }
}

TESSERA_INLINE void unit_placement::improve() {
  for (bool improved = true; improved;) {
    improved = false;
    for (std::int64_t u = 0; u < units_.count(); ++u) improved = move_or_swap(u) || improved;
  }
}

TESSERA_INLINE void unit_placement::put(std::int64_t u, std::int64_t to) {
  filled(labels_[u]) -= units_.size(u);
  filled(to) += units_.size(u);
  labels_[u] = static_cast<std::int32_t>(to);
}

TESSERA_INLINE void unit_placement::swap(std::int64_t u, std::int64_t v) {
  auto const a = labels_[u], b = labels_[v];
  put(u, b);
  put(v, a);
}

TESSERA_INLINE void unit_placement::place_largest_first(bool by_cost) {
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

TESSERA_INLINE bool unit_placement::bring_into_bounds() {
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

TESSERA_INLINE bool unit_placement::move_or_swap(std::int64_t u) {
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

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
