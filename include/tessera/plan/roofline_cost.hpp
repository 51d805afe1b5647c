// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How fast a device moves bytes, and of how many bags devices exchange vectors. Hosts have neighbouring devices, the last one perhaps
/// fewer.
struct device_rates {
  double memory_bytes_per_second = 0;    ///< between the device and its memory, reads and writes together
  double exchange_bytes_per_second = 0;  ///< that a device sends to other hosts, and at the same time receives
  double bags = 65536;                   ///< of a batch, on all devices together
  std::int64_t devices_of_host = 1;
  double host_bytes_per_second = 0;  ///< as between hosts, of devices of one host, at the same time; 0: the rate between hosts
};

/// The costs that counted bytes have at a device's rates: no device is faster, where rows do not stay in its caches between batches.
///
/// Computation moves each distinct row of a batch once forward, and twice backward with its state. It writes the vectors of the distinct
/// bags, reads their gradients, and reads the ids twice. In an exchange each device has a share of the bags, all of one size. It is done no
/// earlier than its own bytes are through, inside the host and between hosts at the same time, and than those that the last device to start
/// sends it.
class roofline_cost {
 public:
  /// @throws tessera::error invalid_argument, naming field and value, for a rate that is not positive (inside hosts: that is negative), for
  /// negative bags, and for less than one device of a host.
  explicit roofline_cost(device_rates const& rates) : rates_(rates) {
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

  static constexpr std::int64_t width() noexcept { return 1; }
  static constexpr std::int64_t devices() noexcept { return 0; }
  device_rates const& rates() const noexcept { return rates_; }

  /// The bytes that a shard moves for a batch, forward and backward. @throws tessera::error as `memory_of_shard`.
  static double moved_bytes(table_profile const& shard) {
    auto const state = 4 * static_cast<double>(detail::state_layout_of(shard).width(shard.dim));
    auto const row = static_cast<double>(detail::stored_row_bytes(shard));
    // Sums are rounded in one way, whatever the compiler joins: equal plans have equal costs, bit for bit.
    return std::fma(distinct_rows_of_batch(shard), 3 * row + 2 * state,
                    std::fma(8 * static_cast<double>(shard.dim), shard.distinct_bags, 16 * distinct_ids_of_batch(shard)));
  }

  /// See `cost_model`, here and below; (shards, 1). @throws tessera::error as `memory_of_shard`.
  void represent(vector_view<table_profile const> shards, matrix_view<float> representations) const {
    for (std::int64_t s = 0; s < shards.size(); ++s)
      representations(s, 0) = static_cast<float>(1e3 * moved_bytes(shards[s]) / rates_.memory_bytes_per_second);
  }
  void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const {
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = sums(d, 0);
  }
  void backward_ms(vector_view<float const> columns, vector_view<float> ms) const { through_ms(columns, column_ms(columns.size()), ms); }
  void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const {
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

 private:
  static float sum_of(vector_view<float const> columns) {
    float sum = 0;
    for (float const of : columns) sum += of;
    return sum;
  }
  // Calls f(first, end) for the devices of each host.
  template <class F>
  void for_each_host(std::int64_t devices, F const& f) const {
    for (std::int64_t first = 0; first < devices;) {
      auto const end = first + std::min(rates_.devices_of_host, devices - first);
      f(first, end);
      first = end;
    }
  }
  // The milliseconds that a device sends one column to each other device, of another host and of its own.
  struct message_ms {
    float between, inside;
  };
  message_ms column_ms(std::int64_t devices) const {
    auto const bytes = 4e3 * rates_.bags / static_cast<double>(devices);
    return {static_cast<float>(bytes / rates_.exchange_bytes_per_second), static_cast<float>(bytes / rates_.host_bytes_per_second)};
  }
  // When a device's own bytes are through, to and from other hosts, and to and from others of its host.
  void through_ms(vector_view<float const> columns, message_ms each, vector_view<float> ms) const {
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

  device_rates rates_;
};
static_assert(cost_model<roofline_cost>);

/// No plan of these tables costs less under the model, however they are cut and placed, if none is on all devices: the mean over devices of
/// what all of them do. Cut tables move as many bytes as whole ones, or more. @throws tessera::error as `check_table_profiles`, and for
/// less than one device.
inline double lower_bound_ms(roofline_cost const& model, vector_view<table_profile const> tables, std::int64_t devices) {
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
