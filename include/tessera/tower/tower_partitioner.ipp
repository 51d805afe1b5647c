// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/tower_partitioner.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE std::vector<tower_sizes> sizes_of_ratio(std::int64_t features, std::int64_t towers, double ratio) {
  detail::check_tower_count("sizes_of_ratio", features, towers);
  if (!(ratio >= 1))
    throw error(errc::invalid_argument, "sizes_of_ratio: a tower is at least as large as the smallest", {{"ratio", ratio}});
  std::vector<tower_sizes> all;
  for (auto least = features / towers; least >= 1; --least) {
    auto const largest = std::min(ratio * static_cast<double>(least) * (1 + 1e-12), static_cast<double>(features));
    auto const most = static_cast<std::int64_t>(largest);
    if (most * towers < features) break;
    // What the others leave to one, where they are as small or as large as may be.
    tower_sizes const sizes{std::max(least, features - most * (towers - 1)), std::min(most, features - least * (towers - 1))};
    auto const is_part = [](tower_sizes part, tower_sizes whole) { return part.least >= whole.least && part.most <= whole.most; };
    if (std::any_of(all.begin(), all.end(), [&](tower_sizes whole) { return is_part(sizes, whole); })) continue;
    if (!all.empty() && is_part(all.back(), sizes)) all.pop_back();
    all.push_back(sizes);
  }
  if (all.empty()) all.push_back({features / towers, divide_up(features, towers)});
  return all;
}

namespace detail {

TESSERA_INLINE std::vector<std::int64_t> towers_of_groups(std::vector<std::vector<std::int64_t>> const& groups, std::int64_t towers) {
  std::vector<std::int64_t> share(groups.size(), 1);
  for (auto left = towers - static_cast<std::int64_t>(groups.size()); left > 0; --left) {
    std::size_t next = 0;
    // The most features a tower, compared as fractions are.
    for (std::size_t g = 1; g < groups.size(); ++g)
      if (static_cast<std::int64_t>(groups[g].size()) * share[next] > static_cast<std::int64_t>(groups[next].size()) * share[g]) next = g;
    ++share[next];
  }
  return share;
}

TESSERA_INLINE std::vector<std::int64_t> units_of_features(std::vector<std::vector<std::int64_t>> const& pre_groups,
                                                           std::vector<std::vector<std::int64_t>> const& kept_together,
                                                           std::int64_t features) {
  std::vector<std::int64_t> units(static_cast<std::size_t>(features)), group_of(units.size());
  std::vector<bool> seen(units.size());
  std::iota(units.begin(), units.end(), static_cast<std::int64_t>(kept_together.size()));
  for (std::size_t g = 0; g < pre_groups.size(); ++g)
    for (auto const f : pre_groups[g]) group_of[static_cast<std::size_t>(f)] = static_cast<std::int64_t>(g);
  for (std::size_t l = 0; l < kept_together.size(); ++l)
    for (auto const f : kept_together[l]) {
      auto const refuse = [&](char const* why) {
        throw error(errc::invalid_argument, std::string("partition_features: ") + why, {{"list", l}, {"feature", f}});
      };
      if (f < 0 || f >= features) refuse("no such feature to keep together");
      auto const at = static_cast<std::size_t>(f);
      if (seen[at]) refuse("a feature is kept together twice");
      if (group_of[at] != group_of[static_cast<std::size_t>(kept_together[l][0])]) refuse("features of two pre-groups are kept together");
      seen[at] = true;
      units[at] = static_cast<std::int64_t>(l);
    }
  return units;
}

TESSERA_INLINE tower_partition cluster_group(host_exec const& exec, partitioned_features& all, std::vector<std::int64_t> const& group,
                                             std::int64_t towers, vector_view<std::int64_t const> all_units,
                                             tower_partitioner_options const& options) {
  auto const features = static_cast<std::int64_t>(group.size());
  auto const rows = all.point_rows();
  std::vector<double> points;
  std::vector<std::int64_t> units, weights;
  for (auto const feature : group) {
    points.insert(points.end(), rows.row(feature), rows.row(feature) + all.dims);
    if (!options.kept_together.empty()) units.push_back(all_units[feature]);
    if (!options.weights.empty()) weights.push_back(options.weights[static_cast<std::size_t>(feature)]);
  }
  matrix_view<double const> const of_group(points.data(), features, all.dims);
  auto bounds = sizes_of_ratio(features, towers, options.ratio);
  constexpr std::size_t most_bounds = 16;
  if (bounds.size() > most_bounds) {
    std::vector<tower_sizes> some;
    for (std::size_t b = 0; b < most_bounds; ++b) some.push_back(bounds[b * (bounds.size() - 1) / (most_bounds - 1)]);
    bounds = std::move(some);
  }
  constrained_kmeans_options clustering{.kmeans = options.kmeans};
  clustering.kmeans.clusters = towers;
  kmeans_result best;
  best.inertia = std::numeric_limits<double>::infinity();
  std::exception_ptr unsuited;
  for (auto const& sizes : bounds) {
    clustering.least = sizes.least;
    clustering.most = sizes.most;
    try {
      auto result = constrained_kmeans(exec, of_group, clustering, units);
      if (result.inertia < best.inertia) best = std::move(result);
    } catch (error const& e) {  // units that do not fit these bounds may fit others
      if (units.empty() || (e.code() != errc::invalid_argument && e.code() != errc::incompatible)) throw;
      if (!unsuited) unsuited = std::current_exception();
    }
  }
  if (best.labels.empty() && unsuited) std::rethrow_exception(unsuited);
  if (!weights.empty()) {
    auto const balanced = balance_weights(exec, of_group, weights, towers, vector_view<std::int32_t>(best.labels), options.balance, units);
    best.inertia = balanced.inertia;
    all.imbalance = std::max(all.imbalance, balanced.imbalance);
  }
  all.inertia += best.inertia;
  tower_partition partition;
  partition.towers.resize(static_cast<std::size_t>(towers));
  for (std::size_t f = 0; f < group.size(); ++f) partition.towers[static_cast<std::size_t>(best.labels[f])].push_back(group[f]);
  for (auto& tower : partition.towers) std::sort(tower.begin(), tower.end());
  std::sort(partition.towers.begin(), partition.towers.end());
  return partition;
}

}  // namespace detail

