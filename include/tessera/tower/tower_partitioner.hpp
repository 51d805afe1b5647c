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
partitioned_features partition_features(host_exec const& exec, matrix_view<double const> affinity, std::int64_t towers,
                                        tower_partitioner_options const& options = {});

/// Sizes that `towers` towers of `features` features may have under a ratio, as `tower_partitioner_options` says. Towers have such sizes where
/// all are within one of these bounds, none of which is a part of another. The evenest come first; there is at least one.
/// @throws tessera::error invalid_argument for towers below 1 or more than features, and a ratio below 1.
std::vector<tower_sizes> sizes_of_ratio(std::int64_t features, std::int64_t towers, double ratio);

namespace detail {

/// How many towers each group of features gets.
std::vector<std::int64_t> towers_of_groups(std::vector<std::vector<std::int64_t>> const& groups, std::int64_t towers);

/// What each feature is kept together with, (features,): the number of its list, or a number that no other feature has.
std::vector<std::int64_t> units_of_features(std::vector<std::vector<std::int64_t>> const& pre_groups,
                                            std::vector<std::vector<std::int64_t>> const& kept_together, std::int64_t features);

/// The towers of one group, whose points, and units, are a part of all. Adds its inertia, and its imbalance if that is the largest.
tower_partition cluster_group(host_exec const& exec, partitioned_features& all, std::vector<std::int64_t> const& group, std::int64_t towers,
                              vector_view<std::int64_t const> all_units, tower_partitioner_options const& options);

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/tower_partitioner.ipp>
#endif
