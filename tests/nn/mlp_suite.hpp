// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/mlp.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// An MLP in double, parameters laid out like `tessera::mlp::parameters()`.
struct reference_mlp {
  std::vector<std::int64_t> widths;
  tessera::activation last;
  std::vector<double> parameters;

  /// All layers' outputs; `closest`, where asked for, becomes how near a ReLU's input comes to its kink.
  std::vector<doubles> forward(doubles const& x, double* closest = nullptr) const {
    std::vector<doubles> outputs;
    auto const* p = parameters.data();
    for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
      auto const& from = l == 0 ? x : outputs.back();
      doubles y(x.rows, widths[l + 1]);
      bool const relu = l + 2 < widths.size() || last == tessera::activation::relu;
      for (std::int64_t r = 0; r < x.rows; ++r)
        for (std::int64_t o = 0; o < widths[l + 1]; ++o) {
          auto sum = p[widths[l] * widths[l + 1] + o];
          for (std::int64_t i = 0; i < widths[l]; ++i) sum += from.at(r, i) * p[o * widths[l] + i];
          if (relu && closest != nullptr) *closest = std::min(*closest, std::fabs(sum));
          y.at(r, o) = relu ? std::max(sum, 0.0) : sum;
        }
      p += (widths[l] + 1) * widths[l + 1];
      outputs.push_back(std::move(y));
    }
    return outputs;
  }

  struct gradients {
    std::vector<double> parameters;
    doubles x;
  };
  gradients backward(doubles const& x, doubles gradient) const {
    auto const outputs = forward(x);
    gradients result{std::vector<double>(parameters.size()), doubles(x.rows, x.columns)};
    auto end = static_cast<std::int64_t>(parameters.size());
    for (auto l = widths.size() - 1; l-- > 0;) {
      auto const in = widths[l], out = widths[l + 1];
      auto const& from = l == 0 ? x : outputs[l - 1];
      bool const relu = l + 2 < widths.size() || last == tessera::activation::relu;
      auto const* const weight = parameters.data() + (end - (in + 1) * out);
      auto* const weight_gradient = result.parameters.data() + (end - (in + 1) * out);
      doubles before(x.rows, in);
      for (std::int64_t r = 0; r < x.rows; ++r)
        for (std::int64_t o = 0; o < out; ++o) {
          auto const g = relu && outputs[l].at(r, o) <= 0 ? 0 : gradient.at(r, o);
          weight_gradient[in * out + o] += g;
          for (std::int64_t i = 0; i < in; ++i) {
            weight_gradient[o * in + i] += g * from.at(r, i);
            before.at(r, i) += g * weight[o * in + i];
          }
        }
      gradient = std::move(before);
      end -= (in + 1) * out;
    }
    result.x = std::move(gradient);
    return result;
  }
};

/// Gives the biases values too, and draws inputs until every ReLU's input keeps away from its kink, so that float and double agree which are on.
inline strided_floats inputs_off_the_kinks(std::mt19937_64& random, reference_mlp const& reference, std::int64_t samples, std::int64_t gap,
                                           double distance) {
  strided_floats x(samples, reference.widths.front(), gap);
  for (std::int64_t r = 0; r < samples; ++r)
    for (double closest = 0; closest < distance;) {
      strided_floats const row(random, 1, x.columns, 0);
      for (std::int64_t c = 0; c < x.columns; ++c) x.at(r, c) = row.at(0, c);
      closest = 1;
      reference.forward(doubles(row), &closest);
    }
  return x;
}

