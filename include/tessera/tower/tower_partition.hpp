// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Which features make which tower. Features have the numbers 0, 1, 2, …
struct tower_partition {
  std::vector<std::vector<std::int64_t>> towers;  ///< the features of each tower; each feature is in one tower, once

  friend bool operator==(tower_partition const&, tower_partition const&) = default;
};

/// Refuses towers that do not have each of `features` features once.
/// @throws tessera::error invalid_argument, naming tower and feature. It does so for no towers, more towers than features, and a tower without
/// features. So it does for a feature that is not there, is in two places, or is in none.
inline void check_towers(tower_partition const& partition, std::int64_t features);

/// The tower of each feature (features,). @throws tessera::error as `check_towers`.
inline std::vector<std::int64_t> towers_of_features(tower_partition const& partition, std::int64_t features);

/// How many features the towers of a partition have.
struct tower_sizes {
  std::int64_t least = 0, most = 0;

  friend bool operator==(tower_sizes const&, tower_sizes const&) = default;
};

/// The smallest and the largest tower; zeros where there is none.
inline tower_sizes sizes_of(tower_partition const& partition) noexcept {
  if (partition.towers.empty()) return {};
  tower_sizes sizes{std::numeric_limits<std::int64_t>::max(), 0};
  for (auto const& tower : partition.towers) {
    auto const size = static_cast<std::int64_t>(tower.size());
    sizes = {std::min(sizes.least, size), std::max(sizes.most, size)};
  }
  return sizes;
}

namespace detail {

/// @throws tessera::error invalid_argument for towers below 1, or more of them than features.
inline void check_tower_count(char const* call, std::int64_t features, std::int64_t towers) {
  if (towers < 1 || towers > features)
    throw error(errc::invalid_argument, std::string(call) + ": from one tower to as many as there are features",
                {{"towers", towers}, {"features", features}});
}

/// The list of each feature (features,), where all lists together have each feature once. Errors call a list a `part`.
/// @throws tessera::error invalid_argument, as `check_towers`.
inline std::vector<std::int64_t> parts_of_features(std::string const& call, std::string const& part,
                                                   std::vector<std::vector<std::int64_t>> const& lists, std::int64_t features) {
  std::vector<std::int64_t> of(static_cast<std::size_t>(features), -1);
  for (std::size_t p = 0; p < lists.size(); ++p) {
    if (lists[p].empty()) throw error(errc::invalid_argument, call + ": a " + part + " without features", {{part, p}});
    for (auto const feature : lists[p]) {
      if (feature < 0 || feature >= features)
        throw error(errc::invalid_argument, call + ": no such feature", {{part, p}, {"feature", feature}, {"features", features}});
      auto& seen = of[static_cast<std::size_t>(feature)];
      if (seen >= 0)
        throw error(errc::invalid_argument, call + ": a feature is there twice",
                    {{"feature", feature}, {part, p}, {"first " + part, seen}});
      seen = static_cast<std::int64_t>(p);
    }
  }
  for (std::int64_t f = 0; f < features; ++f)
    if (of[static_cast<std::size_t>(f)] < 0)
      throw error(errc::invalid_argument, call + ": a feature is in no " + part, {{"feature", f}, {"features", features}});
  return of;
}

}  // namespace detail

inline std::vector<std::int64_t> towers_of_features(tower_partition const& partition, std::int64_t features) {
  detail::check_tower_count("tower partition", features, static_cast<std::int64_t>(partition.towers.size()));
  return detail::parts_of_features("tower partition", "tower", partition.towers, features);
}

inline void check_towers(tower_partition const& partition, std::int64_t features) { towers_of_features(partition, features); }

}  // namespace TESSERA_ABI
}  // namespace tessera
