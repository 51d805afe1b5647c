// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plan/cost_samples.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE std::vector<table_profile> shards_of(vector_view<table_profile const> pool, table_combination const& combination) {
  std::vector<table_profile> shards;
  for (auto const& one : combination.tables) shards.push_back(profile_of_shard(pool[one.table], pool[one.table].rows, one.dim));
  return shards;
}

namespace detail {

TESSERA_INLINE void check_combinations(std::int64_t pool, combination_options const& options, std::int64_t number) {
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

TESSERA_INLINE void draw_tables(random_sequence& random, std::int64_t pool, std::vector<std::int64_t> const& dims,
                                std::vector<drawn_table>& into) {
  for (auto& one : into) {
    one.table = random.below(pool);
    one.dim = dims[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(dims.size())))];
  }
}

}  // namespace detail

TESSERA_INLINE table_combination draw_combination(vector_view<table_profile const> pool, combination_options const& options,
                                                  std::int64_t number) {
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

TESSERA_INLINE exchange_case draw_placement(vector_view<table_profile const> pool, placement_options const& options, std::int64_t number) {
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
