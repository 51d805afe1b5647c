// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <utility>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Splits a stretch of work into laps, by a monotonic clock.
class stopwatch {
 public:
  /// The seconds since the last lap, at first since the stopwatch was made.
  double lap() noexcept {
    auto const now = clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point last_ = clock::now();
};

}  // namespace TESSERA_ABI
}  // namespace tessera
