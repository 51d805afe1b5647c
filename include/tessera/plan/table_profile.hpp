// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a planner knows of a table, or of a shard of one, and of the ids that a batch reads from it.
struct table_profile {
  static constexpr std::int64_t bins = 17;

  std::string name = {};
  std::int64_t rows = 0;      ///< at least 1
  std::int64_t dim = 0;       ///< elements of a row, at least 1
  double pooling_factor = 0;  ///< ids of a bag, in the mean
  /// Of the distinct rows of a batch, the share that it reads so often: in bin 0 once, in bin k > 0 from 2^(k-1) + 1 to 2^k times, in the
  /// last bin more than 2^15 times. All are 0 where a batch reads no row.
  std::array<double, bins> access = {};
  double bags = 65536;           ///< of the batch, on all devices together
  double distinct_bags = 65536;  ///< after deduplication, at most `bags`
  std::int64_t group = -1;       ///< features of a group are deduplicated together; -1: none
  std::int64_t tower = -1;       ///< -1: none
  /// How its elements are stored: the name of their type, float, float16, bfloat16, float8_e4m3, float8_e5m2 or scaled_int8.
  std::string row_format = "float";
  std::string optimizer = "sgd";  ///< the `name` of its row optimizer
  bool hashed = false;            ///< whether it is a `hash_table`, whose index takes memory too

  friend bool operator==(table_profile const&, table_profile const&) = default;
};

/// The most bytes of 64-bit machines' address spaces. No table's weights take more, as float.
inline constexpr std::int64_t most_address_space_bytes = std::int64_t{1} << 57;

/// Refuses a profile that no table can have.
/// @throws tessera::error invalid_argument naming table, field and value. It does so for a number that is negative or NaN, for less than
/// one row or element, and for more rows, or more vectors or ids of a batch, than an address space holds. It does so for shares of `access`
/// whose sum is neither 0 nor 1, to 0.001, and for more distinct bags than bags.
inline void check_table_profile(table_profile const& profile);
/// As above for each table. @throws tessera::error invalid_argument also for no tables.
inline void check_table_profiles(vector_view<table_profile const> tables);

/// The row format of all tables whose steps are measured: `compute_bench` has no other.
inline constexpr char const* measured_row_format = "float";

/// Refuses tables whose rows are stored or updated otherwise than those that costs are of. An empty name stands for any.
/// @throws tessera::error incompatible naming the table, the field, optimizer or row_format, and both names.
inline void check_row_kinds(vector_view<table_profile const> tables, std::string_view optimizer, std::string_view row_format);

/// The mean number of reads of the rows of a bin. Numbers of reads follow the law 1 / count within a bin. The last bin has no upper end,
/// and counts as if it had twice its lower end. @pre 0 <= bin < table_profile::bins
constexpr double mean_reads(std::int64_t bin) noexcept {
  if (bin < 2) return bin == 0 ? 1 : 2;
  auto const n = static_cast<double>(std::int64_t{1} << (bin - 1));  // numbers of reads that the bin is of: n + 1 … 2 n
  // The sum of 1 / c over them, by the Euler-Maclaurin formula.
  return n / (0.69314718055994530942 - 1 / (4 * n) + 1 / (16 * n * n) - 1 / (128 * n * n * n * n));
}

/// The samples of a batch that these tables are read by: the fewest bags of a table that has any, rounded. A table that several columns read
/// has a bag of each column in a sample, so that its bags are more. 0 where no table has a bag.
inline std::int64_t batch_samples_of(vector_view<table_profile const> tables) noexcept {
  double fewest = 0;
  for (auto const& table : tables)
    if (table.bags > 0 && (fewest == 0 || table.bags < fewest)) fewest = table.bags;
  return std::llround(fewest);
}

/// The ids of a batch.
constexpr double ids_of_batch(table_profile const& profile) noexcept { return profile.bags * profile.pooling_factor; }
/// The ids of a batch after deduplication: those of its distinct bags.
constexpr double distinct_ids_of_batch(table_profile const& profile) noexcept { return profile.distinct_bags * profile.pooling_factor; }

/// The `access` of a batch that reads its distinct rows so often; rows that are read 0 times do not count.
inline std::array<double, table_profile::bins> access_of_reads(vector_view<std::int64_t const> reads) noexcept(!checks_indices) {
  std::array<double, table_profile::bins> access = {};
  double distinct = 0;
  for (auto const count : reads) {
    if (count < 1) continue;
    std::size_t bin = 0;
    while (bin + 1 < access.size() && count > std::int64_t{1} << bin) ++bin;
    access[bin] += 1;
    distinct += 1;
  }
  for (auto& share : access) share /= std::max(distinct, 1.0);
  return access;
}

