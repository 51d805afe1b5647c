// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <numeric>

#include <tessera/nn/target_attention.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// Target attention in double as the paper writes it: the four parts of a pair side by side, through the network.
struct reference_target_attention {
  std::int64_t dim;
  std::vector<std::int64_t> widths;  // of the network
  bool softmax;
  std::vector<double> parameters;
  mutable double nearest_kink = HUGE_VAL;  // least distance of a ReLU's input from 0 yet

  double score(double const* h, double const* t) const {
    std::vector<double> x;
    for (std::int64_t c = 0; c < dim; ++c) x.push_back(h[c]);
    for (std::int64_t c = 0; c < dim; ++c) x.push_back(t[c]);
    for (std::int64_t c = 0; c < dim; ++c) x.push_back(h[c] - t[c]);
    for (std::int64_t c = 0; c < dim; ++c) x.push_back(h[c] * t[c]);
    auto const* p = parameters.data();
    for (std::size_t l = 1; l < widths.size(); ++l) {
      std::vector<double> y(static_cast<std::size_t>(widths[l]));
      auto const* const bias = p + widths[l] * widths[l - 1];
      for (std::size_t o = 0; o < y.size(); ++o) {
        y[o] = bias[o];
        for (std::size_t i = 0; i < x.size(); ++i) y[o] += p[o * x.size() + i] * x[i];
        if (l + 1 == widths.size()) continue;
        nearest_kink = std::min(nearest_kink, std::fabs(y[o]));
        y[o] = std::max(y[o], 0.0);
      }
      p = bias + widths[l];
      x = std::move(y);
    }
    return x[0];
  }

  doubles forward(doubles const& history, std::vector<std::int64_t> const& offsets, std::vector<std::int64_t> const& inverse,
                  doubles const& targets) const {
    doubles out(targets.rows, dim);
    for (std::int64_t i = 0; i < targets.rows; ++i) {
      auto const row = static_cast<std::size_t>(inverse.empty() ? i : inverse[static_cast<std::size_t>(i)]);
      std::vector<double> weights;
      for (auto j = offsets[row]; j < offsets[row + 1]; ++j)
        weights.push_back(score(history.values.data() + j * dim, targets.values.data() + i * dim));
      if (softmax) {
        double sum = 0;
        for (auto& w : weights) sum += w = std::exp(w);
        for (auto& w : weights) w /= sum;
      }
      for (auto j = offsets[row]; j < offsets[row + 1]; ++j)
        for (std::int64_t c = 0; c < dim; ++c) out.at(i, c) += weights[static_cast<std::size_t>(j - offsets[row])] * history.at(j, c);
    }
    return out;
  }
};

