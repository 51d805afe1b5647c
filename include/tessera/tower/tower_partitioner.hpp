// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/cluster/balance_weights.hpp>
#include <tessera/cluster/constrained_kmeans.hpp>
#include <tessera/cluster/distance_embedding.hpp>
#include <tessera/cluster/kmeans.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tower/feature_affinity.hpp>
#include <tessera/tower/tower_partition.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Which features share a tower.
enum class tower_strategy : std::uint8_t {
  coherent,  ///< those that are alike: the distance of a pair is 1 - affinity
  diverse,   ///< those that differ: the distance of a pair is the affinity
};

/// How `partition_features` makes towers.
struct tower_partitioner_options {
  tower_strategy strategy = tower_strategy::coherent;
  /// The largest tower has at most so many times the features of the smallest. Where no sizes have that ratio, as 1 and features that do not
  /// divide evenly, sizes differ by at most one.
  double ratio = 1;
  /// Groups of features that never share a tower, such as those of users and of items; each feature is in one. None: all are one group. The
  /// ratio then holds in each group.
  std::vector<std::vector<std::int64_t>> pre_groups{};
  /// Lists of features that stay in one tower, such as those that are deduplicated together. Each counts by its features. A list lies in one
  /// pre-group.
  std::vector<std::vector<std::int64_t>> kept_together{};
  /// (features,), or empty: what each feature's tables take, say. Then features, and lists of as many features, swap places
  /// until the towers' sums are even, within a tolerance; towers keep their sizes.
  std::vector<std::int64_t> weights{};
  weight_balance_options balance{};        ///< of `weights`
  distance_embedding_options embedding{};  ///< 2 dims as in the paper; more keep more of the affinity
  kmeans_options kmeans{};                 ///< its number of clusters is not read
};

/// Towers of features, and where the features came to lie.
struct partitioned_features {
  tower_partition partition;   ///< towers by pre-group, then by their first feature; features ascending
  std::vector<double> points;  ///< (features, dims): alike, or for the diverse strategy unlike, features are near each other
  std::int64_t dims = 0;
  double stress = 0;           ///< of the embedding: the sum over pairs of squared differences of distances there and asked for
  double relative_stress = 0;  ///< of the embedding: 0 where all distances are kept
  double inertia = 0;          ///< of the clustering: the sum of squared distances of features from the means of their towers
  /// Of `weights`: the heaviest tower of a pre-group over the mean of its towers, less 1; the largest of all pre-groups.
  double imbalance = 0;

  /// The points as a matrix.
  matrix_view<double const> point_rows() const noexcept {
    return {points.data(), dims == 0 ? 0 : static_cast<std::int64_t>(points.size()) / dims, dims};
  }
};

/// Makes `towers` towers of features by their affinity. It turns affinity into distances, and embeds the features in a plane or a space of a
/// few dims. There it clusters them by k-means with bounds on sizes.
///
/// `affinity` (features, features), as `check_affinity`. Pre-groups get their share of the towers: each at least one, each further tower goes
/// to the group that has the most features a tower. The embedding is one for all. With a ratio above 1 several bounds on sizes may do. The
/// clustering runs for up to 16 of them, and that of the least inertia counts. The number of threads changes no bit.
/// Source: DMT, Section 3.3; pre-groups from Section 5.2.3.
/// @throws tessera::error as `check_affinity`, `embed_distances` and `constrained_kmeans`. invalid_argument, with the values, for towers below
/// 1 or more than features, fewer towers than pre-groups, and a ratio below 1. Also for pre-groups that do not have each feature once, for a
/// feature twice in `kept_together`, or not there, and for a list of it in two pre-groups. shape_mismatch for other than one weight a feature.
/// invalid_argument or incompatible, as `constrained_kmeans`, where no sizes of the ratio suit what is kept together. As
/// `balance_weights` for weights and options of it, whose points are a pre-group's features, ascending.
inline partitioned_features partition_features(host_exec const& exec, matrix_view<double const> affinity, std::int64_t towers,
                                               tower_partitioner_options const& options = {});

/// Sizes that `towers` towers of `features` features may have under a ratio, as `tower_partitioner_options` says. Towers have such sizes where
/// all are within one of these bounds, none of which is a part of another. The evenest come first; there is at least one.
/// @throws tessera::error invalid_argument for towers below 1 or more than features, and a ratio below 1.
inline std::vector<tower_sizes> sizes_of_ratio(std::int64_t features, std::int64_t towers, double ratio) {
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

/// How many towers each group of features gets.
inline std::vector<std::int64_t> towers_of_groups(std::vector<std::vector<std::int64_t>> const& groups, std::int64_t towers) {
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

/// What each feature is kept together with, (features,): the number of its list, or a number that no other feature has.
inline std::vector<std::int64_t> units_of_features(std::vector<std::vector<std::int64_t>> const& pre_groups,
                                                   std::vector<std::vector<std::int64_t>> const& kept_together, std::int64_t features) {
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

/// The towers of one group, whose points, and units, are a part of all. Adds its inertia, and its imbalance if that is the largest.
inline tower_partition cluster_group(host_exec const& exec, partitioned_features& all, std::vector<std::int64_t> const& group,
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

inline partitioned_features partition_features(host_exec const& exec, matrix_view<double const> affinity, std::int64_t towers,
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
