// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// In place of a shard's device: each device has all of the table, a replica. Of one device, that device.
inline constexpr std::int64_t on_all_devices = -1;

/// Whether so many devices may all hold a table, at costs that a model knows.
///
/// Each device looks up its part of the batch, and updates all rows that the batch reads (`data_parallel`). A profile cannot say that a row
/// is updated and not read. So a part has to have as many ids as the batch has distinct rows, or more: tables are small, or their ids
/// repeat much. Hashed tables are left out, as all their ids would go to all devices. So are tables that nobody reads, and those of which
/// no address space holds a part's gradients by id.
inline bool may_be_on_all_devices(table_profile const& table, std::int64_t devices) noexcept;

/// What a device does for its replica, as the profile of a table that only this device has.
///
/// Its ids are a device's share of those of the distinct bags. Each of these ids has a vector, since gradients travel by id. So has each
/// distinct row of the batch: its sum comes from the device that added it up. `memory_of_shard` then has room for both.
/// @pre may_be_on_all_devices(table, devices), or one device: then it is the table
inline table_profile profile_of_replica(table_profile const& table, std::int64_t devices);

/// How many columns of a table on one device send as many bytes in the exchange of gradients as a replica does. A replica's vectors are not
/// exchanged at all.
///
/// A device sends the gradients of its ids to the devices that add them up, each those of a block of the table's rows. It sends the sums of
/// its own block to all others, with 8 bytes for a row's id. Gradients are taken to go to all blocks alike. Sums are those of the block
/// that may have most rows. As columns do, ids count without deduplication. @pre as above
inline double columns_of_replica(table_profile const& table, std::int64_t devices) noexcept;

namespace detail {

// The distinct rows of a batch, as far as its distinct bags have ids.
inline double updated_rows(table_profile const& table) noexcept {
  return std::min(distinct_ids_of_batch(table), distinct_rows_of_batch(table));
}

// Shares of bins whose rows are read `part` times as often, but once at least. A number of reads between the means of two bins is split
// between them, so that the mean stays.
inline std::array<double, table_profile::bins> scaled_access(std::array<double, table_profile::bins> const& access, double part) noexcept {
  std::array<double, table_profile::bins> scaled = {};
  for (std::size_t bin = 0; bin < access.size(); ++bin) {
    auto const reads = std::max(1.0, part * mean_reads(static_cast<std::int64_t>(bin)));
    std::size_t low = 0;
    while (low + 2 < scaled.size() && mean_reads(static_cast<std::int64_t>(low) + 1) <= reads) ++low;
    auto const from = mean_reads(static_cast<std::int64_t>(low)), to = mean_reads(static_cast<std::int64_t>(low) + 1);
    auto const above = std::clamp((reads - from) / (to - from), 0.0, 1.0);
    scaled[low] += access[bin] * (1 - above);
    scaled[low + 1] += access[bin] * above;
  }
  return scaled;
}

// The mean number of reads of a row.
inline double mean_of_access(std::array<double, table_profile::bins> const& access) noexcept {
  double reads = 0, shares = 0;
  for (std::size_t bin = 0; bin < access.size(); ++bin) {
    reads += access[bin] * mean_reads(static_cast<std::int64_t>(bin));
    shares += access[bin];
  }
  return shares > 0 ? reads / shares : 1;
}

}  // namespace detail

inline bool may_be_on_all_devices(table_profile const& table, std::int64_t devices) noexcept {
  auto const ids = distinct_ids_of_batch(table);
  auto const n = static_cast<double>(devices), rows = detail::updated_rows(table);
  bool const fits = (ids / n + rows) * static_cast<double>(table.dim) * 8 <= static_cast<double>(most_address_space_bytes);
  return !table.hashed && ids > 0 && rows * n <= ids && fits;
}

inline table_profile profile_of_replica(table_profile const& table, std::int64_t devices) {
  auto replica = table;
  if (devices == 1) return replica;
  auto const ids = distinct_ids_of_batch(table) / static_cast<double>(devices), rows = detail::updated_rows(table);
  replica.bags = replica.distinct_bags = ids + rows;
  replica.pooling_factor = ids / replica.bags;
  // Rows are read less often, the whole batch's rows by a part of its ids: the mean number of reads says how much.
  auto const wanted = ids / rows;
  double low = 0, high = 1;
  for (int step = 0; step < 60; ++step) {
    auto const middle = (low + high) / 2;
    (detail::mean_of_access(detail::scaled_access(table.access, middle)) < wanted ? low : high) = middle;
  }
  replica.access = detail::scaled_access(table.access, high);
  return replica;
}

inline double columns_of_replica(table_profile const& table, std::int64_t devices) noexcept {
  if (devices == 1) return static_cast<double>(table.dim);
  auto const dim = static_cast<double>(table.dim), n = static_cast<double>(devices);
  auto const rows_of_a_block = divide_up(table.rows, devices);
  auto const most_of_a_block = std::min(detail::updated_rows(table), static_cast<double>(rows_of_a_block));
  return (ids_of_batch(table) / n * dim + n * most_of_a_block * (dim + 2)) / table.bags;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
