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
inline std::vector<table_profile> shards_of(vector_view<table_profile const> pool, table_combination const& combination) {
  std::vector<table_profile> shards;
  for (auto const& one : combination.tables) shards.push_back(profile_of_shard(pool[one.table], pool[one.table].rows, one.dim));
  return shards;
}

/// Draws combination `number` of a pool, whatever others were drawn: a uniform number of tables, each any of the pool with any of the dims,
/// all drawn again until they are within the limit. Source: Zha et al., MLSys 2023, Algorithms 3 and 4.
/// @throws tessera::error invalid_argument for an empty pool and options that cannot be; also where 100,000 draws were not within the limit,
/// naming the number of tables and the bytes of the least of them.
inline table_combination draw_combination(vector_view<table_profile const> pool, combination_options const& options, std::int64_t number);

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
inline exchange_case draw_placement(vector_view<table_profile const> pool, placement_options const& options, std::int64_t number);

namespace detail {

inline constexpr std::int64_t most_draws = 100'000;

inline void check_combinations(std::int64_t pool, combination_options const& options, std::int64_t number) {
  auto const refuse = [](char const* why, char const* what, std::int64_t value) {
    throw error(errc::invalid_argument, std::string("draw_combination: ") + why, {{what, value}});
  };
  if (pool < 1) refuse("a pool without tables", "tables", pool);
  if (options.least_tables < 1) refuse("at least one table", "least_tables", options.least_tables);
  if (options.most_tables < options.least_tables) refuse("fewer tables than the least", "most_tables", options.most_tables);
  if (options.dims.empty()) refuse("no dims", "dims", 0);
  if (options.batches.empty()) refuse("no batches", "batches", 0);
  for (auto const dim : options.dims)
    if (dim < 1) refuse("a dim below 1", "dim", dim);
  for (auto const batch : options.batches)
    if (batch < 1) refuse("a batch without samples", "batch", batch);
  if (number < 0) refuse("a negative number", "number", number);
}

[[noreturn]] inline void no_room(char const* call, std::size_t tables, std::int64_t least_bytes, std::int64_t limit_bytes) {
  throw error(errc::invalid_argument, std::string(call) + ": no draw was within the limit",
              {{"draws", most_draws}, {"tables", tables}, {"least bytes", least_bytes}, {"limit_bytes", limit_bytes}});
}

// Tables without regard to a limit; the number of them is that of `into`.
inline void draw_tables(random_sequence& random, std::int64_t pool, std::vector<std::int64_t> const& dims, std::vector<drawn_table>& into) {
  for (auto& one : into) {
    one.table = random.below(pool);
    one.dim = dims[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(dims.size())))];
  }
}

}  // namespace detail

inline table_combination draw_combination(vector_view<table_profile const> pool, combination_options const& options, std::int64_t number) {
  detail::check_combinations(pool.size(), options, number);
  detail::random_sequence random(options.seed, static_cast<std::uint64_t>(number), 4);
  table_combination drawn;
  drawn.batch_samples = options.batches[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(options.batches.size())))];
  drawn.tables.resize(static_cast<std::size_t>(options.least_tables + random.below(options.most_tables - options.least_tables + 1)));
  std::int64_t least = -1;
  for (std::int64_t draw = 0; draw < detail::most_draws; ++draw) {
    detail::draw_tables(random, pool.size(), options.dims, drawn.tables);
    std::int64_t bytes = 0;
    for (auto const& one : drawn.tables) bytes += options.bytes_of(pool[one.table].rows, one.dim);
    if (bytes <= options.limit_bytes) return drawn;
    least = least < 0 ? bytes : std::min(least, bytes);
  }
  detail::no_room("draw_combination", drawn.tables.size(), least, options.limit_bytes);
}

inline exchange_case draw_placement(vector_view<table_profile const> pool, placement_options const& options, std::int64_t number) {
  auto const& of_tables = options.tables;
  detail::check_combinations(pool.size(), of_tables, number);
  if (options.devices < 1) throw error(errc::invalid_argument, "draw_placement: at least one device", {{"devices", options.devices}});
  if (!(options.most_skew_ms >= 0) || !std::isfinite(options.most_skew_ms))
    throw error(errc::invalid_argument, "draw_placement: a skew that is negative or not finite", {{"most_skew_ms", options.most_skew_ms}});
  detail::random_sequence random(of_tables.seed, static_cast<std::uint64_t>(number), 5);
  auto const devices = static_cast<std::size_t>(options.devices);
  exchange_case drawn;
  drawn.batch_samples = of_tables.batches[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(of_tables.batches.size())))];
  auto const skew_ms = random.uniform() * options.most_skew_ms;
  for (std::size_t d = 0; d < devices; ++d) drawn.start_ms.push_back(std::round(random.uniform() * skew_ms * 1000) / 1000);
  auto const first = *std::min_element(drawn.start_ms.begin(), drawn.start_ms.end());
  for (auto& start : drawn.start_ms) start = std::round((start - first) * 1000) / 1000;
  auto const greedy = random.uniform();
  std::vector<drawn_table> tables(
      static_cast<std::size_t>(of_tables.least_tables + random.below(of_tables.most_tables - of_tables.least_tables + 1)));
  std::vector<std::int64_t> bytes(devices);
  std::vector<std::size_t> with_room;
  std::int64_t least = -1;
  for (std::int64_t draw = 0; draw < detail::most_draws; ++draw) {
    detail::draw_tables(random, pool.size(), of_tables.dims, tables);
    std::stable_sort(tables.begin(), tables.end(), [](auto const& a, auto const& b) { return a.dim > b.dim; });
    drawn.dims.assign(devices, 0);
    bytes.assign(devices, 0);
    std::int64_t total = 0;
    bool all_placed = true;
    for (auto const& one : tables) {
      auto const of_table = of_tables.bytes_of(pool[one.table].rows, one.dim);
      total += of_table;
      with_room.clear();
      for (std::size_t d = 0; d < devices; ++d)
        if (of_table <= of_tables.limit_bytes - bytes[d]) with_room.push_back(d);
      auto const is_greedy = random.uniform() < greedy;
      if (!(all_placed = all_placed && !with_room.empty())) continue;
      auto const device =
          is_greedy ? *std::min_element(with_room.begin(), with_room.end(), [&](auto a, auto b) { return drawn.dims[a] < drawn.dims[b]; })
                    : with_room[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(with_room.size())))];
      drawn.dims[device] += one.dim;
      bytes[device] += of_table;
    }
    if (all_placed) return drawn;
    least = least < 0 ? total : std::min(least, total);
  }
  detail::no_room("draw_placement", tables.size(), least, of_tables.limit_bytes);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
