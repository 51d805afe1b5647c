// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/preprocessing.hpp>
#include <tessera/data/preprocessing_fit.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/expand.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "sample_support.hpp"
#include "temporary_folder.hpp"

namespace preprocessing_tests {

using namespace tessera;
using tessera_tests::error_of;

using id_rows = std::vector<std::vector<std::int64_t>>;  // a row each

/// Samples, and the schema that they have.
struct table {
  sample_schema schema;
  std::vector<sample_tests::sample> samples;

  table(std::mt19937_64& random, sample_tests::table_shape const& shape)
      : schema(sample_tests::schema_of(shape)), samples(sample_tests::random_samples(random, shape)) {}
  table(sample_schema schema, std::vector<sample_tests::sample> samples) : schema(std::move(schema)), samples(std::move(samples)) {}

  sample_columns part(host_exec const& exec, std::size_t first, std::size_t last) const {
    sample_columns columns;
    sample_tests::fill(
        exec, schema, {samples.begin() + static_cast<std::ptrdiff_t>(first), samples.begin() + static_cast<std::ptrdiff_t>(last)}, columns);
    return columns;
  }
  sample_columns all(host_exec const& exec) const { return part(exec, 0, samples.size()); }
};

/// Adds samples [first, last) in blocks of that many.
inline void add(host_exec const& exec, preprocessing_fit& fit, table const& data, std::size_t first, std::size_t last, std::size_t block) {
  for (; first < last; first += block) fit.add(exec, data.part(exec, first, std::min(last, first + block)).view());
}
inline preprocessing fitted(host_exec const& exec, preprocessing const& unfitted, table const& data, std::size_t block = 1000) {
  preprocessing_fit fit(unfitted);
  add(exec, fit, data, 0, data.samples.size(), block);
  return std::move(fit).finish(exec);
}

/// The features of all samples, (n, features) row by row, as bits.
inline std::vector<std::uint32_t> dense_of(host_exec const& exec, dense_pipeline const& pipeline, sample_columns_view samples) {
  std::vector<float> out(static_cast<std::size_t>(samples.size() * pipeline.features()));
  pipeline(exec, samples.dense, 0, samples.size(), {out.data(), samples.size(), pipeline.features()});
  std::vector<std::uint32_t> bits;
  for (auto const value : out) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}
inline std::vector<float> numbers_of(host_exec const& exec, dense_pipeline const& pipeline, sample_columns_view samples) {
  std::vector<float> numbers;
  for (auto const bits : dense_of(exec, pipeline, samples)) numbers.push_back(std::bit_cast<float>(bits));
  return numbers;
}

inline std::vector<id_rows> lists_of(keyed_jagged_view<std::int64_t const> batch) {
  std::vector<id_rows> keys;
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    auto& rows = keys.emplace_back();
    for (std::int64_t row = 0; row < batch.rows(key); ++row)
      rows.emplace_back(batch.key(key).row(row).begin(), batch.key(key).row(row).end());
  }
  return keys;
}

/// The batch that a reader makes of samples: keys in this order, of which the first make groups.
inline inverse_keyed_jagged<> batch_of(host_exec const& exec, sample_schema const& schema, sample_columns_view samples,
                                       std::vector<std::string> const& keys, std::vector<std::int64_t> const& keys_per_group) {
  std::vector<jagged_view<std::int64_t const>> columns;
  for (auto const& key : keys)
    columns.push_back(samples.sparse[std::find(schema.sparse.begin(), schema.sparse.end(), key) - schema.sparse.begin()]);
  return deduplicate(exec, vector_view<jagged_view<std::int64_t const> const>(columns), vector_view<std::int64_t const>(keys_per_group));
}

/// The ids of all samples, by key.
inline std::vector<id_rows> ids_of(host_exec const& exec, sparse_pipeline const& pipeline, sample_schema const& schema,
                                   sample_columns_view samples, std::vector<std::string> const& keys,
                                   std::vector<std::int64_t> const& keys_per_group = {}) {
  auto const batch = pipeline.of_keys(keys)(exec, batch_of(exec, schema, samples, keys, keys_per_group));
  auto const all = expand(exec, batch.view());
  return lists_of(all.view());
}

}  // namespace preprocessing_tests