/// What target attention must show on every execution and gemm policy.
template <class Harness>
void target_attention_suite() {
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  auto const randomise = [&](tessera::target_attention& net, tessera::target_attention_options const& options) {
    auto const values = random_floats(random, static_cast<std::size_t>(net.parameters().size()));
    for (std::size_t i = 0; i < values.size(); ++i) net.parameters()[static_cast<std::int64_t>(i)] += 0.1F * values[i];
    return reference_target_attention{
        options.dim, net.network().widths(), options.softmax, {net.parameters().begin(), net.parameters().end()}};
  };
  struct outcome {
    strided_floats out, targets, history;
    std::vector<float> parameter_gradient;
  };
  // Offsets of history need not begin at 0.
  auto const run = [&](tessera::target_attention const& net, strided_floats const& history, std::vector<std::int64_t> const& offsets,
                       std::vector<std::int64_t> const& inverse, strided_floats const& targets, strided_floats const& gradient) {
    auto const vectors = offsets.back() - offsets.front();
    outcome result{strided_floats(targets.rows, net.dim(), 2), strided_floats(targets.rows, net.dim(), 1),
                   strided_floats(vectors, net.dim(), 3),
                   std::vector<float>(static_cast<std::size_t>(net.parameters().size()), std::nanf(""))};
    tessera::jagged_vectors_view<float const> const rows{history.view(), offsets.data(), static_cast<std::int64_t>(offsets.size()) - 1};
    tessera::target_attention_saved saved;
    net.forward(harness.exec(), harness.policy(), rows, inverse, targets.view(), result.out.view(), saved);
    net.backward(harness.exec(), harness.policy(), saved, gradient.view(), result.parameter_gradient, result.targets.view(),
                 result.history.view());
    for (auto const* m : {&result.out, &result.targets, &result.history}) CHECK(m->gaps_intact());
    std::vector<float> again(result.parameter_gradient.size(), std::nanf(""));
    net.backward(harness.exec(), harness.policy(), saved, gradient.view(), again);
    CHECK(same_bits(again, result.parameter_gradient));
    return result;
  };

  SUBCASE("forward matches a double reference, backward its central differences") {
    std::vector<std::int64_t> const offsets{0, 3, 3, 8, 9};
    for (bool const softmax : {false, true})
      for (std::vector<std::int64_t> const& hidden : {std::vector<std::int64_t>{}, {5}, {6, 3}, {4, 7, 2}})
        for (std::vector<std::int64_t> const& inverse : {std::vector<std::int64_t>{}, {2, 0, 2, 2, 1, 3, 0}, {3}})
          for (std::int64_t const at_once : {1, 4, 1000}) {
            CAPTURE(softmax);
            CAPTURE(hidden.size());
            CAPTURE(inverse.size());
            CAPTURE(at_once);
            tessera::target_attention_options const options{
                .dim = 3, .hidden = hidden, .softmax = softmax, .pairs_at_once = at_once, .seed = tessera::random_seed{seed}};
            tessera::target_attention net(harness.exec(), options);
            auto reference = randomise(net, options);
            auto const samples = inverse.empty() ? std::int64_t{4} : static_cast<std::int64_t>(inverse.size());
            strided_floats const gradient(random, samples, 3, 0);
            strided_floats history(random, 9, 3, 1), targets(random, samples, 3, 2);
            // Where a ReLU has its kink, a difference is not a derivative.
            auto const nearest_kink = [&] {
              auto const here = reference;
              here.forward(doubles(history), offsets, inverse, doubles(targets));
              return here.nearest_kink;
            };
            while (nearest_kink() < 1e-4) history = strided_floats(random, 9, 3, 1);
            auto const result = run(net, history, offsets, inverse, targets, gradient);
            doubles wide_history(history), wide_targets(targets);
            CHECK(worst_difference(result.out, reference.forward(wide_history, offsets, inverse, wide_targets)) < 1e-5);
            auto const objective = [&] {
              auto const y = reference.forward(wide_history, offsets, inverse, wide_targets);
              double sum = 0;
              for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * static_cast<double>(gradient.storage[i]);
              return sum;
            };
            std::vector<double> of_parameters, of_history, of_targets;
            for (auto& p : reference.parameters) of_parameters.push_back(numeric_derivative(p, objective));
            for (auto& x : wide_history.values) of_history.push_back(numeric_derivative(x, objective));
            for (auto& x : wide_targets.values) of_targets.push_back(numeric_derivative(x, objective));
            CHECK(worst_difference(result.parameter_gradient, of_parameters) < 1e-5);
            CHECK(worst_difference(doubles(result.history).values, of_history) < 1e-5);
            CHECK(worst_difference(doubles(result.targets).values, of_targets) < 1e-5);
          }
  }

  SUBCASE("rows that samples share give what rows repeated give, and the sum of their gradients") {
    std::vector<std::int64_t> const offsets{0, 40, 40, 41, 111}, inverse{3, 0, 3, 1, 0, 3, 2, 3};
    for (bool const softmax : {false, true}) {
      tessera::target_attention_options const options{
          .dim = 20, .softmax = softmax, .pairs_at_once = 100, .seed = tessera::random_seed{seed}};
      tessera::target_attention net(harness.exec(), options);
      auto const reference = randomise(net, options);
      strided_floats history(random, 111, 20, 0);
      strided_floats const targets(random, 8, 20, 0), gradient(random, 8, 20, 0);
      // Two calls may round otherwise: no hidden unit is as near to 0 as that.
      auto const nearest_kink = [&] {
        auto const here = reference;
        here.forward(doubles(history), offsets, inverse, doubles(targets));
        return here.nearest_kink;
      };
      while (nearest_kink() < 1e-6) history = strided_floats(random, 111, 20, 0);
      std::vector<std::int64_t> repeated_offsets{0}, from;
      for (auto const row : inverse) {
        for (auto j = offsets[static_cast<std::size_t>(row)]; j < offsets[static_cast<std::size_t>(row) + 1]; ++j) from.push_back(j);
        repeated_offsets.push_back(static_cast<std::int64_t>(from.size()));
      }
      strided_floats repeated(repeated_offsets.back(), 20, 0);
      for (std::size_t j = 0; j < from.size(); ++j)
        std::copy_n(history.storage.begin() + from[j] * 20, 20, repeated.storage.begin() + static_cast<std::int64_t>(j) * 20);
      auto const shared = run(net, history, offsets, inverse, targets, gradient);
      auto const apart = run(net, repeated, repeated_offsets, {}, targets, gradient);
      CHECK(worst_difference(shared.out, reference.forward(doubles(history), offsets, inverse, doubles(targets))) < 1e-5);
      CHECK(worst_difference(apart.out, doubles(shared.out)) < 1e-5);
      CHECK(worst_difference(apart.targets, doubles(shared.targets)) < 1e-5);
      CHECK(worst_difference(apart.parameter_gradient,
                             std::vector<double>(shared.parameter_gradient.begin(), shared.parameter_gradient.end())) < 1e-5);
      doubles sum(111, 20);
      for (std::size_t j = 0; j < from.size(); ++j)
        for (std::int64_t c = 0; c < 20; ++c) sum.at(from[j], c) += static_cast<double>(apart.history.at(static_cast<std::int64_t>(j), c));
      CHECK(worst_difference(shared.history, sum) < 1e-5);
    }
  }

  SUBCASE("a part of a batch, whose offsets do not begin at 0") {
    tessera::target_attention const net(harness.exec(), {.dim = 4, .hidden = {6}, .seed = tessera::random_seed{seed}});
    strided_floats const history(random, 20, 4, 1), targets(random, 2, 4, 0), gradient(random, 2, 4, 0);
    strided_floats rest(15, 4, 1);
    std::copy_n(history.storage.begin() + 5 * 5, 15 * 5, rest.storage.begin());
    auto const part = run(net, history, {5, 11, 18}, {}, targets, gradient), alone = run(net, rest, {0, 6, 13}, {}, targets, gradient);
    CHECK(same_bits(part.out.storage, alone.out.storage));
    CHECK(same_bits(part.history.storage, alone.history.storage));
    CHECK(same_bits(part.parameter_gradient, alone.parameter_gradient));
  }

  SUBCASE("no samples, no vectors, rows that no sample has") {
    tessera::target_attention const net(harness.exec(), {.dim = 4, .hidden = {6, 5}, .seed = tessera::random_seed{seed}});
    auto const check = [&](std::vector<std::int64_t> const& offsets, std::vector<std::int64_t> const& inverse, std::int64_t samples) {
      auto const result = run(net, strided_floats(random, offsets.back(), 4, 0), offsets, inverse, strided_floats(random, samples, 4, 0),
                              strided_floats(random, samples, 4, 0));
      auto const is_zero = [](strided_floats const& m) {
        for (std::int64_t r = 0; r < m.rows; ++r)
          for (std::int64_t c = 0; c < m.columns; ++c)
            if (m.at(r, c) != 0) return false;
        return true;
      };
      CHECK(is_zero(result.out));
      CHECK(is_zero(result.targets));
      CHECK(is_zero(result.history));
      for (auto const g : result.parameter_gradient) CHECK(g == 0);
    };
    check({0}, {}, 0);
    check({0, 3, 3}, {}, 0);
    check({0, 0, 0}, {}, 2);
    check({0, 3, 3}, {1, 1, 1}, 3);
  }
}

}  // namespace tessera_tests