TESSERA_INLINE partitioned_features partition_features(host_exec const& exec, matrix_view<double const> affinity, std::int64_t towers,
                                                       tower_partitioner_options const& options) {
  check_affinity(affinity);
  detail::check_choice("partition_features", "strategy", options.strategy, tower_strategy::diverse);
  auto const features = affinity.rows();
  detail::check_tower_count("partition_features", features, towers);
  sizes_of_ratio(features, towers, options.ratio);  // refuses a ratio before the search
  auto groups = options.pre_groups;
  if (groups.empty()) {
    groups.emplace_back(static_cast<std::size_t>(features));
    std::iota(groups[0].begin(), groups[0].end(), std::int64_t{0});
  }
  detail::parts_of_features("partition_features", "pre-group", groups, features);
  if (towers < static_cast<std::int64_t>(groups.size()))
    throw error(errc::invalid_argument, "partition_features: a tower for each pre-group at least",
                {{"towers", towers}, {"pre-groups", groups.size()}});

  if (!options.weights.empty() && static_cast<std::int64_t>(options.weights.size()) != features)
    throw error(errc::shape_mismatch, "partition_features: one weight a feature",
                {{"weights", options.weights.size()}, {"features", features}});
  auto const units = detail::units_of_features(groups, options.kept_together, features);

  std::vector<double> distances(static_cast<std::size_t>(features * features));
  for (std::int64_t i = 0; i < features; ++i)
    for (std::int64_t j = 0; j < features; ++j) {
      auto const alike = std::min((affinity(i, j) + affinity(j, i)) / 2, 1.0);
      distances[static_cast<std::size_t>(i * features + j)] = options.strategy == tower_strategy::coherent ? 1 - alike : alike;
    }
  auto embedded = embed_distances(exec, matrix_view<double const>(distances.data(), features, features), options.embedding);
  partitioned_features result;
  result.points = std::move(embedded.positions);
  result.dims = options.embedding.dims;
  result.stress = embedded.stress;
  result.relative_stress = embedded.relative_stress;

  auto const share = detail::towers_of_groups(groups, towers);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::sort(groups[g].begin(), groups[g].end());
    auto const part = detail::cluster_group(exec, result, groups[g], share[g], units, options);
    result.partition.towers.insert(result.partition.towers.end(), part.towers.begin(), part.towers.end());
  }
  check_towers(result.partition, features);
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
