// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/shard/sample_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE keyed_jagged_view<std::int64_t const> sample_rows::behind(host_exec const& exec,
                                                                         inverse_keyed_jagged_view<std::int64_t const> batch,
                                                                         vector_view<table_feature const> features, bool learns) {
  auto const distinct = batch.distinct;
  auto const keys = distinct.keys, base = distinct.first_value(), values = distinct.size();
  first_row_.assign(at(2 * keys + 1), 0);
  first_value_.assign(at(keys + 1), values);
  for (std::int64_t key = 0; key < keys; ++key) {
    auto const inverse = batch.inverse(key);
    auto const bags = distinct.key(key);
    if (std::max(bags.rows, bags.size()) >= row_bound)
      throw error(errc::out_of_range, "sharded_tables: rows that expanded sums cannot count",
                  {{"key", key}, {"rows", bags.rows}, {"values", bags.size()}, {"most", row_bound - 1}});
    std::int64_t count = 0;
    if (learns && features[key].sequence)
      count = featured_tables::expanded_size(batch, key);
    else if (learns)
      count = inverse.size();
    first_row_[at(key + 1)] = distinct.first_row[key + 1] - distinct.first_row[0];
    first_value_[at(key + 1)] = first_value_[at(key)] + count;
  }
  for (std::int64_t key = 0; key < keys; ++key) first_row_[at(keys + key + 1)] = first_row_[at(keys + key)] + (learns ? batch.samples : 0);
  offsets_.resize(exec, first_row_.back() + 1);
  offsets_[0] = 0;
  bool const has_more = first_value_.back() > values;  // else those of the batch serve
  values_.resize(exec, has_more ? first_value_.back() : 0);
  weights_.resize(exec, has_more && distinct.weighted() ? values : 0);
  for_each_piece(exec, has_more ? values : 0, 1 << 14, [&](std::int64_t first, std::int64_t last) {
    std::copy_n(distinct.values + base + first, last - first, values_.data() + first);
    if (distinct.weighted()) std::copy_n(distinct.weights + base + first, last - first, weights_.data() + first);
  });
  exec.run(2 * keys, [&](std::int64_t number) {
    auto const key = number % keys;
    auto const bags = distinct.key(key);
    auto* const ends = offsets_.data() + first_row_[at(number)] + 1;
    if (number < keys) {
      for (std::int64_t row = 0; row < bags.rows; ++row) ends[row] = bags.end_of(row) - base;
      return;
    }
    auto const inverse = batch.inverse(key);
    auto end = first_value_[at(key)];
    for (std::int64_t i = 0; i < (learns ? batch.samples : 0); ++i) {
      auto const row = inverse.empty() ? i : inverse[i];
      if (features[key].sequence)
        for (auto p = bags.begin_of(row); p < bags.end_of(row); ++p) values_[end++] = p - bags.offsets[0];
      else if (!inverse.empty())
        values_[end++] = row;
      ends[i] = end;
    }
  });
  auto const* const own_weights = distinct.weighted() ? distinct.weights + base : nullptr;
  return {has_more ? values_.data() : distinct.values + base, has_more && distinct.weighted() ? weights_.data() : own_weights,
          offsets_.data(), first_row_.data(), 2 * keys};
}

TESSERA_INLINE keyed_jagged_view<std::int64_t const> sample_rows::distinct(keyed_jagged_view<std::int64_t const> all,
                                                                           vector_view<matrix_view<float> const> out,
                                                                           std::int64_t least_keys) {
  auto const came = all.keys / 2, keys = std::max(came, least_keys);
  rows_of_samples_ = all.slice_keys(came, came);
  first_distinct_row_.assign(all.first_row, all.first_row + came + 1);
  first_distinct_row_.resize(at(keys + 1), first_distinct_row_.back());
  vectors_.assign(out.begin(), out.begin() + came);
  for (auto key = came; key < keys; ++key) vectors_.push_back({nullptr, 0, out[key % came].columns()});
  return {all.values, all.weights, all.offsets, first_distinct_row_.data(), keys};
}

TESSERA_INLINE vector_view<matrix_view<float const> const> sample_rows::gradients(vector_view<matrix_view<float const> const> all) {
  gradients_.assign(all.begin() + rows_of_samples_.keys, all.end());
  for (auto key = gradients_.size(); key < vectors_.size(); ++key) gradients_.push_back(vectors_[key]);
  return gradients_;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