/// The distinct rows that a batch reads, counted from the means of the bins; at most its ids, and the rows of the table.
inline double distinct_rows_of_batch(table_profile const& profile) noexcept {
  double reads = 0, shares = 0;
  for (std::int64_t bin = 0; bin < table_profile::bins; ++bin) {
    reads += profile.access[static_cast<std::size_t>(bin)] * mean_reads(bin);
    shares += profile.access[static_cast<std::size_t>(bin)];
  }
  auto const ids = ids_of_batch(profile);
  return std::min({ids, static_cast<double>(profile.rows), shares > 0 ? ids * shares / reads : ids});
}

/// The profile of a shard: so many columns of so many rows. Each row is as often read as in the table, so that the shard's bags hold the
/// rows' share of ids. @pre 1 <= rows <= table.rows, 1 <= columns <= table.dim
inline table_profile profile_of_shard(table_profile const& table, std::int64_t rows, std::int64_t columns) {
  auto shard = table;
  shard.dim = columns;
  if (rows != table.rows) {
    shard.pooling_factor *= static_cast<double>(rows) / static_cast<double>(table.rows);
    shard.rows = rows;
  }
  return shard;
}

namespace detail {

[[noreturn]] inline void refuse_profile(table_profile const& profile, std::string const& field, double value, char const* what) {
  throw error(errc::invalid_argument, std::string("table_profile: ") + what, {{"table", profile.name}, {"field", field}, {"value", value}});
}

// The field's name in files.
inline std::string access_field(std::int64_t bin) { return "bin_" + std::to_string(bin); }

}  // namespace detail

inline void check_table_profile(table_profile const& profile) {
  auto const amount = [&](std::string const& field, double value) {
    if (!(value >= 0) || !std::isfinite(value)) detail::refuse_profile(profile, field, value, "a number is finite and not negative");
  };
  if (profile.rows < 1) detail::refuse_profile(profile, "row", static_cast<double>(profile.rows), "a table has at least one row");
  if (profile.dim < 1) detail::refuse_profile(profile, "dim", static_cast<double>(profile.dim), "a row has at least one element");
  if (static_cast<double>(profile.rows) * static_cast<double>(profile.dim) * 4 > static_cast<double>(most_address_space_bytes))
    detail::refuse_profile(profile, "row", static_cast<double>(profile.rows), "more rows than an address space holds");
  amount("pooling_factor", profile.pooling_factor);
  double shares = 0;
  for (std::int64_t bin = 0; bin < table_profile::bins; ++bin) {
    auto const share = profile.access[static_cast<std::size_t>(bin)];
    amount(detail::access_field(bin), share);
    shares += share;
  }
  if (shares > 0 && !(std::abs(shares - 1) <= 1e-3))
    detail::refuse_profile(profile, "bin_0 to bin_16", shares, "the shares of bins sum to 1, or all are 0");
  amount("bags", profile.bags);
  amount("distinct_bags", profile.distinct_bags);
  constexpr double most_of_a_batch = static_cast<double>(most_address_space_bytes) / 8;  // ids, or floats of vectors and gradients
  if (profile.bags * static_cast<double>(profile.dim) > most_of_a_batch)
    detail::refuse_profile(profile, "bags", profile.bags, "more vectors in a batch than an address space holds");
  if (profile.bags * profile.pooling_factor > most_of_a_batch)
    detail::refuse_profile(profile, "pooling_factor", profile.pooling_factor, "more ids in a batch than an address space holds");
  if (profile.distinct_bags > profile.bags)
    detail::refuse_profile(profile, "distinct_bags", profile.distinct_bags, "more distinct bags than bags");
  if (profile.group < -1)
    detail::refuse_profile(profile, "group", static_cast<double>(profile.group), "a group is a number from 0, or -1 for none");
  if (profile.tower < -1)
    detail::refuse_profile(profile, "tower", static_cast<double>(profile.tower), "a tower is a number from 0, or -1 for none");
}

inline void check_row_kinds(vector_view<table_profile const> tables, std::string_view optimizer, std::string_view row_format) {
  auto const compare = [](table_profile const& table, char const* field, std::string_view expected, std::string const& found) {
    if (!expected.empty() && found != expected)
      throw error(errc::incompatible, "costs of tables whose rows are stored or updated otherwise",
                  {{"table", table.name}, {"field", field}, {"expected", std::string(expected)}, {"found", found}});
  };
  for (auto const& table : tables) {
    compare(table, "optimizer", optimizer, table.optimizer);
    compare(table, "row_format", row_format, table.row_format);
  }
}

inline void check_table_profiles(vector_view<table_profile const> tables) {
  if (tables.empty()) throw error(errc::invalid_argument, "table_profile: there is at least one table", {{"tables", 0}});
  for (auto const& table : tables) check_table_profile(table);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
