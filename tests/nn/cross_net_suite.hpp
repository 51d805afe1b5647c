// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include <tessera/nn/cross_net.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// A cross network in double, parameters laid out like `tessera::cross_net::parameters()`.
struct reference_cross_net {
  std::int64_t width, layers, rank;
  std::vector<double> parameters;

  /// y(s, i) = x(s, i) * (sum over j of W(i, j) from(s, j) + b(i)) + from(s, i), W from its factors at low rank.
  doubles forward(doubles const& x) const {
    doubles from = x;
    auto const* p = parameters.data();
    for (std::int64_t l = 0; l < layers; ++l) {
      auto const* const down = p;
      auto const* const weight = down + rank * width;
      auto const* const bias = weight + (rank > 0 ? rank : width) * width;
      p = bias + width;
      doubles to(x.rows, width);
      for (std::int64_t s = 0; s < x.rows; ++s)
        for (std::int64_t i = 0; i < width; ++i) {
          double z = bias[i];
          if (rank == 0)
            for (std::int64_t j = 0; j < width; ++j) z += weight[i * width + j] * from.at(s, j);
          for (std::int64_t k = 0; k < rank; ++k) {
            double projected = 0;
            for (std::int64_t j = 0; j < width; ++j) projected += down[k * width + j] * from.at(s, j);
            z += weight[i * rank + k] * projected;
          }
          to.at(s, i) = x.at(s, i) * z + from.at(s, i);
        }
      from = std::move(to);
    }
    return from;
  }

  /// Sum of y times `weight_of_y`: the objective whose gradient by y is `weight_of_y`.
  double objective(doubles const& x, doubles const& weight_of_y) const {
    auto const y = forward(x);
    double sum = 0;
    for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * weight_of_y.values[i];
    return sum;
  }
};

