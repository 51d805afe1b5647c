// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pooled_problem.hpp"

namespace embed_tests {

/// One key a table, and one more on every third.
inline std::vector<std::int64_t> sequence_features(std::int64_t tables) {
  std::vector<std::int64_t> features;
  for (auto const& feature : features_over(tables)) features.push_back(feature.table);
  return features;
}

inline std::vector<std::int64_t> values_of(sparse_view batch, std::int64_t key) {
  auto const bags = batch.key(key);
  if (bags.size() == 0) return {};
  return {bags.values + bags.offsets[0], bags.values + bags.offsets[bags.rows]};
}

/// A batch's values as rows of one value each, and so the pooled features that read them one by one.
inline tessera::keyed_jagged<> value_by_value(tessera::host_exec const& exec, sparse_view batch) {
  std::vector<tessera::feature_rows<>> keys;
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    std::vector<std::vector<std::int64_t>> rows;
    for (auto const id : values_of(batch, key)) rows.push_back({id});
    keys.emplace_back("key" + std::to_string(key), rows);
  }
  return tessera::keyed_jagged<>::from_rows(exec, keys);
}

inline std::vector<tessera::pooled_feature> as_pooled(std::vector<std::int64_t> const& features) {
  std::vector<tessera::pooled_feature> pooled;
  for (auto const table : features) pooled.push_back({.table = table});
  return pooled;
}

/// The matrices of a call, a row a value.
struct value_matrices : pooled_matrices {
  value_matrices(std::vector<tessera::table_options> const& tables, std::vector<std::int64_t> const& features, sparse_view batch)
      : pooled_matrices(tables, as_pooled(features), batch, [&](std::int64_t key) { return batch.key(key).size(); }) {}
};

}  // namespace embed_tests
