// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The features of a device in an exchange, in this order. All of them are the same whatever number the device has.
inline constexpr char const* exchange_feature_names[] = {"sent_mb", "received_mb",  "most_sent_mb", "mean_sent_mb",
                                                         "wait_ms", "mean_wait_ms", "most_wait_ms"};
/// How many they are.
inline constexpr std::int64_t exchange_feature_count = 7;

/// Writes the features of all devices, (devices, exchange_feature_count).
///
/// `dims` (devices,): the sum of the dims of each device's tables. `start_ms` (devices,): when each starts, from any beginning; or empty where
/// all start together. A device sends each other its vectors of the samples there, in megabytes of floats. Its wait is the time until the
/// last device starts. The number of devices is no feature: networks take a number of few values for the name of a kind, and then know
/// nothing of others. @pre as many starts as dims, or none
inline void write_exchange_features(vector_view<std::int64_t const> dims, vector_view<double const> start_ms, std::int64_t batch_samples,
                                    std::vector<float>& features) {
  auto const devices = dims.size();
  auto const n = static_cast<double>(devices), mb_a_dim = static_cast<double>(batch_samples) / n * 4e-6;
  double sum = 0, most = 0, last = 0, mean_start = 0, first = 0;
  for (auto const dim : dims) sum += static_cast<double>(dim), most = std::max(most, static_cast<double>(dim));
  if (!start_ms.empty()) first = last = start_ms[0];
  for (auto const start : start_ms) last = std::max(last, start), first = std::min(first, start), mean_start += start / n;
  features.clear();
  for (std::int64_t r = 0; r < devices; ++r) {
    auto const dim = static_cast<double>(dims[r]);
    double const of_device[] = {mb_a_dim * dim * (n - 1),
                                mb_a_dim * (sum - dim),
                                mb_a_dim * most * (n - 1),
                                mb_a_dim * sum / n * (n - 1),
                                start_ms.empty() ? 0 : last - start_ms[r],
                                last - mean_start,
                                last - first};
    for (auto const value : of_device) features.push_back(static_cast<float>(value));
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
