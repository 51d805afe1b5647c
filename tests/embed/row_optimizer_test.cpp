// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/embed/row_optimizer.hpp>

#include "driven_row.hpp"

namespace row_optimizer_tests {

// What is no row optimizer.
struct without_update {
  static constexpr int row_state = 0;
  static constexpr int element_state = 0;
  float begin_row(float*, tessera::row_gradient const&) const { return 0; }
};
struct without_begin : tessera::sgd {
  void begin_row() = delete;
};
struct without_row_state {
  static constexpr int element_state = 0;
  float begin_row(float*, tessera::row_gradient const&) const { return 0; }
  void update(float&, float*, std::int64_t, float, float) const {}
};
struct takes_another_factor : tessera::sgd {
  void update(float&, float*, std::int64_t, float, std::vector<int>) const {}
};
struct not_for_devices : tessera::sgd {
  std::vector<float> rates;
};
static_assert(!tessera::row_optimizer<without_update>);
static_assert(!tessera::row_optimizer<without_begin>);
static_assert(!tessera::row_optimizer<without_row_state>);
static_assert(!tessera::row_optimizer<takes_another_factor>);
static_assert(!tessera::row_optimizer<not_for_devices>);
static_assert(!tessera::row_optimizer<float>);

// A factor of any type will do.
struct with_two_rates {
  struct rates {
    float down, up;
  };
  static constexpr int row_state = 0;
  static constexpr int element_state = 1;
  rates begin_row(float*, tessera::row_gradient const&) const noexcept { return {0.1F, 0.2F}; }
  void update(float& w, float* s, std::int64_t, float g, rates r) const noexcept { w -= (g > 0 ? r.down : r.up) * (g + s[0]); }
};
static_assert(tessera::row_optimizer<with_two_rates>);
static_assert(tessera::row_state_layout::of(with_two_rates{}).initial == 0.0F);

static_assert(tessera::row_state_layout::of(tessera::sgd{}).width(1000) == 0);
static_assert(tessera::row_state_layout::of(tessera::rowwise_adagrad{.initial_state = 3}).initial == 3.0F);
static_assert(tessera::row_state_layout{2, 3, 0}.width(10) == 32);
static_assert(tessera::row_state_layout{0, 2, 0}.width(std::int64_t{1} << 40) == std::int64_t{1} << 41);

}  // namespace row_optimizer_tests

using namespace row_optimizer_tests;
using tessera_tests::compare_with;
using tessera_tests::driven_row;

TEST_CASE("row_sgd matches a float64 reference") {
  tessera::sgd const optimizer{.learning_rate = 0.03F};
  compare_with(optimizer, [&](auto& w, auto const& g, std::int64_t) {
    for (std::size_t c = 0; c < w.size(); ++c) w[c] -= static_cast<double>(optimizer.learning_rate) * static_cast<double>(g[c]);
  });
}

TEST_CASE("rowwise_adagrad matches a float64 reference") {
  for (float const initial : {0.0F, 0.7F}) {
    tessera::rowwise_adagrad const optimizer{.learning_rate = 0.05F, .epsilon = 1e-3F, .initial_state = initial};
    compare_with(optimizer, [&, sum = static_cast<double>(initial)](auto& w, auto const& g, std::int64_t) mutable {
      double squares = 0;
      for (auto const x : g) squares += static_cast<double>(x) * static_cast<double>(x);
      sum += squares / static_cast<double>(g.size());
      for (std::size_t c = 0; c < w.size(); ++c)
        w[c] -= static_cast<double>(optimizer.learning_rate) * static_cast<double>(g[c]) /
                (std::sqrt(sum) + static_cast<double>(optimizer.epsilon));
    });
  }
}

TEST_CASE("rowwise_adagrad: the state is the row's mean square, and a row of zero gradient stays") {
  driven_row<tessera::rowwise_adagrad> row({.learning_rate = 1, .epsilon = 1e-10F}, {1, 2, 3, 4});
  row.step({0, 0, 0, 0}, 1);
  CHECK(row.weights == std::vector<float>{1, 2, 3, 4});
  CHECK(row.state == std::vector<float>{0});
  row.step({2, -2, 2, -2}, 2);
  CHECK(row.state == std::vector<float>{4});
  CHECK(row.weights == std::vector<float>{0, 3, 2, 5});
}

TEST_CASE("adagrad matches a float64 reference") {
  tessera::adagrad const optimizer{.learning_rate = 0.05F, .epsilon = 1e-3F, .initial_state = 0.2F};
  compare_with(optimizer, [&, sum = std::vector<double>(19, static_cast<double>(optimizer.initial_state))](auto& w, auto const& g,
                                                                                                           std::int64_t) mutable {
    for (std::size_t c = 0; c < w.size(); ++c) {
      sum[c] += static_cast<double>(g[c]) * static_cast<double>(g[c]);
      w[c] -= static_cast<double>(optimizer.learning_rate) * static_cast<double>(g[c]) /
              (std::sqrt(sum[c]) + static_cast<double>(optimizer.epsilon));
    }
  });
}

