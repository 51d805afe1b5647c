// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The features of a device in an exchange, in this order. All of them are the same whatever number the device has.
inline constexpr char const* exchange_feature_names[] = {"sent_mb", "received_mb",  "most_sent_mb", "mean_sent_mb",
                                                         "wait_ms", "mean_wait_ms", "most_wait_ms"};
/// How many they are.
inline constexpr std::int64_t exchange_feature_count = 7;

/// An exchange of any number of devices, as far as it is the same for all of them.
///
/// `columns` (devices,): the sum of the dims of each device's tables. `starts_ms` (devices,): when each starts, from any beginning; or empty
/// where all start together. A device sends each other its vectors of the samples there, in megabytes of floats. Its wait is the time until
/// the last device starts. The number of devices is no feature: networks take a number of few values for the name of a kind, and then know
/// nothing of others. @pre as many starts as columns, or none
class exchange_features {
 public:
  exchange_features(vector_view<float const> columns, vector_view<float const> starts_ms,
                    std::int64_t batch_samples) noexcept(!checks_indices)
      : columns_(columns), starts_ms_(starts_ms), peers_(static_cast<double>(columns.size() - 1)) {
    auto const n = static_cast<double>(columns.size());
    mb_a_column_ = static_cast<double>(batch_samples) / n * 4e-6;
    double most = 0, mean_start = 0, first = 0;
    for (auto const one : columns) sum_ += static_cast<double>(one), most = std::max(most, static_cast<double>(one));
    if (!starts_ms.empty()) first = last_ = static_cast<double>(starts_ms[0]);
    for (auto const one : starts_ms) {
      auto const start = static_cast<double>(one);
      last_ = std::max(last_, start), first = std::min(first, start), mean_start += start / n;
    }
    most_sent_ = mb_a_column_ * most * peers_;
    mean_sent_ = mb_a_column_ * sum_ / n * peers_;
    mean_wait_ = last_ - mean_start;
    most_wait_ = last_ - first;
  }

  /// Writes the features of a device, (exchange_feature_count,).
  void write(std::int64_t device, float* features) const noexcept(!checks_indices) {
    auto const columns = static_cast<double>(columns_[device]);
    auto const wait = starts_ms_.empty() ? 0.0 : last_ - static_cast<double>(starts_ms_[device]);
    for (auto const value :
         {mb_a_column_ * columns * peers_, mb_a_column_ * (sum_ - columns), most_sent_, mean_sent_, wait, mean_wait_, most_wait_})
      *features++ = static_cast<float>(value);
  }

 private:
  vector_view<float const> columns_, starts_ms_;
  double peers_, mb_a_column_ = 0, sum_ = 0, last_ = 0, most_sent_ = 0, mean_sent_ = 0, mean_wait_ = 0, most_wait_ = 0;
};

/// The features of all devices, (devices, exchange_feature_count).
inline void write_exchange_features(vector_view<float const> columns, vector_view<float const> starts_ms, std::int64_t batch_samples,
                                    std::vector<float>& features) {
  exchange_features const of(columns, starts_ms, batch_samples);
  features.resize(static_cast<std::size_t>(columns.size() * exchange_feature_count));
  for (std::int64_t d = 0; d < columns.size(); ++d) of.write(d, features.data() + d * exchange_feature_count);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
