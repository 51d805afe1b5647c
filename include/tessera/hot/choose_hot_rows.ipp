// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/hot/choose_hot_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE std::vector<rows_of_count> count_histogram(table_accesses const& accesses) {
  constexpr std::int64_t counted_apart = 1 << 16;
  std::vector<std::int64_t> rows(counted_apart), frequent;
  for (std::int64_t i = 0; i < accesses.size(); ++i)
    if (auto const count = accesses.count(i); count < counted_apart)
      ++rows[static_cast<std::size_t>(count)];
    else
      frequent.push_back(count);
  std::sort(frequent.begin(), frequent.end(), std::greater<>());
  std::vector<rows_of_count> histogram;
  for (auto const count : frequent)
    if (histogram.empty() || histogram.back().count != count)
      histogram.push_back({count, 1});
    else
      ++histogram.back().rows;
  for (auto count = counted_apart - 1; count > 0; --count)
    if (auto const n = rows[static_cast<std::size_t>(count)]; n > 0) histogram.push_back({count, n});
  return histogram;
}

namespace detail {

TESSERA_INLINE void check_profile(char const* call, access_profile const& profile, std::vector<table_spec> const& specs) {
  auto const refuse = [&](char const* what, std::size_t table) {
    throw error(errc::incompatible, std::string(call) + ": a profile of other tables", {{"table", table}, {"what differs", what}});
  };
  if (profile.tables.size() != specs.size()) refuse("number of tables", profile.tables.size());
  for (std::size_t t = 0; t < specs.size(); ++t) {
    auto const& accesses = profile.tables[t];
    if (accesses.table().id != specs[t].table.id) refuse("id", t);
    if (accesses.slots_are_ids() != specs[t].slots_are_ids) refuse("whether ids are rows", t);
    if (specs[t].slots_are_ids && accesses.size() != specs[t].table.rows) refuse("rows", t);
  }
}

TESSERA_INLINE bool is_small(table_spec const& spec, hot_row_options const& options) {
  return spec.slots_are_ids && spec.table.rows * spec.row_bytes(spec.table.dim) < options.small_table_bytes;
}

TESSERA_INLINE double percent_of(std::int64_t count, std::int64_t accesses) noexcept {
  return 100 * static_cast<double>(count) / static_cast<double>(accesses);
}

TESSERA_INLINE void check_hot_row_options(char const* call, hot_row_options const& options) {
  if (!(options.percent >= 0))
    throw error(errc::invalid_argument, std::string(call) + ": a threshold is a share of a table's accesses",
                {{"percent", options.percent}});
  if (options.budget_bytes < 0 || options.small_table_bytes < 0)
    throw error(errc::invalid_argument, std::string(call) + ": negative bytes",
                {{"budget_bytes", options.budget_bytes}, {"small_table_bytes", options.small_table_bytes}});
}

TESSERA_INLINE double lowest_percent(access_profile const& profile, std::vector<table_spec> const& specs, std::int64_t room,
                                     hot_row_options const& options) {
  std::vector<std::pair<double, std::int64_t>> steps;  // threshold, and the bytes of rows that it adds
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (is_small(specs[t], options)) continue;
    auto const row_bytes = specs[t].row_bytes(specs[t].table.dim), all = profile.tables[t].accesses();
    for (auto const& [count, rows] : count_histogram(profile.tables[t])) steps.emplace_back(percent_of(count, all), rows * row_bytes);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  auto lowest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < steps.size();) {
    auto const percent = steps[i].first;
    for (; i < steps.size() && steps[i].first == percent; ++i) room -= steps[i].second;
    if (room < 0) break;
    lowest = percent;
  }
  return lowest;
}

}  // namespace detail

TESSERA_INLINE std::int64_t hot_row_cutoff(table_accesses const& accesses, double percent) noexcept {
  auto const all = accesses.accesses();
  if (all == 0 || !(percent <= 100)) return std::numeric_limits<std::int64_t>::max();
  auto cutoff = std::max<std::int64_t>(1, static_cast<std::int64_t>(percent / 100 * static_cast<double>(all)) - 1);
  while (detail::percent_of(cutoff, all) < percent) ++cutoff;  // at most a few, by rounding
  return cutoff;
}