/// What the MLP must show on every execution and gemm policy.
template <class Harness>
void mlp_suite() {
  using tessera::activation;
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  // Random parameters, biases included, in the network and in the double reference.
  auto const randomise = [&](tessera::mlp& net, activation last) {
    auto values = harness.get(net.parameters());
    for (auto& value : values) value += 0.1F * random_floats(random, 1)[0];
    std::copy(values.begin(), values.end(), net.parameters().begin());
    return reference_mlp{net.widths(), last, {values.begin(), values.end()}};
  };

  SUBCASE("forward and backward match a double reference") {
    for (auto const& widths : std::vector<std::vector<std::int64_t>>{{1, 1}, {3, 1}, {4, 5, 2}, {13, 33, 17, 16}, {70, 40, 1}, {2, 300, 2}})
      for (auto const last : {activation::identity, activation::relu})
        for (std::int64_t const samples : {0, 1, 2, 67}) {
          CAPTURE(widths.size());
          CAPTURE(widths.back());
          CAPTURE(samples);
          tessera::mlp net(harness.exec(), tessera::mlp_options{widths, last, tessera::random_seed{seed}});
          auto const reference = randomise(net, last);
          auto const x = inputs_off_the_kinks(random, reference, samples, 3, 1e-5);
          strided_floats gradient(random, samples, widths.back(), 1);
          strided_floats y(samples, widths.back(), 2), x_gradient(samples, widths.front(), 5);
          auto const there_x = harness.put(x.storage);
          auto there_y = harness.put(y.storage), there_g = harness.put(gradient.storage), there_xg = harness.put(x_gradient.storage);
          auto there_pg = harness.put(std::vector<float>(reference.parameters.size(), std::nanf("")));
          tessera::mlp_saved saved;
          net.forward(harness.exec(), harness.policy(), x.in(there_x.data()), y.in(there_y.data()), saved);
          net.backward(harness.exec(), harness.policy(), saved, gradient.in(there_g.data()), {there_pg.data(), net.parameters().size()},
                       x_gradient.in(there_xg.data()));
          y.storage = harness.get(there_y);
          x_gradient.storage = harness.get(there_xg);

          auto const outputs = reference.forward(doubles(x));
          auto const gradients = reference.backward(doubles(x), doubles(gradient));
          CHECK(worst_difference(y, outputs.back()) < 1e-5);
          CHECK(worst_difference(x_gradient, gradients.x) < 1e-5);
          CHECK(worst_difference(harness.get(there_pg), gradients.parameters) < 1e-5);
          CHECK(y.gaps_intact());
          CHECK(x_gradient.gaps_intact());

          // Without x_gradient the parameters' gradients are the same bits.
          auto again_g = harness.put(gradient.storage);
          auto again_pg = harness.put(std::vector<float>(reference.parameters.size(), std::nanf("")));
          net.backward(harness.exec(), harness.policy(), saved, gradient.in(again_g.data()), {again_pg.data(), net.parameters().size()});
          CHECK(same_bits(harness.get(there_pg), harness.get(again_pg)));
          gradient.storage = harness.get(again_g);
          CHECK(gradient.gaps_intact());
        }
  }

  SUBCASE("the double reference's gradients match central differences") {
    reference_mlp reference{{4, 6, 5, 2}, activation::relu, std::vector<double>(30 + 35 + 12)};
    for (auto& p : reference.parameters) p = static_cast<double>(random_floats(random, 1)[0]);
    doubles x(inputs_off_the_kinks(random, reference, 5, 0, 1e-3));
    doubles const weight_of_y(strided_floats(random, 5, 2, 0));
    auto const objective = [&] {
      auto const y = reference.forward(x).back();
      double sum = 0;
      for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * weight_of_y.values[i];
      return sum;
    };
    auto const gradients = reference.backward(x, weight_of_y);
    std::vector<double> numeric_parameters, numeric_x;
    for (auto& p : reference.parameters) numeric_parameters.push_back(numeric_derivative(p, objective));
    for (auto& value : x.values) numeric_x.push_back(numeric_derivative(value, objective));
    CHECK(worst_difference(gradients.parameters, numeric_parameters) < 1e-6);
    CHECK(worst_difference(gradients.x.values, numeric_x) < 1e-6);
  }

  SUBCASE("gradients match central differences of the float forward") {
    std::vector<std::int64_t> const widths{6, 12, 8, 3};
    tessera::mlp net(harness.exec(), tessera::mlp_options{widths, activation::identity, tessera::random_seed{seed}});
    auto const reference = randomise(net, activation::identity);
    auto const x = inputs_off_the_kinks(random, reference, 9, 0, 1e-2);
    strided_floats gradient(random, 9, 3, 0), y(9, 3, 0), x_gradient(9, 6, 0);
    auto const weight_of_y = gradient;
    auto parameters = harness.get(net.parameters());
    auto there_g = harness.put(gradient.storage), there_pg = harness.put(parameters), there_y = harness.put(y.storage),
         there_xg = harness.put(x_gradient.storage);
    auto const objective = [&](std::vector<float> const& p, std::vector<float> const& input, tessera::mlp_saved& saved) {
      std::copy(p.begin(), p.end(), net.parameters().begin());
      auto const there_x = harness.put(input);
      net.forward(harness.exec(), harness.policy(), x.in(there_x.data()), y.in(there_y.data()), saved);
      auto const result = harness.get(there_y);
      double sum = 0;
      for (std::size_t i = 0; i < result.size(); ++i) sum += static_cast<double>(result[i]) * static_cast<double>(weight_of_y.storage[i]);
      return sum;
    };
    tessera::mlp_saved saved, other;
    auto const there_x = harness.put(x.storage);
    net.forward(harness.exec(), harness.policy(), x.in(there_x.data()), y.in(there_y.data()), saved);
    net.backward(harness.exec(), harness.policy(), saved, gradient.in(there_g.data()), {there_pg.data(), net.parameters().size()},
                 x_gradient.in(there_xg.data()));
    // Along random directions, so that one step moves many elements: a float's rounding stays far below the change.
    auto const slope = [&](std::vector<float> const& at, std::vector<float> const& analytic, bool of_parameters) {
      constexpr double step = 2e-3;
      auto direction = random_floats(random, at.size());
      double length = 0, expected = 0, analytic_length = 0;
      for (auto const d : direction) length += static_cast<double>(d) * static_cast<double>(d);
      for (auto& d : direction) d /= static_cast<float>(std::sqrt(length));
      auto above = at, below = at;
      for (std::size_t i = 0; i < at.size(); ++i) {
        above[i] += static_cast<float>(step) * direction[i];
        below[i] -= static_cast<float>(step) * direction[i];
        expected += static_cast<double>(analytic[i]) * static_cast<double>(direction[i]);
        analytic_length += static_cast<double>(analytic[i]) * static_cast<double>(analytic[i]);
      }
      auto const difference = of_parameters ? objective(above, x.storage, other) - objective(below, x.storage, other)
                                            : objective(parameters, above, other) - objective(parameters, below, other);
      return std::fabs(difference / (2 * step) - expected) / std::sqrt(analytic_length);
    };
    for (int repeat = 0; repeat < 5; ++repeat) {
      CHECK(slope(parameters, harness.get(there_pg), true) < 1e-2);
      CHECK(slope(x.storage, harness.get(there_xg), false) < 1e-2);
    }
  }

  SUBCASE("several forwards are in flight before their backwards") {
    tessera::mlp net(harness.exec(), tessera::mlp_options{{5, 9, 7, 2}, activation::relu, tessera::random_seed{seed}});
    auto const count = net.parameters().size();
    struct flight {
      std::vector<float> x, y, gradient, parameter_gradient;
      tessera::mlp_saved saved;
    };
    std::vector<flight> together(3), alone(3);
    for (std::size_t i = 0; i < 3; ++i) {
      auto const samples = 4 + i;
      together[i].x = random_floats(random, samples * 5);
      together[i].gradient = random_floats(random, samples * 2);
      together[i].y.resize(samples * 2);
      together[i].parameter_gradient.resize(static_cast<std::size_t>(count));
      alone[i].x = together[i].x;
      alone[i].gradient = together[i].gradient;
      alone[i].y = together[i].y;
      alone[i].parameter_gradient = together[i].parameter_gradient;
    }
    auto const forward = [&](flight& f) {
      auto const samples = static_cast<std::int64_t>(f.x.size()) / 5;
      f.x = harness.put(f.x);
      net.forward(harness.exec(), harness.policy(), tessera::matrix_view<float const>(f.x.data(), samples, 5),
                  tessera::matrix_view<float>(f.y.data(), samples, 2), f.saved);
    };
    auto const backward = [&](flight& f) {
      net.backward(harness.exec(), harness.policy(), f.saved,
                   tessera::matrix_view<float>(f.gradient.data(), static_cast<std::int64_t>(f.x.size()) / 5, 2), f.parameter_gradient);
    };
    for (auto& f : together) forward(f);
    for (auto const i : std::vector<std::size_t>{1, 0, 2}) backward(together[i]);
    for (auto& f : alone) {
      forward(f);
      backward(f);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(same_bits(together[i].y, alone[i].y));
      CHECK(same_bits(together[i].parameter_gradient, alone[i].parameter_gradient));
    }
  }
}

}  // namespace tessera_tests
