// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/types.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The learning rate of a step, 1 during the first. It is a pure function, so that a training run that resumes at a step continues with its
/// rate.
template <class S>
concept learning_rate_schedule = std::is_trivially_copyable_v<S> && requires(S const& schedule, step_count step) {
  { schedule(step) } -> std::same_as<float>;
};

/// The same rate all along.
struct constant_rate {
  float rate = 0.1F;
  float operator()(step_count) const noexcept { return rate; }
};
static_assert(learning_rate_schedule<constant_rate>);

/// The rate until `start` steps are taken. Then the rate falls to `end_rate` within `steps` more, and stays there. While the rate falls, it
/// is end_rate + (rate - end_rate) * (1 - (step - start) / steps)^power. The schedule is TensorFlow's polynomial_decay.
///
/// `warm_up{polynomial_decay{.rate, .start, .steps}, steps}` is the schedule of MLPerf's DLRM: linear warm-up, constant, quadratic decay.
/// Its reference then stays at 1e-7 or the last rate above; give that as `end_rate`.
struct polynomial_decay {
  float rate = 0.1F;
  std::int64_t start = 0;
  std::int64_t steps = 1;  ///< 0 or less: `end_rate` right after `start`
  float power = 2;
  float end_rate = 0;

  float operator()(step_count step) const noexcept {
    if (step.value <= start) return rate;
    if (step.value - start >= steps) return end_rate;
    auto const left = 1 - static_cast<double>(step.value - start) / static_cast<double>(steps);
    auto const end = static_cast<double>(end_rate);
    return static_cast<float>(end + (static_cast<double>(rate) - end) * std::pow(left, static_cast<double>(power)));
  }
};
static_assert(learning_rate_schedule<polynomial_decay>);

/// The rate times `factor` after each `every` steps taken, as torch.optim.lr_scheduler.StepLR.
/// @throws tessera::error invalid_argument where `every` is below 1.
struct step_decay {
  float rate = 0.1F;
  std::int64_t every = 1;
  float factor = 0.1F;

  float operator()(step_count step) const {
    if (every < 1) throw error(errc::invalid_argument, "step_decay: every so many steps, 1 or more", {{"every", every}});
    return static_cast<float>(static_cast<double>(rate) * update_rules::power(static_cast<double>(factor), (step.value - 1) / every));
  }
};
static_assert(learning_rate_schedule<step_decay>);

/// The rate times `factor` for each milestone past, as torch.optim.lr_scheduler.MultiStepLR: milestone m acts from step m + 1 on.
template <std::size_t Count>
struct milestone_decay {
  float rate = 0.1F;
  std::int64_t milestones[Count] = {};  ///< steps taken, in any order
  float factor = 0.1F;

  float operator()(step_count step) const noexcept {
    std::int64_t past = 0;
    for (auto const milestone : milestones) past += step.value > milestone;
    return static_cast<float>(static_cast<double>(rate) * update_rules::power(static_cast<double>(factor), past));
  }
};
static_assert(learning_rate_schedule<milestone_decay<2>>);

/// Another schedule, whose rate grows linearly during the first steps. Its factor is from + (1 - from) * step / steps, and 1 from step
/// `steps` on. The wrapped schedule counts the steps of the warm-up, too. With 0 steps there is no warm-up.
template <learning_rate_schedule S>
struct warm_up {
  S after{};
  std::int64_t steps = 0;
  float from = 0;  ///< share of the rate before the first step, which itself is one `steps`-th further

  float operator()(step_count step) const noexcept(noexcept(after(step))) {
    auto const rate = after(step);
    if (step.value >= steps) return rate;
    auto const start = static_cast<double>(from);
    return static_cast<float>(static_cast<double>(rate) *
                              (start + (1 - start) * static_cast<double>(step.value) / static_cast<double>(steps)));
  }
};
template <class S, class... Rest>
warm_up(S, Rest...) -> warm_up<S>;
static_assert(learning_rate_schedule<warm_up<polynomial_decay>>);

/// Gives an optimizer, through all its adaptors, the learning rate of `step`, the step that is about to be taken.
template <optimizer_policy O, learning_rate_schedule S>
void set_learning_rate(O& optimizer, S const& schedule, step_count step) {
  set_learning_rate(optimizer, schedule(step));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
