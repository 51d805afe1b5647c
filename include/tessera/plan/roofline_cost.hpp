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

/// How fast a device moves bytes, and of how many bags devices exchange vectors.
struct device_rates {
  double memory_bytes_per_second = 0;    ///< between the device and its memory, reads and writes together
  double exchange_bytes_per_second = 0;  ///< that a device sends, and at the same time receives
  double bags = 65536;                   ///< of a batch, on all devices together
};

/// The costs that counted bytes have at a device's rates: no device is faster, where rows do not stay in its caches between batches.
///
/// Computation moves each distinct row of a batch once forward, and twice backward with its state. It writes the vectors of the distinct
/// bags, reads their gradients, and reads the ids twice. In an exchange each device has a share of the bags, all of one size. It is done no
/// earlier than its own bytes are through, and than those that the last device to start sends it.
class roofline_cost {
 public:
  /// @throws tessera::error invalid_argument, naming field and value, for a rate that is not positive, and for negative bags.
  explicit roofline_cost(device_rates const& rates) : rates_(rates) {
    auto const check = [](char const* field, double value, bool fits) {
      if (!fits || !std::isfinite(value))
        throw error(errc::invalid_argument, "roofline_cost: a rate that no device has", {{"field", field}, {"value", value}});
    };
    check("memory_bytes_per_second", rates.memory_bytes_per_second, rates.memory_bytes_per_second > 0);
    check("exchange_bytes_per_second", rates.exchange_bytes_per_second, rates.exchange_bytes_per_second > 0);
    check("bags", rates.bags, rates.bags >= 0);
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
  void backward_ms(vector_view<float const> columns, vector_view<float> ms) const {
    auto const all = sum_of(columns);
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = through(columns[d], all, columns.size());
  }
  void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const {
    auto const all = sum_of(columns);
    auto const of_a_column = message(1, columns.size());
    auto last = -HUGE_VALF;  // when the last message to a device may have come, from another one
    for (std::int64_t d = 0; d < ms.size(); ++d)
      if (columns[d] > 0) last = std::max(last, multiply_add(columns[d], of_a_column, starts_ms[d]));
    for (std::int64_t d = 0; d < ms.size(); ++d) {
      auto const own = through(columns[d], all, columns.size());
      ms[d] = columns.size() == 1 ? own : std::max(own, last - starts_ms[d]);
    }
  }

 private:
  static float sum_of(vector_view<float const> columns) {
    float sum = 0;
    for (float const of : columns) sum += of;
    return sum;
  }
  // What a device with so many columns sends to each other one.
  float message(float columns, std::int64_t devices) const {
    return columns * static_cast<float>(4e3 * rates_.bags / static_cast<double>(devices) / rates_.exchange_bytes_per_second);
  }
  float through(float columns, float all, std::int64_t devices) const {
    return std::max(message(columns, devices) * static_cast<float>(devices - 1), message(all - columns, devices));
  }

  device_rates rates_;
};
static_assert(cost_model<roofline_cost>);

/// No plan of these tables costs less under the model, however they are cut and placed: the mean over devices of what all of them do. Cut
/// tables move as many bytes as whole ones, or more. @throws tessera::error as `check_table_profiles`, and for less than one device.
inline double lower_bound_ms(roofline_cost const& model, vector_view<table_profile const> tables, std::int64_t devices) {
  detail::check_devices("lower_bound_ms", model, devices);
  check_table_profiles(tables);
  double bytes = 0, columns = 0;
  for (auto const& table : tables) {
    bytes += roofline_cost::moved_bytes(table);
    columns += static_cast<double>(table.dim);
  }
  auto const& rates = model.rates();
  auto const n = static_cast<double>(devices);
  // Each exchange sends every column of all bags but a device's own.
  auto const sent = 4 * columns * rates.bags * (n - 1) / n;
  return 1e3 * (bytes / rates.memory_bytes_per_second + 2 * sent / rates.exchange_bytes_per_second) / n;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