TEST_CASE("adam matches a float64 reference") {
  tessera::adam const optimizer{.learning_rate = 0.02F};
  compare_with(optimizer, [&, m = std::vector<double>(19), v = std::vector<double>(19)](auto& w, auto const& g, std::int64_t step) mutable {
    double const beta1 = static_cast<double>(optimizer.beta1), beta2 = static_cast<double>(optimizer.beta2), t = static_cast<double>(step);
    for (std::size_t c = 0; c < w.size(); ++c) {
      double const x = static_cast<double>(g[c]);
      m[c] = beta1 * m[c] + (1 - beta1) * x;
      v[c] = beta2 * v[c] + (1 - beta2) * x * x;
      w[c] -= static_cast<double>(optimizer.learning_rate) * (m[c] / (1 - std::pow(beta1, t))) /
              (std::sqrt(v[c] / (1 - std::pow(beta2, t))) + static_cast<double>(optimizer.epsilon));
    }
  });
}

TEST_CASE("rowwise_adam matches a float64 reference of FBGEMM's PARTIAL_ROWWISE_ADAM") {
  for (float const epsilon : {1e-8F, 0.1F}) {
    tessera::rowwise_adam const optimizer{.learning_rate = 0.02F, .beta2 = 0.99F, .epsilon = epsilon};
    compare_with(optimizer, [&, m = std::vector<double>(19), v = 0.0](auto& w, auto const& g, std::int64_t step) mutable {
      double const beta1 = static_cast<double>(optimizer.beta1), beta2 = static_cast<double>(optimizer.beta2),
                   t = static_cast<double>(step);
      double squares = 0;
      for (auto const x : g) squares += static_cast<double>(x) * static_cast<double>(x);
      v = beta2 * v + (1 - beta2) * squares / 19;
      for (std::size_t c = 0; c < w.size(); ++c) {
        m[c] = beta1 * m[c] + (1 - beta1) * static_cast<double>(g[c]);
        w[c] -= static_cast<double>(optimizer.learning_rate) * (m[c] / (1 - std::pow(beta1, t))) /
                (std::sqrt(v / (1 - std::pow(beta2, t))) + static_cast<double>(epsilon));
      }
    });
  }
}

TEST_CASE("rowwise_adam: one second moment a row before a first moment an element") {
  static_assert(tessera::row_state_layout::of(tessera::rowwise_adam{}).width(4) == 5);
  driven_row<tessera::rowwise_adam> row({.learning_rate = 0.25F, .beta1 = 0.5F, .beta2 = 0.75F, .epsilon = 0}, {1, 1, 1, 1});
  row.step({2, -4, 2, -4}, 1);
  CHECK(row.state == std::vector<float>{2.5F, 1, -2, 1, -2});
  // The corrected moments are the gradient and 10.
  CHECK(row.weights[0] == doctest::Approx(1 - 0.25 * 2 / std::sqrt(10.0)).epsilon(1e-6));
  CHECK(row.weights[1] == doctest::Approx(1 + 0.25 * 4 / std::sqrt(10.0)).epsilon(1e-6));
}

TEST_CASE("adaptors around row-wise optimizers hand on state, norms and rates") {
  using namespace tessera;
  with_row_clipping const clipped{rowwise_adagrad{.learning_rate = 1, .epsilon = 0, .initial_state = 0.5F}, 1.0F};
  static_assert(row_optimizer<decltype(clipped)> && row_optimizer<with_weight_decay<with_row_clipping<rowwise_adam>>>);
  CHECK(row_state_layout::of(clipped).initial == 0.5F);
  CHECK(row_state_layout::of(clipped).width(2) == 1);
  driven_row<with_row_clipping<rowwise_adagrad>> row(clipped, {0, 0});
  row.step({3, 4}, 1);  // of norm 5, so (0.6, 0.8), whose mean square is 0.5
  CHECK(row.state == std::vector<float>{1});
  CHECK(row.weights[0] == doctest::Approx(-0.6).epsilon(1e-6));
  CHECK(row.weights[1] == doctest::Approx(-0.8).epsilon(1e-6));
  // The decay is part of what the row's sum of squares is taken of.
  driven_row<with_weight_decay<rowwise_adagrad>> decayed({{.learning_rate = 1, .epsilon = 0}, 0.5F}, {6, 8});
  decayed.step({0, 0}, 1);
  CHECK(decayed.state == std::vector<float>{12.5F});
}
