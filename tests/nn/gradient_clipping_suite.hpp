// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>

#include <tessera/nn/gradient_clipping.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// What `gradient_norm`, `scale_gradients`, `clip_global_norm` and `clip_values` must show on every execution.
template <class Harness>
void gradient_clipping_suite() {
  Harness harness;
  using block = decltype(harness.put(std::vector<float>{}));
  // Blocks where the execution reads them.
  struct placed {
    std::vector<block> blocks;
    std::vector<tessera::vector_view<float>> views;
  };
  auto const place = [&](std::vector<std::vector<float>> const& values) {
    placed there;
    for (auto const& v : values) there.blocks.push_back(harness.put(v));
    for (auto& b : there.blocks) there.views.emplace_back(b);
    return there;
  };
  auto const read = [&](placed const& there) {
    std::vector<std::vector<float>> values;
    for (auto const& b : there.blocks) values.push_back(harness.get(b));
    return values;
  };

  SUBCASE("random blocks of all sizes against float64") {
    auto const seed = draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::vector<float>> values;
    for (std::size_t const n : {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{0}, std::size_t{40'000}, std::size_t{16'384},
                                std::size_t{130}, std::size_t{0}})
      values.push_back(random_floats(random, n));
    double squares = 0;
    for (auto const& v : values)
      for (auto const x : v) squares += static_cast<double>(x) * static_cast<double>(x);
    double const norm = std::sqrt(squares);
    auto there = place(values);
    CHECK(tessera::gradient_norm(harness.exec(), there.views) == doctest::Approx(norm).epsilon(1e-12));

    // Long enough already: not a bit moves.
    CHECK(tessera::clip_global_norm(harness.exec(), there.views, norm + 1) == doctest::Approx(norm).epsilon(1e-12));
    CHECK(read(there) == values);
    CHECK(tessera::clip_global_norm(harness.exec(), there.views, HUGE_VAL) == doctest::Approx(norm).epsilon(1e-12));
    CHECK(read(there) == values);

    CHECK(tessera::clip_global_norm(harness.exec(), there.views, 2.5) == doctest::Approx(norm).epsilon(1e-12));
    auto const clipped = read(there);
    double worst = 0;
    for (std::size_t b = 0; b < values.size(); ++b)
      for (std::size_t i = 0; i < values[b].size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(clipped[b][i]) - static_cast<double>(values[b][i]) * 2.5 / norm));
    CHECK(worst < 1e-7);
    CHECK(tessera::gradient_norm(harness.exec(), there.views) == doctest::Approx(2.5).epsilon(1e-6));

    there = place(values);
    tessera::clip_values(harness.exec(), there.views, 0.75F);
    auto const limited = read(there);
    int wrong = 0;
    for (std::size_t b = 0; b < values.size(); ++b)
      for (std::size_t i = 0; i < values[b].size(); ++i) wrong += limited[b][i] != std::max(-0.75F, std::min(0.75F, values[b][i]));
    CHECK(wrong == 0);

    there = place(values);
    tessera::scale_gradients(harness.exec(), there.views, -2.0F);
    auto const scaled = read(there);
    for (std::size_t b = 0; b < values.size(); ++b)
      for (std::size_t i = 0; i < values[b].size(); ++i) wrong += scaled[b][i] != -2 * values[b][i];
    CHECK(wrong == 0);
  }

  SUBCASE("by hand: PyTorch's factor max_norm / (norm + 1e-6)") {
    auto there = place({{3}, {}, {0, -4}});
    CHECK(tessera::clip_global_norm(harness.exec(), there.views, 1) == 5);
    auto const factor = static_cast<float>(1 / (5 + 1e-6));
    CHECK(read(there) == std::vector<std::vector<float>>{{3 * factor}, {}, {0, -4 * factor}});
    // A norm just at its limit shrinks by that millionth too.
    there = place({{5}});
    CHECK(tessera::clip_global_norm(harness.exec(), there.views, 5) == 5);
    CHECK(read(there)[0][0] == 5 * static_cast<float>(5 / (5 + 1e-6)));
    there = place({{5}});
    CHECK(tessera::clip_global_norm(harness.exec(), there.views, 0) == 5);
    CHECK(read(there)[0][0] == 0);
  }

  SUBCASE("floats whose squares overflow or vanish have their norm all the same") {
    auto there = place({{3e30F, 4e30F}});
    CHECK(tessera::gradient_norm(harness.exec(), there.views) == doctest::Approx(5e30).epsilon(1e-6));
    there = place({{3e-30F, 4e-30F}});
    CHECK(tessera::gradient_norm(harness.exec(), there.views) == doctest::Approx(5e-30).epsilon(1e-6));
  }

  SUBCASE("no blocks, or none with elements") {
    auto there = place({});
    CHECK(tessera::clip_global_norm(harness.exec(), there.views, 1) == 0);
    tessera::clip_values(harness.exec(), there.views, 1);
    there = place({{}, {}});
    CHECK(tessera::clip_global_norm(harness.exec(), there.views, 1, {.error_if_nonfinite = true}) == 0);
    there = place({{0, 0}});
    CHECK(tessera::clip_global_norm(harness.exec(), there.views, 0) == 0);
    CHECK(read(there)[0] == std::vector<float>{0, 0});
  }

  SUBCASE("a norm that is not finite") {
    float const infinity = HUGE_VALF, nan = std::nanf("");
    auto there = place({{1, -infinity}});
    CHECK(tessera::clip_global_norm(harness.exec(), there.views, 1) == HUGE_VAL);
    CHECK(read(there)[0][0] == 0);
    CHECK(std::isnan(read(there)[0][1]));
    there = place({{1, 2}, {nan}});
    CHECK(std::isnan(tessera::clip_global_norm(harness.exec(), there.views, 1)));
    for (auto const& b : read(there))
      for (auto const x : b) CHECK(std::isnan(x));

    for (float const bad : {infinity, nan}) {
      there = place({{1, 2}, {bad}});
      try {
        tessera::clip_global_norm(harness.exec(), there.views, 1, {.error_if_nonfinite = true});
        FAIL("not refused");
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::invalid_argument);
        CHECK(e.value("norm").find(std::isnan(bad) ? "nan" : "inf") != std::string_view::npos);
      }
      CHECK(read(there)[0] == std::vector<float>{1, 2});
    }
    there = place({{nan, infinity, -infinity}});
    tessera::clip_values(harness.exec(), there.views, 2);
    CHECK(std::isnan(read(there)[0][0]));
    CHECK(read(there)[0][1] == 2);
    CHECK(read(there)[0][2] == -2);
  }

  SUBCASE("limits that are none are refused") {
    auto there = place({{1, 2}});
    for (double const bad : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
      auto const refused = [&](auto const& call, char const* name) {
        try {
          call();
        } catch (tessera::error const& e) {
          return e.code() == tessera::errc::invalid_argument && !e.value(name).empty() && read(there)[0] == std::vector<float>{1, 2};
        }
        return false;
      };
      CHECK(refused([&] { tessera::clip_global_norm(harness.exec(), there.views, bad); }, "max_norm"));
      CHECK(refused([&] { tessera::clip_values(harness.exec(), there.views, static_cast<float>(bad)); }, "limit"));
    }
  }
}

}  // namespace tessera_tests
