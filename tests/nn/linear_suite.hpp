// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/linear.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// y = act(x w^T + b) in double.
inline doubles reference_linear(doubles const& x, doubles const& weight, doubles const& bias, tessera::activation act) {
  doubles y(x.rows, weight.rows);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t o = 0; o < weight.rows; ++o) {
      auto sum = bias.at(0, o);
      for (std::int64_t i = 0; i < x.columns; ++i) sum += x.at(r, i) * weight.at(o, i);
      y.at(r, o) = act == tessera::activation::relu ? std::max(sum, 0.0) : sum;
    }
  return y;
}

/// What the linear layer must show on every execution and gemm policy.
template <class Harness>
void linear_suite() {
  using tessera::activation;
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  struct layer_shape {
    std::int64_t samples, in, out;
  };
  std::vector<layer_shape> const shapes{{0, 3, 2},    {1, 1, 1},    {3, 5, 4},      {2, 1, 7},
                                        {65, 17, 33}, {130, 64, 1}, {17, 300, 270}, {300, 2, 3}};

  // One layer with all its gradients; the arrays live where the harness computes.
  struct layer_results {
    strided_floats y, x_gradient, weight_gradient;
    std::vector<float> bias_gradient;
  };
  auto const compute = [&](strided_floats const& x, strided_floats const& weight, std::vector<float> const& bias,
                           strided_floats const& z_gradient, activation act, activation act_before) {
    auto const samples = x.rows, in = x.columns, out = weight.rows;
    layer_results result{strided_floats(samples, out, 2), strided_floats(samples, in, 3), strided_floats(out, in, 0),
                         std::vector<float>(static_cast<std::size_t>(out), std::nanf(""))};
    auto const there_x = harness.put(x.storage), there_weight = harness.put(weight.storage), there_bias = harness.put(bias),
               there_z = harness.put(z_gradient.storage);
    auto there_y = harness.put(result.y.storage), there_xg = harness.put(result.x_gradient.storage),
         there_wg = harness.put(result.weight_gradient.storage), there_bg = harness.put(result.bias_gradient);
    tessera::linear_view<float const> const layer{weight.in(there_weight.data()), {there_bias.data(), out}};
    tessera::linear_forward(harness.exec(), harness.policy(), x.in(there_x.data()), layer, act, result.y.in(there_y.data()));
    tessera::linear_backward_parameters(harness.exec(), harness.policy(), x.in(there_x.data()), z_gradient.in(there_z.data()),
                                        tessera::linear_view<float>{result.weight_gradient.in(there_wg.data()), {there_bg.data(), out}});
    tessera::linear_backward_input(harness.exec(), harness.policy(), z_gradient.in(there_z.data()), layer, act_before, x.in(there_x.data()),
                                   result.x_gradient.in(there_xg.data()));
    result.y.storage = harness.get(there_y);
    result.x_gradient.storage = harness.get(there_xg);
    result.weight_gradient.storage = harness.get(there_wg);
    result.bias_gradient = harness.get(there_bg);
    return result;
  };

  SUBCASE("forward and all gradients match a double reference") {
    for (auto const shape : shapes)
      for (auto const act : {activation::identity, activation::relu}) {
        auto const samples = shape.samples, in = shape.in, out = shape.out;
        CAPTURE(samples);
        CAPTURE(in);
        CAPTURE(out);
        strided_floats const x(random, samples, in, 1), weight(random, out, in, 2), z_gradient(random, samples, out, 1);
        auto const bias = random_floats(random, static_cast<std::size_t>(out));
        auto const result = compute(x, weight, bias, z_gradient, act, act);

        doubles const xd(x), wd(weight), zd(z_gradient), bd({bias.data(), 1, out});
        CHECK(worst_difference(result.y, reference_linear(xd, wd, bd, act)) < 1e-5);
        doubles x_gradient(samples, in), weight_gradient(out, in), bias_gradient(1, out);
        for (std::int64_t r = 0; r < samples; ++r)
          for (std::int64_t o = 0; o < out; ++o) {
            bias_gradient.at(0, o) += zd.at(r, o);
            for (std::int64_t i = 0; i < in; ++i) {
              weight_gradient.at(o, i) += zd.at(r, o) * xd.at(r, i);
              if (act == activation::identity || x.at(r, i) > 0) x_gradient.at(r, i) += zd.at(r, o) * wd.at(o, i);
            }
          }
        CHECK(worst_difference(result.x_gradient, x_gradient) < 1e-5);
        CHECK(worst_difference(result.weight_gradient, weight_gradient) < 1e-5);
        CHECK(worst_difference(result.bias_gradient, bias_gradient.values) < 1e-5);
        CHECK(result.y.gaps_intact());
        CHECK(result.x_gradient.gaps_intact());
      }
  }

  SUBCASE("gradients match central differences of the double forward") {
    std::int64_t const samples = 7, in = 5, out = 6;
    strided_floats const x(random, samples, in, 0), weight(random, out, in, 0), z_gradient(random, samples, out, 0);
    auto const bias = random_floats(random, static_cast<std::size_t>(out));
    auto const result = compute(x, weight, bias, z_gradient, activation::identity, activation::identity);
    doubles xd(x), wd(weight), bd({bias.data(), 1, out});
    doubles const zd(z_gradient);
    auto const objective = [&] {
      auto const y = reference_linear(xd, wd, bd, activation::identity);
      double sum = 0;
      for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * zd.values[i];
      return sum;
    };
    auto const numeric = [&](doubles& of) {
      std::vector<double> gradient;
      for (auto& value : of.values) gradient.push_back(numeric_derivative(value, objective, 1e-3));
      return gradient;
    };
    CHECK(worst_difference(doubles(result.x_gradient).values, numeric(xd)) < 1e-5);
    CHECK(worst_difference(doubles(result.weight_gradient).values, numeric(wd)) < 1e-5);
    CHECK(worst_difference(result.bias_gradient, numeric(bd)) < 1e-5);
  }

  SUBCASE("an empty batch has parameter gradients of zero") {
    strided_floats const x(0, 40, 0), weight(random, 70, 40, 0), z_gradient(0, 70, 0);
    auto const result = compute(x, weight, random_floats(random, 70), z_gradient, activation::relu, activation::relu);
    CHECK(worst_difference(result.weight_gradient, doubles(70, 40)) == 0);
    CHECK(result.bias_gradient == std::vector<float>(70, 0.0F));
  }

  SUBCASE("a layer without inputs gives its bias") {
    strided_floats const x(3, 0, 0), weight(4, 0, 0), z_gradient(random, 3, 4, 0);
    auto const result = compute(x, weight, {1, -2, 3, 0}, z_gradient, activation::relu, activation::identity);
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t c = 0; c < 4; ++c) CHECK(result.y.at(r, c) == std::vector<float>{1, 0, 3, 0}[static_cast<std::size_t>(c)]);
  }

  SUBCASE("a ReLU: zero and negative to zero, infinity kept, NaN shown") {
    strided_floats x(1, 1, 0, 1), weight(5, 1, 0, 1), z_gradient(1, 5, 0, 1);
    auto const y = compute(x, weight, {-1, -2, HUGE_VALF, -HUGE_VALF, std::nanf("")}, z_gradient, activation::relu, activation::identity).y;
    CHECK(y.at(0, 0) == 0);
    CHECK(y.at(0, 1) == 0);
    CHECK(y.at(0, 2) == HUGE_VALF);
    CHECK(y.at(0, 3) == 0);
    CHECK(std::isnan(y.at(0, 4)));
  }

  SUBCASE("shapes that do not fit are refused") {
    auto there = harness.put(std::vector<float>(100, 1));
    auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(there.data(), rows, columns); };
    auto const layer = [&](std::int64_t out, std::int64_t in, std::int64_t bias) {
      return tessera::linear_view<float>{matrix(out, in), {there.data(), bias}};
    };
    auto const constant = [](tessera::linear_view<float> l) {
      return tessera::linear_view<float const>{l.weight, {l.bias.data(), l.bias.size()}};
    };
    auto const forward = [&](tessera::matrix_view<float const> x, tessera::linear_view<float> l, tessera::matrix_view<float> y) {
      tessera::linear_forward(harness.exec(), harness.policy(), x, constant(l), activation::relu, y);
    };
    CHECK_THROWS_AS(forward(matrix(2, 3), layer(4, 2, 4), matrix(2, 4)), tessera::error);
    CHECK_THROWS_AS(forward(matrix(2, 3), layer(4, 3, 3), matrix(2, 4)), tessera::error);
    CHECK_THROWS_AS(forward(matrix(2, 3), layer(4, 3, 4), matrix(2, 5)), tessera::error);
    CHECK_THROWS_AS(forward(matrix(2, 3), layer(4, 3, 4), matrix(3, 4)), tessera::error);
    auto const parameters = [&](tessera::matrix_view<float const> x, tessera::matrix_view<float const> gradient,
                                tessera::linear_view<float> l) {
      tessera::linear_backward_parameters(harness.exec(), harness.policy(), x, gradient, l);
    };
    CHECK_THROWS_AS(parameters(matrix(2, 3), matrix(2, 4), layer(4, 2, 4)), tessera::error);
    CHECK_THROWS_AS(parameters(matrix(2, 3), matrix(2, 4), layer(4, 3, 5)), tessera::error);
    CHECK_THROWS_AS(parameters(matrix(2, 3), matrix(3, 4), layer(4, 3, 4)), tessera::error);
    auto const input = [&](tessera::matrix_view<float const> gradient, tessera::linear_view<float> l, tessera::matrix_view<float const> x,
                           tessera::matrix_view<float> x_gradient) {
      tessera::linear_backward_input(harness.exec(), harness.policy(), gradient, constant(l), activation::relu, x, x_gradient);
    };
    CHECK_THROWS_AS(input(matrix(2, 4), layer(4, 2, 4), matrix(2, 3), matrix(2, 3)), tessera::error);
    CHECK_THROWS_AS(input(matrix(2, 4), layer(4, 3, 4), matrix(1, 3), matrix(2, 3)), tessera::error);
    CHECK_THROWS_AS(input(matrix(2, 4), layer(4, 3, 4), matrix(3, 3), matrix(3, 3)), tessera::error);
  }
}

}  // namespace tessera_tests