/// What the cross network must show on every execution and gemm policy.
template <class Harness>
void cross_net_suite() {
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  auto const make = [&](std::int64_t width, std::int64_t layers, std::int64_t rank) {
    return tessera::cross_net(harness.exec(),
                              {.width = width, .layers = layers, .rank = rank, .seed = tessera::random_seed{seed}, .stream = 5});
  };
  // Random parameters, biases included, in the network and in the double reference.
  auto const randomise = [&](tessera::cross_net& net) {
    auto values = harness.get(net.parameters());
    for (auto& value : values) value += 0.1F * random_floats(random, 1)[0];
    std::copy(values.begin(), values.end(), net.parameters().begin());
    return reference_cross_net{net.width(), net.layers(), net.rank(), {values.begin(), values.end()}};
  };

  struct outcome {
    strided_floats y, x_gradient;
    std::vector<float> parameter_gradient;
  };
  auto const run = [&](tessera::cross_net const& net, strided_floats const& x, strided_floats const& gradient) {
    outcome result{strided_floats(x.rows, net.width(), 2), strided_floats(x.rows, net.width(), 5),
                   std::vector<float>(static_cast<std::size_t>(net.parameters().size()), std::nanf(""))};
    auto const there_x = harness.put(x.storage);
    auto there_y = harness.put(result.y.storage), there_g = harness.put(gradient.storage),
         there_xg = harness.put(result.x_gradient.storage), there_pg = harness.put(result.parameter_gradient);
    tessera::cross_saved saved;
    net.forward(harness.exec(), harness.policy(), x.in(there_x.data()), result.y.in(there_y.data()), saved);
    net.backward(harness.exec(), harness.policy(), saved, gradient.in(there_g.data()), {there_pg.data(), net.parameters().size()},
                 result.x_gradient.in(there_xg.data()));
    result.y.storage = harness.get(there_y);
    result.x_gradient.storage = harness.get(there_xg);
    result.parameter_gradient = harness.get(there_pg);
    CHECK(result.y.gaps_intact());
    CHECK(result.x_gradient.gaps_intact());

    // Without x_gradient the parameters' gradients are the same bits.
    auto again_g = harness.put(gradient.storage);
    auto again_pg = harness.put(std::vector<float>(result.parameter_gradient.size(), std::nanf("")));
    net.backward(harness.exec(), harness.policy(), saved, gradient.in(again_g.data()), {again_pg.data(), net.parameters().size()});
    CHECK(same_bits(result.parameter_gradient, harness.get(again_pg)));
    auto gaps = gradient;
    gaps.storage = harness.get(again_g);
    CHECK(gaps.gaps_intact());
    return result;
  };

  SUBCASE("forward matches a double reference, backward its central differences") {
    for (auto const shape : {std::array<std::int64_t, 3>{1, 1, 0}, {1, 2, 1}, {3, 1, 0}, {3, 2, 2}, {17, 3, 0}, {17, 2, 4}, {5, 0, 0}})
      for (std::int64_t const samples : {1, 2, 5}) {
        CAPTURE(shape[0]);
        CAPTURE(shape[1]);
        CAPTURE(shape[2]);
        CAPTURE(samples);
        auto net = make(shape[0], shape[1], shape[2]);
        auto reference = randomise(net);
        strided_floats const x(random, samples, shape[0], 3), gradient(random, samples, shape[0], 1);
        auto const result = run(net, x, gradient);
        doubles doubled_x(x);
        doubles const doubled_gradient(gradient);
        CHECK(worst_difference(result.y, reference.forward(doubled_x)) < 1e-5);

        auto const objective = [&] { return reference.objective(doubled_x, doubled_gradient); };
        std::vector<double> numeric_parameters, numeric_x;
        for (auto& p : reference.parameters) numeric_parameters.push_back(numeric_derivative(p, objective, 1e-5));
        for (auto& value : doubled_x.values) numeric_x.push_back(numeric_derivative(value, objective, 1e-5));
        CHECK(worst_difference(result.parameter_gradient, numeric_parameters) < 1e-5);
        CHECK(worst_difference(doubles(result.x_gradient).values, numeric_x) < 1e-5);
      }
  }

  SUBCASE("wide networks match along random directions") {
    for (auto const shape : {std::array<std::int64_t, 3>{130, 2, 0}, {130, 3, 20}, {under_tsan ? 40 : 1030, 1, 8}}) {
      CAPTURE(shape[0]);
      CAPTURE(shape[2]);
      auto net = make(shape[0], shape[1], shape[2]);
      auto const reference = randomise(net);
      strided_floats const x(random, 9, shape[0], 1), gradient(random, 9, shape[0], 0);
      auto const result = run(net, x, gradient);
      doubles const doubled_x(x), doubled_gradient(gradient);
      CHECK(worst_difference(result.y, reference.forward(doubled_x)) < 1e-5);
      // The slope along a direction, against its product with the gradient, in units of the gradient's length.
      auto const slope_error = [&](std::vector<double> const& direction, std::vector<double> const& analytic, auto const& objective_at) {
        double expected = 0, length = 0;
        for (std::size_t i = 0; i < direction.size(); ++i) {
          expected += direction[i] * analytic[i];
          length += analytic[i] * analytic[i];
        }
        double at = 0;
        auto const slope = numeric_derivative(
            at, [&] { return objective_at(at); }, 1e-6);
        return std::fabs(slope - expected) / std::sqrt(length);
      };
      auto const draw = [&](std::size_t n) {
        auto const floats = random_floats(random, n);
        return std::vector<double>(floats.begin(), floats.end());
      };
      auto const of_parameters = draw(reference.parameters.size()), of_x = draw(doubled_x.values.size());
      CHECK(slope_error(of_parameters, {result.parameter_gradient.begin(), result.parameter_gradient.end()}, [&](double step) {
              auto moved = reference;
              for (std::size_t i = 0; i < of_parameters.size(); ++i) moved.parameters[i] += step * of_parameters[i];
              return moved.objective(doubled_x, doubled_gradient);
            }) < 1e-4);
      CHECK(slope_error(of_x, doubles(result.x_gradient).values, [&](double step) {
              auto moved = doubled_x;
              for (std::size_t i = 0; i < of_x.size(); ++i) moved.values[i] += step * of_x[i];
              return reference.objective(moved, doubled_gradient);
            }) < 1e-4);
    }
  }

  SUBCASE("low rank is full rank with the product of its factors") {
    std::int64_t const width = 9, rank = 4, layers = 3, samples = 6;
    auto low = make(width, layers, rank), full = make(width, layers, 0);
    randomise(low);
    auto low_values = harness.get(low.parameters()), full_values = harness.get(full.parameters());
    for (std::int64_t l = 0; l < layers; ++l) {
      auto const from = low.layer(tessera::vector_view<float>(low_values), l);
      auto const to = full.layer(tessera::vector_view<float>(full_values), l);
      for (std::int64_t i = 0; i < width; ++i) {
        to.mix.bias[i] = from.mix.bias[i];
        for (std::int64_t j = 0; j < width; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < rank; ++k) sum += static_cast<double>(from.mix.weight(i, k)) * static_cast<double>(from.down(k, j));
          to.mix.weight(i, j) = static_cast<float>(sum);
        }
      }
    }
    std::copy(full_values.begin(), full_values.end(), full.parameters().begin());
    strided_floats const x(random, samples, width, 0), gradient(random, samples, width, 0);
    auto const low_result = run(low, x, gradient), full_result = run(full, x, gradient);
    CHECK(worst_difference(low_result.y, doubles(full_result.y)) < 1e-5);
    CHECK(worst_difference(low_result.x_gradient, doubles(full_result.x_gradient)) < 1e-5);
    for (std::int64_t l = 0; l < layers; ++l)
      CHECK(worst_difference(harness.get(low.layer(tessera::vector_view<float const>(low_result.parameter_gradient), l).mix.bias), [&] {
              auto const bias = full.layer(tessera::vector_view<float const>(full_result.parameter_gradient), l).mix.bias;
              return std::vector<double>(bias.begin(), bias.end());
            }()) < 1e-5);
  }

  SUBCASE("no layers: the identity, to the bit") {
    auto const net = make(7, 0, 0);
    CHECK(net.parameters().empty());
    strided_floats const x(random, 70, 7, 1), gradient(random, 70, 7, 2);
    auto const result = run(net, x, gradient);
    CHECK(worst_difference(result.y, doubles(x)) == 0);
    CHECK(worst_difference(result.x_gradient, doubles(gradient)) == 0);
  }

  SUBCASE("an empty batch has a gradient of zero") {
    for (std::int64_t const rank : {0, 2}) {
      auto const result = run(make(5, 3, rank), strided_floats(0, 5, 0), strided_floats(0, 5, 0));
      for (auto const g : result.parameter_gradient) CHECK(g == 0);
    }
  }

  SUBCASE("several forwards are in flight before their backwards") {
    auto const net = make(6, 2, 3);
    strided_floats const x(random, 4, 6, 0), other(random, 9, 6, 0), gradient(random, 4, 6, 0);
    auto const alone = run(net, x, gradient);
    auto const there_x = harness.put(x.storage), there_other = harness.put(other.storage);
    auto there_y = harness.put(x.storage), there_y2 = harness.put(other.storage), there_g = harness.put(gradient.storage);
    auto there_pg = harness.put(alone.parameter_gradient);
    tessera::cross_saved first, second;
    net.forward(harness.exec(), harness.policy(), x.in(there_x.data()), x.in(there_y.data()), first);
    net.forward(harness.exec(), harness.policy(), other.in(there_other.data()), other.in(there_y2.data()), second);
    net.backward(harness.exec(), harness.policy(), first, gradient.in(there_g.data()), {there_pg.data(), net.parameters().size()});
    CHECK(same_bits(harness.get(there_pg), alone.parameter_gradient));
  }
}

}  // namespace tessera_tests
