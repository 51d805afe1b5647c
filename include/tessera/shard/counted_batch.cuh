// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/batch_counts.cuh>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>

/// Batches on devices, before their ids leave for other ranks.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// What ids of each feature are to be below (features,), or none: all ids travel.
template <device_execution Exec>
std::vector<std::int64_t> id_bounds_of(std::vector<basic_table_spec<Exec>> const& specs, std::vector<table_feature> const& features,
                                       out_of_range_ids out_of_range) {
  std::vector<std::int64_t> bounds;
  if (out_of_range != out_of_range_ids::refuse) return bounds;
  for (auto const& feature : features) {
    auto const& spec = specs[static_cast<std::size_t>(feature.table)];
    // Ids of hashed tables are those that bucket tables take.
    bounds.push_back(spec.slots_are_ids ? spec.table.rows : std::numeric_limits<std::int64_t>::max());
  }
  return bounds;
}

/// Counts a batch, and checks it for `source`, of rank `rank`. It calls `wait()`, and waits as `count_batch`.
/// @throws tessera::error as `count_batch`; shape_mismatch and invalid_argument for keys that are not those of the features; out_of_range for
/// an id, naming rank, feature, table, row, position and id
template <device_execution Exec, class Wait>
batch_counts counted_batch(Exec const& exec, std::string const& source, std::int64_t rank, std::vector<basic_table_spec<Exec>> const& specs,
                           std::vector<table_feature> const& features, std::vector<std::int64_t> const& id_bounds, std::int64_t sources,
                           batch_view const& batch, Wait const& wait) {
  auto const call = source + "::begin";
  check_keys(call.c_str(), vector_view<table_feature const>(features), batch.inverse_keyed(), sources);
  validate_batch(exec, batch.sparse);
  wait();
  auto counts = count_batch(exec, call.c_str(), batch.inverse_keyed(), id_bounds);
  if (counts.first_refused < 0) return counts;
  auto const key = counts.key_of(counts.first_refused);
  auto const place = counts.first_value + counts.first_refused;
  auto const bags = batch.sparse.key(key);
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(bags.rows + 1));
  exec.copy_out(offsets.data(), bags.offsets, offsets.size() * sizeof offsets[0]);
  auto const row = std::upper_bound(offsets.begin(), offsets.end(), place) - offsets.begin() - 1;
  auto const& table = specs[static_cast<std::size_t>(features[static_cast<std::size_t>(key)].table)].table;
  throw error(errc::out_of_range, source + ": id out of range",
              {{"rank", rank},
               {"feature", key},
               {"table", table.id.value},
               {"row", row},
               {"position", place - offsets[static_cast<std::size_t>(row)]},
               {"id", read_one(exec, batch.sparse.values + place)},
               {"rows", table.rows}});
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
