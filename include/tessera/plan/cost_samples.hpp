// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/measure_exchange.hpp>
#include <tessera/plan/plan_random.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A table of a pool, with a dim of its own.
struct drawn_table {
  std::int64_t table = 0;  ///< its number in the pool
  std::int64_t dim = 0;

  friend bool operator==(drawn_table const&, drawn_table const&) = default;
};

/// Which combinations of tables are drawn. The defaults are the published ones. Source: Zha et al., MLSys 2023, Appendix F.
struct combination_options {
  std::int64_t least_tables = 1, most_tables = 15;
  std::vector<std::int64_t> dims{4, 8, 16, 32, 64, 128};
  std::vector<std::int64_t> batches{65'536};         ///< numbers of samples, of which each combination gets one
  std::int64_t limit_bytes = std::int64_t{4} << 30;  ///< of a combination's weights and states
  std::int64_t state_floats_per_row = 0;             ///< what the optimizer keeps of a row
  std::int64_t state_floats_per_element = 0;         ///< what it keeps of each element of a row
  random_seed seed{};

  std::int64_t bytes_of(std::int64_t rows, std::int64_t dim) const noexcept {
    return rows * (dim * (1 + state_floats_per_element) + state_floats_per_row) * static_cast<std::int64_t>(sizeof(float));
  }
};

/// Tables of one device, and the samples of a batch.
struct table_combination {
  std::vector<drawn_table> tables;
  std::int64_t batch_samples = 0;

  friend bool operator==(table_combination const&, table_combination const&) = default;
};

/// The shards of a combination: all rows of its tables, with its dims. @pre its tables are in the pool
std::vector<table_profile> shards_of(vector_view<table_profile const> pool, table_combination const& combination);

/// Draws combination `number` of a pool, whatever others were drawn: a uniform number of tables, each any of the pool with any of the dims,
/// all drawn again until they are within the limit. Source: Zha et al., MLSys 2023, Algorithms 3 and 4.
/// @throws tessera::error invalid_argument for an empty pool and options that cannot be; also where 100,000 draws were not within the limit,
/// naming the number of tables and the bytes of the least of them.
table_combination draw_combination(vector_view<table_profile const> pool, combination_options const& options, std::int64_t number);

/// Which placements are drawn: combinations of these options, each put on devices.
struct placement_options {
  combination_options tables{.least_tables = 10, .most_tables = 60};  ///< with the limit of a device
  std::int64_t devices = 4;
  double most_skew_ms = 20;  ///< of the starts of a forward exchange
};

/// Draws placement `number`, as an exchange to be measured: tables by descending dim go to the device of the least dims so far with a
/// probability that is drawn for each placement, else to any device; in both cases among those with room. Tables that found no room are drawn
/// again, all of them. Starts are uniform up to a skew that is itself uniform up to `most_skew_ms`; the first is 0, and all are whole
/// microseconds. Source: Zha et al., MLSys 2023, Algorithm 5.
/// @throws tessera::error as `draw_combination`, and invalid_argument for fewer than one device or a skew that is negative or not finite.
exchange_case draw_placement(vector_view<table_profile const> pool, placement_options const& options, std::int64_t number);

namespace detail {

inline constexpr std::int64_t most_draws = 100'000;

void check_combinations(std::int64_t pool, combination_options const& options, std::int64_t number);

[[noreturn]] inline void no_room(char const* call, std::size_t tables, std::int64_t least_bytes, std::int64_t limit_bytes) {
  throw error(errc::invalid_argument, std::string(call) + ": no draw was within the limit",
              {{"draws", most_draws}, {"tables", tables}, {"least bytes", least_bytes}, {"limit_bytes", limit_bytes}});
}

// Tables without regard to a limit; the number of them is that of `into`.
void draw_tables(random_sequence& random, std::int64_t pool, std::vector<std::int64_t> const& dims, std::vector<drawn_table>& into);

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/plan/cost_samples.ipp>
#endif
