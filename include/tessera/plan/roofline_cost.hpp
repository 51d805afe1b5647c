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
  explicit roofline_cost(device_rates const& rates);

  static constexpr std::int64_t width() noexcept { return 1; }
  static constexpr std::int64_t devices() noexcept { return 0; }
  device_rates const& rates() const noexcept { return rates_; }

  /// The bytes that a shard moves for a batch, forward and backward. @throws tessera::error as `memory_of_shard`.
  static double moved_bytes(table_profile const& shard);

  /// See `cost_model`, here and below; (shards, 1). @throws tessera::error as `memory_of_shard`.
  void represent(vector_view<table_profile const> shards, matrix_view<float> representations) const {
    for (std::int64_t s = 0; s < shards.size(); ++s)
      representations(s, 0) = static_cast<float>(1e3 * moved_bytes(shards[s]) / rates_.memory_bytes_per_second);
  }
  void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const {
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = sums(d, 0);
  }
  void backward_ms(vector_view<float const> columns, vector_view<float> ms) const { through_ms(columns, column_ms(columns.size()), ms); }
  void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const;

 private:
  static float sum_of(vector_view<float const> columns);
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
  void through_ms(vector_view<float const> columns, message_ms each, vector_view<float> ms) const;

  device_rates rates_;
};
static_assert(cost_model<roofline_cost>);

/// No plan of these tables costs less under the model, however they are cut and placed, if none is on all devices: the mean over devices of
/// what all of them do. Cut tables move as many bytes as whole ones, or more. @throws tessera::error as `check_table_profiles`, and for
/// less than one device.
double lower_bound_ms(roofline_cost const& model, vector_view<table_profile const> tables, std::int64_t devices);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/plan/roofline_cost.ipp>
#endif
