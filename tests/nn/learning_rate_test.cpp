// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/nn/learning_rate.hpp>

namespace {

using namespace tessera;

struct no_schedule {
  double operator()(step_count) const { return 0; }
};
struct owns_memory {
  std::vector<float> rates;
  float operator()(step_count step) const { return rates[static_cast<std::size_t>(step.value)]; }
};
static_assert(!learning_rate_schedule<no_schedule> && !learning_rate_schedule<owns_memory> && !learning_rate_schedule<float>);

template <class S>
std::vector<float> rates(S const& schedule, std::int64_t steps) {
  std::vector<float> result;
  for (std::int64_t step = 1; step <= steps; ++step) result.push_back(schedule(step_count(step)));
  return result;
}

}  // namespace

TEST_CASE("constant_rate and step decays by hand") {
  CHECK(rates(constant_rate{0.5F}, 3) == std::vector<float>{0.5F, 0.5F, 0.5F});
  CHECK(rates(step_decay{.rate = 8, .every = 2, .factor = 0.5F}, 7) == std::vector<float>{8, 8, 4, 4, 2, 2, 1});
  CHECK(rates(milestone_decay<2>{.rate = 8, .milestones = {3, 1}, .factor = 0.25F}, 5) == std::vector<float>{8, 2, 2, 0.5F, 0.5F});
  CHECK(rates(milestone_decay<2>{.rate = 8, .milestones = {2, 2}, .factor = 0.5F}, 3) == std::vector<float>{8, 8, 2});
  try {
    step_decay{.every = 0}(step_count(1));
    FAIL("not refused");
  } catch (error const& e) {
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value("every") == "0");
  }
}

TEST_CASE("polynomial_decay by hand") {
  CHECK(rates(polynomial_decay{.rate = 8, .start = 2, .steps = 4, .power = 1}, 8) == std::vector<float>{8, 8, 6, 4, 2, 0, 0, 0});
  CHECK(rates(polynomial_decay{.rate = 16, .start = 0, .steps = 4, .power = 2}, 5) == std::vector<float>{9, 4, 1, 0, 0});
  CHECK(rates(polynomial_decay{.rate = 17, .start = 1, .steps = 2, .power = 2, .end_rate = 1}, 4) == std::vector<float>{17, 5, 1, 1});
  CHECK(rates(polynomial_decay{.rate = 2, .start = 2, .steps = 0, .end_rate = 1}, 4) == std::vector<float>{2, 2, 1, 1});
}

TEST_CASE("warm_up by hand, around any schedule") {
  CHECK(rates(warm_up{constant_rate{8}, 4}, 6) == std::vector<float>{2, 4, 6, 8, 8, 8});
  CHECK(rates(warm_up<constant_rate>{.after = {8}, .steps = 4, .from = 0.5F}, 5) == std::vector<float>{5, 6, 7, 8, 8});
  CHECK(rates(warm_up{constant_rate{8}, 0}, 2) == std::vector<float>{8, 8});
  CHECK(rates(warm_up{step_decay{.rate = 8, .every = 2, .factor = 0.5F}, 4}, 5) == std::vector<float>{2, 4, 3, 4, 2});
}

TEST_CASE("the schedule of MLPerf's DLRM: warm-up, constant, quadratic decay") {
  // 24 (base), 2750 steps of warm-up, decay from step 49315 over 27772: the reference implementation's settings, its formulas in double.
  constexpr double base = 24, warm = 2750, start = 49315, decay = 27772;
  warm_up const schedule{polynomial_decay{.rate = 24, .start = 49315, .steps = 27772, .end_rate = 1e-7F}, 2750};
  double worst = 0;
  for (std::int64_t step = 1; step < 80'000; step += 7) {
    auto const t = static_cast<double>(step);
    double expected = base;
    if (t < warm) expected = base * (1 - (warm - t) / warm);
    if (t >= start) expected = std::max(1e-7, base * std::pow((decay - std::min(decay, t - start)) / decay, 2));
    worst = std::max(worst, std::abs(static_cast<double>(schedule(step_count(step))) - expected));
  }
  CHECK(worst < 2e-6);
  CHECK(schedule(step_count(2749)) < 24.0F);
  CHECK(schedule(step_count(2750)) == 24.0F);
  CHECK(schedule(step_count(49315)) == 24.0F);
  CHECK(schedule(step_count(49316)) < 24.0F);
  CHECK(schedule(step_count(1'000'000)) == 1e-7F);
}

TEST_CASE("a schedule drives an optimizer through its adaptors") {
  with_decoupled_weight_decay optimizer{with_value_clipping{adam{}, 1.0F}, 0.5F};
  warm_up const schedule{constant_rate{1}, 4};
  for (std::int64_t step = 1; step <= 5; ++step) {
    set_learning_rate(optimizer, schedule, step_count(step));
    CHECK(learning_rate_of(optimizer) == std::min(1.0F, 0.25F * static_cast<float>(step)));
  }
}
