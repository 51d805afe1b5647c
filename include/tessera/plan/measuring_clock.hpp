// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What times are taken by. `now()` is in seconds, from any beginning, and never goes back; `wait(seconds)` returns when so many have passed.
template <class C>
concept measuring_clock = requires(C& clock, double seconds) {
  { clock.now() } -> std::same_as<double>;
  clock.wait(seconds);
};

/// The monotonic clock of the machine.
class machine_clock {
 public:
  double now() const noexcept { return std::chrono::duration<double>(clock::now().time_since_epoch()).count(); }
  /// Sleeps for most of the time, and spins for the last half millisecond: a sleep alone ends late.
  void wait(double seconds) const {
    constexpr double spun = 0.0005;
    auto const end = now() + seconds;
    if (seconds > spun) std::this_thread::sleep_for(std::chrono::duration<double>(seconds - spun));
    while (now() < end) {
    }
  }

 private:
  using clock = std::chrono::steady_clock;
};
static_assert(measuring_clock<machine_clock>);

/// How often a measurement is repeated.
struct repetition {
  std::int64_t warm_up = 5;  ///< runs that are not counted
  std::int64_t runs = 10;    ///< runs, of which the median counts
  /// Of `compute_bench`: rounds of runs, until the middle half of a round's runs is within `steady` of its median. The steadiest round counts.
  std::int64_t most_rounds = 1;
  double steady = 0.05;

  /// @throws tessera::error invalid_argument for a negative number, or no run.
  void check(char const* call) const {
    if (warm_up < 0) throw error(errc::invalid_argument, std::string(call) + ": a negative number of runs", {{"warm_up", warm_up}});
    if (runs < 1) throw error(errc::invalid_argument, std::string(call) + ": at least one run", {{"runs", runs}});
    if (most_rounds < 1) throw error(errc::invalid_argument, std::string(call) + ": at least one round", {{"most_rounds", most_rounds}});
    if (!(steady >= 0)) throw error(errc::invalid_argument, std::string(call) + ": a spread is not negative", {{"steady", steady}});
  }
};

namespace detail {

// The median; of an even number of values the mean of the two in the middle. @pre at least one value
inline double median_of(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// How far the middle half of some values spreads, over their median; 0 for fewer than four values. @pre at least one value
inline double relative_spread(std::vector<double> values) {
  if (values.size() < 4) return 0;
  std::sort(values.begin(), values.end());
  auto const middle = values[values.size() / 2];
  auto const spread = values[values.size() - 1 - values.size() / 4] - values[values.size() / 4];
  return spread > 0 ? spread / middle : 0;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
