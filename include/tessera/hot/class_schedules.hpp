// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Says how many batches of one class come before those of the other.
/// - `percent()` is the rate r, above 0 and at most 100: a run is r % of the epoch's batches of its class, rounded up.
/// - `tell_loss(loss)` hears of the test loss after a run.
/// - `state()` is all that decides about later runs: trivially copyable, comparable. `restore(state)` goes on from it.
template <class S>
concept class_schedule = requires(S& schedule, S const& held, double loss, typename S::state_type const& state) {
  { held.percent() } -> std::same_as<double>;
  schedule.tell_loss(loss);
  { held.state() } -> std::same_as<typename S::state_type>;
  schedule.restore(state);
  requires std::is_trivially_copyable_v<typename S::state_type>;
  { state == state } -> std::same_as<bool>;
};

namespace detail {

inline void check_rate(char const* call, double percent) {
  if (!(percent > 0 && percent <= 100))
    throw error(errc::invalid_argument, std::string(call) + ": a rate is above 0 and at most 100 percent", {{"percent", percent}});
}

}  // namespace detail

/// The same rate all along: R(100) is all cold batches, then all hot ones.
class fixed_schedule {
 public:
  struct state_type {
    friend bool operator==(state_type const&, state_type const&) = default;
  };

  /// @throws tessera::error invalid_argument for a rate that is not above 0 and at most 100.
  explicit fixed_schedule(double percent = 50) : percent_(percent) { detail::check_rate("fixed_schedule", percent); }

  double percent() const noexcept { return percent_; }
  void tell_loss(double) noexcept {}
  state_type state() const noexcept { return {}; }
  void restore(state_type) noexcept {}

 private:
  double percent_;
};
static_assert(class_schedule<fixed_schedule>);

/// Options of `loss_schedule`.
struct loss_schedule_options {
  double percent = 50;     ///< the rate to begin with
  std::int64_t falls = 4;  ///< falls of the loss in a row that double the rate, at least 1
};

/// A rate that follows the test loss. A rise halves the rate, to 1 % at least, so that classes mix more. `falls` falls in a row double it, to
/// 100 % at most, so that rows move less often. A rise, a doubling, and a loss that stayed each begin a new count. NaN changes nothing.
/// Source: FAE, Section 4.3, equation 5, whose minimum and maximum are exchanged there.
class loss_schedule {
 public:
  struct state_type {
    double percent = 50;
    double loss = std::numeric_limits<double>::infinity();  ///< that was told last; infinity: none was
    std::int64_t fell = 0;                                  ///< times running

    friend bool operator==(state_type const&, state_type const&) = default;
  };

  /// @throws tessera::error invalid_argument for a rate that is not above 0 and at most 100, and for no falls.
  explicit loss_schedule(loss_schedule_options const& options = {}) : falls_(options.falls) {
    detail::check_rate("loss_schedule", options.percent);
    if (options.falls < 1) throw error(errc::invalid_argument, "loss_schedule: option falls", {{"falls", options.falls}, {"least", 1}});
    state_.percent = options.percent;
  }

  double percent() const noexcept { return state_.percent; }
  void tell_loss(double loss) noexcept {
    if (loss != loss) return;
    bool const is_first = state_.loss == std::numeric_limits<double>::infinity();
    if (!is_first && loss > state_.loss) state_.percent = std::min(state_.percent, std::max(state_.percent / 2, 1.0));
    state_.fell = !is_first && loss < state_.loss ? state_.fell + 1 : 0;
    if (state_.fell == falls_) {
      state_.percent = std::min(2 * state_.percent, 100.0);
      state_.fell = 0;
    }
    state_.loss = loss;
  }
  state_type state() const noexcept { return state_; }
  /// @throws tessera::error incompatible for a state that no schedule of these options reaches.
  void restore(state_type const& state) {
    if (!(state.percent > 0 && state.percent <= 100) || state.loss != state.loss || state.fell < 0 || state.fell >= falls_)
      throw error(errc::incompatible, "loss_schedule: a state of another schedule", {{"percent", state.percent}, {"fell", state.fell}});
    state_ = state;
  }

 private:
  std::int64_t falls_;
  state_type state_;
};
static_assert(class_schedule<loss_schedule>);

}  // namespace TESSERA_ABI
}  // namespace tessera