TESSERA_INLINE hot_rows choose_hot_rows(host_exec const& exec, access_profile const& profile, std::vector<table_spec> const& specs,
                                        hot_row_options const& options) {
  detail::check_hot_row_options("choose_hot_rows", options);
  detail::check_profile("choose_hot_rows", profile, specs);
  std::int64_t small = 0;
  for (auto const& spec : specs)
    if (detail::is_small(spec, options)) small += spec.table.rows * spec.row_bytes(spec.table.dim);
  if (small > options.budget_bytes)
    throw error(errc::invalid_argument, "choose_hot_rows: a budget below the bytes of the small tables",
                {{"budget_bytes", options.budget_bytes}, {"small tables", small}});

  hot_rows hot;
  hot.percent = options.percent > 0 ? options.percent : detail::lowest_percent(profile, specs, options.budget_bytes - small, options);
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (detail::is_small(specs[t], options)) {
      hot.tables.push_back(table_hot_rows::all_of(specs[t].table));
      continue;
    }
    auto const& accesses = profile.tables[t];
    auto const cutoff = hot_row_cutoff(accesses, hot.percent);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < accesses.size(); ++i)
      if (accesses.count(i) >= cutoff) ids.push_back(accesses.id(i));
    std::sort(ids.begin(), ids.end());
    hot.tables.push_back(table_hot_rows::some_of(exec, specs[t].table, specs[t].slots_are_ids, std::move(ids)));
  }
  if (auto const bytes = hot.row_bytes(specs); bytes > options.budget_bytes)
    throw error(errc::invalid_argument, "choose_hot_rows: a budget below the bytes of the rows above the threshold",
                {{"budget_bytes", options.budget_bytes}, {"percent", options.percent}, {"bytes", bytes}});
  return hot;
}

TESSERA_INLINE std::vector<hot_threshold> hot_thresholds(access_profile const& profile, std::vector<table_spec> const& specs,
                                                         std::vector<double> const& percents, hot_row_options const& options) {
  detail::check_hot_row_options("hot_thresholds", options);
  detail::check_profile("hot_thresholds", profile, specs);
  for (auto const percent : percents)
    if (!(percent >= 0))
      throw error(errc::invalid_argument, "hot_thresholds: a threshold is a share of a table's accesses", {{"percent", percent}});
  std::vector<hot_threshold> thresholds;
  thresholds.reserve(percents.size());
  for (auto const percent : percents) thresholds.push_back({.percent = percent});
  std::int64_t all_rows = 0, all_accesses = 0;
  std::vector<std::int64_t> accesses_of(percents.size());
  for (std::size_t t = 0; t < specs.size(); ++t) {
    auto const& accesses = profile.tables[t];
    auto const row_bytes = specs[t].row_bytes(specs[t].table.dim);
    all_rows += accesses.size();
    all_accesses += accesses.accesses();
    auto const histogram = count_histogram(accesses);
    for (std::size_t p = 0; p < percents.size(); ++p) {
      std::int64_t rows = 0, read = 0;
      if (detail::is_small(specs[t], options)) {
        rows = accesses.size();
        read = accesses.accesses();
      } else {
        auto const cutoff = hot_row_cutoff(accesses, percents[p]);
        for (auto const& step : histogram) {
          if (step.count < cutoff) break;
          rows += step.rows;
          read += step.rows * step.count;
        }
      }
      thresholds[p].rows += rows;
      thresholds[p].bytes += rows * row_bytes;
      accesses_of[p] += read;
    }
  }
  auto const share = [](std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  for (std::size_t p = 0; p < percents.size(); ++p) {
    thresholds[p].share_of_rows = share(thresholds[p].rows, all_rows);
    thresholds[p].share_of_accesses = share(accesses_of[p], all_accesses);
  }
  return thresholds;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
