// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/tower_baselines.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE tower_partition strided_towers(std::int64_t features, std::int64_t towers) {
  detail::check_tower_count("strided_towers", features, towers);
  tower_partition partition{std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(towers))};
  for (std::int64_t f = 0; f < features; ++f) partition.towers[static_cast<std::size_t>(f % towers)].push_back(f);
  return partition;
}

TESSERA_INLINE tower_partition random_towers(std::int64_t features, std::int64_t towers, random_seed seed) {
  detail::check_tower_count("random_towers", features, towers);
  std::vector<std::int64_t> order(static_cast<std::size_t>(features));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  constexpr std::uint32_t of_towers = 0x746F7772;
  for (auto last = features - 1; last > 0; --last) {
    auto const block = philox(seed, static_cast<std::uint64_t>(last), of_towers, 0);
    auto const other = uniform_below(block[0], block[1], static_cast<std::uint64_t>(last) + 1);
    std::swap(order[static_cast<std::size_t>(last)], order[static_cast<std::size_t>(other)]);
  }
  auto partition = strided_towers(features, towers);
  for (auto& tower : partition.towers) {
    for (auto& feature : tower) feature = order[static_cast<std::size_t>(feature)];
    std::sort(tower.begin(), tower.end());
  }
  return partition;
}

namespace detail {

TESSERA_INLINE bool greedy_groups::join(std::int64_t most) {
  std::pair<std::size_t, std::size_t> best{};
  double greatest = -1;
  for (std::size_t a = 0; a < groups_.size(); ++a)
    for (std::size_t b = a + 1; b < groups_.size(); ++b) {
      if (static_cast<std::int64_t>(groups_[a].size() + groups_[b].size()) > most) continue;
      if (auto const mean = alike(groups_[a], groups_[b]); mean > greatest) {
        greatest = mean;
        best = {a, b};
      }
    }
  if (greatest < 0) return false;
  groups_[best.first].insert(groups_[best.first].end(), groups_[best.second].begin(), groups_[best.second].end());
  groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(best.second));
  return true;
}

TESSERA_INLINE void greedy_groups::dissolve(std::int64_t most) {
  auto smallest = groups_.begin();
  for (auto group = groups_.begin(); group != groups_.end(); ++group)
    if (group->size() <= smallest->size()) smallest = group;
  auto const features = std::move(*smallest);
  groups_.erase(smallest);
  for (auto const feature : features) {
    std::vector<std::int64_t>* best = nullptr;
    double greatest = -1;
    for (auto& group : groups_) {
      if (static_cast<std::int64_t>(group.size()) >= most) continue;
      if (auto const mean = alike({feature}, group); mean > greatest) {
        greatest = mean;
        best = &group;
      }
    }
    best->push_back(feature);
  }
}

TESSERA_INLINE tower_partition greedy_groups::towers() {
  for (auto& group : groups_) std::sort(group.begin(), group.end());
  std::sort(groups_.begin(), groups_.end());
  return {std::move(groups_)};
}

TESSERA_INLINE double greedy_groups::alike(std::vector<std::int64_t> const& a, std::vector<std::int64_t> const& b) const {
  double sum = 0;
  for (auto const i : a)
    for (auto const j : b) sum += affinity_(i, j);
  return sum / static_cast<double>(a.size() * b.size());
}

}  // namespace detail

TESSERA_INLINE tower_partition greedy_towers(matrix_view<double const> affinity, std::int64_t towers, std::int64_t most) {
  check_affinity(affinity);
  auto const features = affinity.rows();
  detail::check_tower_count("greedy_towers", features, towers);
  auto const least_most = divide_up(features, towers);
  if (most != 0 && most < least_most)
    throw error(errc::invalid_argument, "greedy_towers: towers of at most so many features cannot hold all",
                {{"most", most}, {"towers", towers}, {"features", features}, {"least", least_most}});
  if (most == 0) most = least_most;
  detail::greedy_groups groups(affinity);
  while (groups.count() > towers && groups.join(most)) {
  }
  while (groups.count() > towers) groups.dissolve(most);
  return groups.towers();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
