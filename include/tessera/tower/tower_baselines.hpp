// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tower/feature_affinity.hpp>
#include <tessera/tower/tower_partition.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Deals out features in turn: feature f to tower f modulo `towers`. Sizes differ by at most one, here and below.
/// @throws tessera::error invalid_argument for towers below 1 or more than features, here and below. Source: DMT, Section 5.2.3.
tower_partition strided_towers(std::int64_t features, std::int64_t towers);

/// Deals out features in an order that is a function of the seed; features of a tower are ascending.
tower_partition random_towers(std::int64_t features, std::int64_t towers, random_seed seed);

/// Joins alike features pair by pair: of all groups that fit into one tower together, the two with the greatest mean affinity become one. It
/// ends at so many towers. Where groups no longer fit together, the smallest group gives its features to others. Each goes to the one with the
/// greatest mean affinity that has room. `affinity` (features, features) as `check_affinity`. No tower has more than `most` features; 0: as few
/// as can be. Towers and their features are ascending.
/// @throws tessera::error invalid_argument, also for a `most` that cannot hold all features; as `check_affinity`.
tower_partition greedy_towers(matrix_view<double const> affinity, std::int64_t towers, std::int64_t most = 0);

namespace detail {

/// Groups of features that join one by one.
class greedy_groups {
 public:
  explicit greedy_groups(matrix_view<double const> affinity) : affinity_(affinity) {
    for (std::int64_t f = 0; f < affinity.rows(); ++f) groups_.push_back({f});
  }

  std::int64_t count() const noexcept { return static_cast<std::int64_t>(groups_.size()); }

  /// Joins the two most alike that fit together; of equals the first. @return whether there were two
  bool join(std::int64_t most);

  /// Deals out the features of the smallest group; of equals the last. @pre the others have room for them
  void dissolve(std::int64_t most);

  tower_partition towers();

 private:
  double alike(std::vector<std::int64_t> const& a, std::vector<std::int64_t> const& b) const;

  matrix_view<double const> affinity_;
  std::vector<std::vector<std::int64_t>> groups_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/tower_baselines.ipp>
#endif
