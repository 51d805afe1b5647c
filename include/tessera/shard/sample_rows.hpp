// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/featured_tables.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/pooled_argmax.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>
#include <tessera/tensor/rows_from.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Which distinct row each sample has, of batches whose gradients travel for all samples. It goes to the ranks that hold the tables as keys
/// behind those of the batch, one each. A sample's row of such a key has
///
///   pooled       the number of its distinct row; nothing where every sample has a row of its own
///   sequences    the places of its values among those of the distinct rows
///
/// There the ids that came are expanded to all samples, so that gradients are summed as those of a batch without groups. Memory is kept from
/// batch to batch.
class sample_rows {
 public:
  /// Rows and places are below it.
  static constexpr std::int64_t row_bound = (std::int64_t{1} << 32) - 2;

  /// The batch's distinct rows, and these keys behind them: without rows, where it does not learn. @pre inverses name rows. The view lasts
  /// until the next call. @throws tessera::error out_of_range for rows or values of a key beyond `row_bound`
  keyed_jagged_view<std::int64_t const> behind(host_exec const& exec, inverse_keyed_jagged_view<std::int64_t const> batch,
                                               vector_view<table_feature const> features, bool learns);

  /// The distinct rows of all ranks, where `all` has those and then as many keys of samples' rows. Keys without rows fill up to `least_keys`,
  /// and likewise matrices in `vectors()`. Both views last until the next call.
  keyed_jagged_view<std::int64_t const> distinct(keyed_jagged_view<std::int64_t const> all, vector_view<matrix_view<float> const> out,
                                                 std::int64_t least_keys);
  /// Where the vectors of these rows go.
  vector_view<matrix_view<float> const> vectors() const noexcept { return vectors_; }

  /// What a lookup of all samples would have saved, after one of distinct rows has saved `of_rows`. `features` and `dim_of(key)` are those
  /// of the keys of distinct rows. @throws tessera::error incompatible where a rank sent rows that there are not
  template <class DimOf>
  local_tables_saved& expand(host_exec const& exec, local_tables_saved const& of_rows, vector_view<table_feature const> features,
                             DimOf const& dim_of);
  /// The same again.
  local_tables_saved& expanded() noexcept { return expanded_; }
  local_tables_saved const& expanded() const noexcept { return expanded_; }
  /// The gradients of all samples among those that came.
  vector_view<matrix_view<float const> const> gradients(vector_view<matrix_view<float const> const> all);

  std::size_t bytes() const noexcept {
    return values_.capacity_bytes() + weights_.capacity_bytes() + offsets_.capacity_bytes() + ids_.bytes() + expanded_.bytes();
  }

 private:
  static std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  // Of a batch of this rank.
  buffer<std::int64_t> values_, offsets_;
  buffer<float> weights_;
  std::vector<std::int64_t> first_row_, first_value_;

  // Of what came.
  std::vector<std::int64_t> first_distinct_row_;
  std::vector<matrix_view<float>> vectors_;
  std::vector<matrix_view<float const>> gradients_;
  keyed_jagged_view<std::int64_t const> rows_of_samples_;  // (keys that came,)
  keyed_jagged<> ids_;                                     // of all samples
  local_tables_saved expanded_;
};

template <class DimOf>
local_tables_saved& sample_rows::expand(host_exec const& exec, local_tables_saved const& of_rows, vector_view<table_feature const> features,
                                        DimOf const& dim_of) {
  auto const distinct = of_rows.batch.distinct;
  auto const came = rows_of_samples_.keys;
  auto const refuse = [](std::int64_t key, std::int64_t sample) {
    throw error(errc::incompatible, "sharded_tables: rows of samples that cannot be read", {{"key", key}, {"sample", sample}});
  };
  buffer<std::int64_t> samples(exec, distinct.keys);
  for (std::int64_t key = 0; key < distinct.keys; ++key) samples[key] = key < came ? rows_of_samples_.rows(key) : 0;
  // The distinct row of a sample that pools.
  auto const row_of = [&](std::int64_t key, std::int64_t sample) {
    auto const rows = rows_of_samples_.key(key);
    auto const row = rows.size() == 0 ? sample : rows.length(sample) == 1 ? rows.values[rows.begin_of(sample)] : -1;
    if (row < 0 || row >= distinct.rows(key)) refuse(key, sample);
    return row;
  };
  auto const values_of = [&](std::int64_t key, std::int64_t sample) -> value_range<> {
    auto const bags = distinct.key(key);
    if (!features[key].sequence) {
      auto const row = row_of(key, sample);
      return {bags.begin_of(row), bags.length(row)};
    }
    auto const places = rows_of_samples_.key(key);
    auto const first = places.begin_of(sample), length = places.length(sample);
    for (std::int64_t i = 0; i < length; ++i)
      if (places.values[first + i] != places.values[first] + i) refuse(key, sample);
    if (length > 0 && (places.values[first] < 0 || places.values[first] > bags.size() - length)) refuse(key, sample);
    return {length == 0 ? 0 : bags.offsets[0] + places.values[first], length};
  };
  rows_from_options const options{{}, "sharded_tables"};
  expanded_.clear();
  ids_ = rows_from(exec, distinct, samples.view(), values_of, options);
  auto const batch = std::as_const(ids_).view();
  expanded_.slots.resize(exec, of_rows.slots.empty() ? 0 : batch.size());
  if (!of_rows.slots.empty()) {
    auto const slots = rows_from(exec, distinct.with_values(of_rows.slots.data()), samples.view(), values_of, options);
    std::copy_n(slots.view().values, batch.size(), expanded_.slots.data());
  }
  expanded_.argmax.resize(exec, features, batch, dim_of);
  if (expanded_.argmax.size() > 0)
    exec.run(distinct.keys, [&](std::int64_t key) {
      auto const dim = features[key].is_largest() ? dim_of(key) : 0;
      for (std::int64_t sample = 0; sample < (dim > 0 ? samples[key] : 0); ++sample)
        std::copy_n(of_rows.argmax.of(key) + row_of(key, sample) * dim, dim, expanded_.argmax.of(key) + sample * dim);
    });
  expanded_.batch.distinct = batch;
  expanded_.is_begun = expanded_.is_finished = true;
  return expanded_;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/shard/sample_rows.ipp>
#endif
