// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The profile of a table that these keys of a batch read: `table` with the batch's bags, pooling factor and bins.
///
/// Bags are those of all samples, one a key, and ids count as often as samples have them. Distinct bags are the rows that the batch keeps:
/// of a key in a group its distinct rows, else a row a sample. `group` is the place of the keys' group, and -1 where they have several or
/// none.
/// @throws tessera::error invalid_argument for no keys; out_of_range for a key that the batch lacks, and for an id that the table lacks.
/// Both name the table. @pre the batch is in the host's memory
inline table_profile profile_of_keys(table_profile table, inverse_keyed_jagged_view<std::int64_t const> batch,
                                     vector_view<std::int64_t const> keys);

namespace detail {

// The group that a key is in; -1: none.
inline std::int64_t group_of_key(inverse_keyed_jagged_view<std::int64_t const> batch, std::int64_t key) noexcept {
  for (std::int64_t g = 0; g < batch.groups.size(); ++g)
    if (auto const& group = batch.groups[g]; key >= group.first_key && key < group.first_key + group.keys) return g;
  return -1;
}

}  // namespace detail

inline table_profile profile_of_keys(table_profile table, inverse_keyed_jagged_view<std::int64_t const> batch,
                                     vector_view<std::int64_t const> keys) {
  if (keys.empty()) throw error(errc::invalid_argument, "profile_of_keys: no keys", {{"table", table.name}});
  std::vector<std::pair<std::int64_t, std::int64_t>> reads;  // id, and how often a row of it is there
  std::vector<std::int64_t> samples_of_row;
  double ids = 0;
  table.bags = table.distinct_bags = 0;
  table.group = keys[0] < 0 || keys[0] >= batch.keys() ? -1 : detail::group_of_key(batch, keys[0]);
  for (auto const key : keys) {
    if (key < 0 || key >= batch.keys())
      throw error(errc::out_of_range, "profile_of_keys: no such key", {{"table", table.name}, {"key", key}, {"keys", batch.keys()}});
    if (detail::group_of_key(batch, key) != table.group) table.group = -1;
    auto const rows = batch.distinct.key(key);
    auto const inverse = batch.inverse(key);
    samples_of_row.assign(static_cast<std::size_t>(rows.rows), inverse.empty() ? 1 : 0);
    for (auto const row : inverse) ++samples_of_row[static_cast<std::size_t>(row)];
    table.bags += static_cast<double>(batch.samples);
    table.distinct_bags += static_cast<double>(rows.rows);
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      auto const samples = samples_of_row[static_cast<std::size_t>(r)];
      for (auto const id : rows.row(r)) {
        if (id < 0 || id >= table.rows)
          throw error(errc::out_of_range, "profile_of_keys: an id that the table lacks",
                      {{"table", table.name}, {"key", key}, {"id", id}, {"rows", table.rows}});
        reads.emplace_back(id, samples);
        ids += static_cast<double>(samples);
      }
    }
  }
  table.pooling_factor = table.bags > 0 ? ids / table.bags : 0;
  std::sort(reads.begin(), reads.end());
  std::vector<std::int64_t> counts;  // of each id
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (i == 0 || reads[i].first != reads[i - 1].first) counts.push_back(0);
    counts.back() += reads[i].second;
  }
  table.access = access_of_reads(counts);
  return table;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
