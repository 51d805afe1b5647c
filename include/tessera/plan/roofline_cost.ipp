// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plan/roofline_cost.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE roofline_cost::roofline_cost(device_rates const& rates) : rates_(rates) {
  auto const check = [](char const* field, double value, bool fits) {
    if (!fits || !std::isfinite(value))
      throw error(errc::invalid_argument, "roofline_cost: a rate that no device has", {{"field", field}, {"value", value}});
  };
  check("memory_bytes_per_second", rates.memory_bytes_per_second, rates.memory_bytes_per_second > 0);
  check("exchange_bytes_per_second", rates.exchange_bytes_per_second, rates.exchange_bytes_per_second > 0);
  check("bags", rates.bags, rates.bags >= 0);
  check("devices_of_host", static_cast<double>(rates.devices_of_host), rates.devices_of_host >= 1);
  check("host_bytes_per_second", rates.host_bytes_per_second, rates.host_bytes_per_second >= 0);
  if (rates_.host_bytes_per_second == 0) rates_.host_bytes_per_second = rates.exchange_bytes_per_second;
}

TESSERA_INLINE double roofline_cost::moved_bytes(table_profile const& shard) {
  auto const state = 4 * static_cast<double>(detail::state_layout_of(shard).width(shard.dim));
  auto const row = static_cast<double>(detail::stored_row_bytes(shard));
  // Sums are rounded in one way, whatever the compiler joins: equal plans have equal costs, bit for bit.
  return std::fma(distinct_rows_of_batch(shard), 3 * row + 2 * state,
                  std::fma(8 * static_cast<double>(shard.dim), shard.distinct_bags, 16 * distinct_ids_of_batch(shard)));
}

TESSERA_INLINE void roofline_cost::forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms,
                                              vector_view<float> ms) const {
  auto const each = column_ms(columns.size());
  through_ms(columns, each, ms);
  // When the last message of these devices may have come.
  auto const last_of = [&](std::int64_t first, std::int64_t end, float of_a_column) {
    auto last = -HUGE_VALF;
    for (auto d = first; d < end; ++d)
      if (columns[d] > 0) last = std::max(last, multiply_add(columns[d], of_a_column, starts_ms[d]));
    return last;
  };
  // The last messages from any two hosts: a host gets the first of another one.
  auto last = -HUGE_VALF, second = last;
  std::int64_t of_last = 0;
  for_each_host(columns.size(), [&](std::int64_t first, std::int64_t end) {
    auto const of_host = last_of(first, end, each.between);
    if (of_host > last) of_last = first;
    second = std::max(second, std::min(last, of_host));
    last = std::max(last, of_host);
  });
  for_each_host(columns.size(), [&](std::int64_t first, std::int64_t end) {
    auto const from_others = first == of_last ? second : last;
    auto const comes = end - first == 1 ? from_others : std::max(from_others, last_of(first, end, each.inside));
    for (auto d = first; d < end; ++d) ms[d] = std::max(ms[d], comes - starts_ms[d]);
  });
}

TESSERA_INLINE float roofline_cost::sum_of(vector_view<float const> columns) {
  float sum = 0;
  for (float const of : columns) sum += of;
  return sum;
}

TESSERA_INLINE void roofline_cost::through_ms(vector_view<float const> columns, message_ms each, vector_view<float> ms) const {
  auto const all = sum_of(columns);
  for_each_host(columns.size(), [&](std::int64_t first, std::int64_t end) {
    auto const of_host = sum_of(columns.slice(first, end - first));
    auto const others = static_cast<float>(columns.size() - (end - first)), mates = static_cast<float>(end - first - 1);
    auto const between = (all - of_host) * each.between;
    for (auto d = first; d < end; ++d)
      ms[d] =
          std::max({columns[d] * each.between * others, between, columns[d] * each.inside * mates, (of_host - columns[d]) * each.inside});
  });
}

TESSERA_INLINE double lower_bound_ms(roofline_cost const& model, vector_view<table_profile const> tables, std::int64_t devices) {
  detail::check_devices("lower_bound_ms", model, devices);
  check_table_profiles(tables);
  double bytes = 0, columns = 0;
  for (auto const& table : tables) {
    bytes += roofline_cost::moved_bytes(table);
    columns += static_cast<double>(table.dim);
  }
  auto const& rates = model.rates();
  auto const n = static_cast<double>(devices), of_host = static_cast<double>(std::min(rates.devices_of_host, devices));
  // Each exchange sends every column of all bags to all hosts but a device's own, and inside hosts, where none has fewer devices.
  auto const to_each = 4 * columns * rates.bags / n;
  auto const between = to_each * (n - of_host) / rates.exchange_bytes_per_second;
  auto const inside = std::fmod(n, of_host) == 0 ? to_each * (of_host - 1) / rates.host_bytes_per_second : 0;
  return 1e3 * (bytes / rates.memory_bytes_per_second + 2 * std::max(between, inside)) / n;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
