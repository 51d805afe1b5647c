// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/hot/access_profile.hpp>
#include <tessera/hot/hot_rows.hpp>
#include <tessera/shard/table_spec.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// So many rows of a table were read so often.
struct rows_of_count {
  std::int64_t count = 0;
  std::int64_t rows = 0;

  friend bool operator==(rows_of_count const&, rows_of_count const&) = default;
};

/// How many rows of a table were read how often, the most frequent first. Rows that were never read are left out. The entries with at least a
/// threshold's count are its hot rows, so that one pass over the counts serves all thresholds.
std::vector<rows_of_count> count_histogram(table_accesses const& accesses);

/// Options of `choose_hot_rows`.
struct hot_row_options {
  std::int64_t budget_bytes =
      std::int64_t{512}
      << 20;  ///< of the hot rows with scale and optimizer state, on each worker; what finds them (`hot_rows::bytes`) is not counted
  /// A row is hot that gets so many percent of its table's accesses; 0: the lowest threshold whose rows fit into the budget.
  double percent = 0;
  std::int64_t small_table_bytes = std::int64_t{1}
                                   << 20;  ///< smaller tables, scale and state included, are hot as a whole where their ids are rows
};

/// Chooses the rows that each worker has a copy of.
///
///     auto const hot = choose_hot_rows(exec, profile, specs, {.budget_bytes = 512 << 20});
///
/// One threshold holds for all tables: a share of the table's own accesses. Rows that the profile never saw are cold. So are all rows of a
/// large table that was never read. Small hashed tables count as large, since new ids keep coming. Source: FAE, Sections 4.1 and 4.1.3.
/// @throws tessera::error invalid_argument for a budget that the small tables, or the rows of a threshold that was given, do not fit into; and
/// for a percentage that is negative or no number. incompatible for a profile of other tables.
hot_rows choose_hot_rows(host_exec const& exec, access_profile const& profile, std::vector<table_spec> const& specs,
                         hot_row_options const& options = {});

/// Returns the least count that makes a row hot at a threshold, in percent of the table's accesses: at least 1; the largest integer where no row is
/// hot. What `estimate_hot_rows` takes.
std::int64_t hot_row_cutoff(table_accesses const& accesses, double percent) noexcept;

/// What a threshold would make hot.
struct hot_threshold {
  double percent = 0;            ///< of a table's accesses
  std::int64_t rows = 0;         ///< that are hot
  std::int64_t bytes = 0;        ///< of these, with scale and state
  double share_of_rows = 0;      ///< of the rows of all tables; of hashed tables the ids that the profile has
  double share_of_accesses = 0;  ///< of all that the profile has
};

/// Returns what each threshold would make hot, (percents,), whatever the budget. `percents` are of a table's accesses; 0 makes each row hot that
/// was read. The small tables are always hot. Of the options, only `small_table_bytes` counts.
/// @throws tessera::error invalid_argument for a percentage or an option that is negative or no number; incompatible for a profile of other
/// tables.
std::vector<hot_threshold> hot_thresholds(access_profile const& profile, std::vector<table_spec> const& specs,
                                          std::vector<double> const& percents, hot_row_options const& options = {});

namespace detail {

// Refuses a profile of other tables than the specs are of.
void check_profile(char const* call, access_profile const& profile, std::vector<table_spec> const& specs);
// Whether a table is hot as a whole.
bool is_small(table_spec const& spec, hot_row_options const& options);
// What `hot_row_options::percent` compares with.
double percent_of(std::int64_t count, std::int64_t accesses) noexcept;
void check_hot_row_options(char const* call, hot_row_options const& options);
// The lowest threshold whose rows fit into `room` bytes beside the small tables; infinity where no row does.
double lowest_percent(access_profile const& profile, std::vector<table_spec> const& specs, std::int64_t room,
                      hot_row_options const& options);

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/hot/choose_hot_rows.ipp>
#endif
