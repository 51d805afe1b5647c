// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/network_samples.hpp>
#include <tessera/plan/published_cost.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Which features a shard of a table has for a network of costs.
enum class shard_features : std::uint8_t {
  published,  ///< `published_features`, of one number of bags
  /// Sizes on a logarithmic scale, the megabytes that a step moves, which costs are nearly linear in, and the bins. The number of bags is
  /// among them.
  logarithmic,
};

/// The name of a kind of features, as a model's manifest has it.
constexpr std::string_view name(shard_features kind) noexcept { return kind == shard_features::published ? "published" : "logarithmic"; }

/// The names of the features, in order.
inline std::vector<std::string> shard_feature_names(shard_features kind) {
  if (kind == shard_features::published) return published_features::names();
  std::vector<std::string> names{"log_rows",          "log_dim",      "log_pooling_factor", "log_bags",  "log_lookups",
                                 "log_distinct_rows", "looked_up_mb", "updated_mb",         "vectors_mb"};
  for (std::int64_t bin = 0; bin < table_profile::bins; ++bin) names.push_back(detail::access_field(bin));
  return names;
}

/// Writes the features of a shard, as many as `shard_feature_names`. What repeats in a batch counts once: features are those of the distinct
/// bags. The published ones do not depend on the number of bags.
inline void write_shard_features(shard_features kind, table_profile const& shard, vector_view<float> features) noexcept(!checks_indices) {
  auto* to = features.data();
  auto const add = [&](double value) { *to++ = static_cast<float>(value); };
  if (kind == shard_features::published) {
    for (auto const value : published_features::of(shard)) add(value);
    return;
  }
  auto const columns = static_cast<double>(shard.dim), rows = static_cast<double>(shard.rows);
  auto const bags = shard.distinct_bags, lookups = distinct_ids_of_batch(shard), updated = std::min(lookups, distinct_rows_of_batch(shard));
  for (auto const value : {rows, columns, shard.pooling_factor, bags, lookups, updated}) add(std::log1p(value));
  for (auto const vectors : {lookups, updated, bags}) add(vectors * columns * 4e-6);
  for (auto const share : shard.access) add(share);
}

/// The mean and deviation of each feature over some shards. The published model's are over its pool of tables, each with each dim.
inline feature_statistics statistics_of_shards(shard_features kind, vector_view<table_profile const> shards) {
  auto const width = static_cast<std::int64_t>(shard_feature_names(kind).size());
  std::vector<float> all(static_cast<std::size_t>(shards.size() * width));
  for (std::int64_t s = 0; s < shards.size(); ++s) write_shard_features(kind, shards[s], {all.data() + s * width, width});
  return feature_statistics::of({all.data(), shards.size(), width});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
