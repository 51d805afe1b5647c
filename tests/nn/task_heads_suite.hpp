// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/loss.hpp>
#include <tessera/nn/task_heads.hpp>

#include "mlp_suite.hpp"

namespace tessera_tests {

/// What task heads must show on every execution and gemm policy.
template <class Harness>
void task_heads_suite() {
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  using hidden_widths = std::vector<std::vector<std::int64_t>>;

  auto const make = [&](std::int64_t input, hidden_widths const& hidden) {
    tessera::task_heads heads(harness.exec(), tessera::task_heads_options{input, hidden, tessera::random_seed{seed}, 9});
    auto values = harness.get(heads.parameters());
    for (auto& value : values) value += 0.1F * random_floats(random, 1)[0];
    std::copy(values.begin(), values.end(), heads.parameters().begin());
    return heads;
  };
  auto const references = [&](tessera::task_heads const& heads) {
    std::vector<reference_mlp> result;
    for (std::int64_t t = 0; t < heads.tasks(); ++t) {
      auto const values = harness.get(heads.head(t).parameters());
      result.push_back({heads.head(t).widths(), tessera::activation::identity, {values.begin(), values.end()}});
    }
    return result;
  };

  struct outcome {
    strided_floats y, x_gradient;
    std::vector<float> parameter_gradient;
  };
  auto const run = [&](tessera::task_heads const& heads, strided_floats const& x, strided_floats const& gradient, bool wants_x = true) {
    outcome result{strided_floats(x.rows, heads.tasks(), 2), strided_floats(x.rows, x.columns, 5),
                   std::vector<float>(static_cast<std::size_t>(heads.parameters().size()), std::nanf(""))};
    auto const there_x = harness.put(x.storage);
    auto there_y = harness.put(result.y.storage), there_g = harness.put(gradient.storage),
         there_xg = harness.put(result.x_gradient.storage), there_pg = harness.put(result.parameter_gradient);
    tessera::task_heads_saved saved;
    heads.forward(harness.exec(), harness.policy(), x.in(there_x.data()), result.y.in(there_y.data()), saved);
    heads.backward(harness.exec(), harness.policy(), saved, gradient.in(there_g.data()), {there_pg.data(), heads.parameters().size()},
                   wants_x ? result.x_gradient.in(there_xg.data()) : tessera::matrix_view<float>{});
    result.y.storage = harness.get(there_y);
    result.x_gradient.storage = harness.get(there_xg);
    result.parameter_gradient = harness.get(there_pg);
    auto gaps = gradient;
    gaps.storage = harness.get(there_g);
    CHECK(gaps.gaps_intact());
    CHECK(result.y.gaps_intact());
    CHECK(result.x_gradient.gaps_intact());
    return result;
  };

  SUBCASE("forward and backward match a double reference, the input's gradient is the sum over the tasks") {
    for (auto const& hidden : std::vector<hidden_widths>{{{}}, {{4}}, {{}, {}}, {{3}, {}, {5, 7}}, {{16}, {16}, {16}, {17}}})
      for (std::int64_t const input : {1, 13, 130})
        for (std::int64_t const samples : {1, 2, 67}) {
          CAPTURE(hidden.size());
          CAPTURE(input);
          CAPTURE(samples);
          auto const heads = make(input, hidden);
          auto const reference = references(heads);
          strided_floats x(samples, input, 3);
          for (std::int64_t s = 0; s < samples; ++s)
            for (double closest = 0; closest < 1e-5;) {  // off every head's kinks
              strided_floats const row(random, 1, input, 0);
              for (std::int64_t c = 0; c < input; ++c) x.at(s, c) = row.at(0, c);
              closest = 1;
              for (auto const& head : reference) head.forward(doubles(row), &closest);
            }
          strided_floats const gradient(random, samples, heads.tasks(), 1);
          auto const result = run(heads, x, gradient);

          std::vector<double> parameter_gradient;
          doubles y(samples, heads.tasks()), x_gradient(samples, input);
          for (std::size_t t = 0; t < reference.size(); ++t) {
            auto const task = static_cast<std::int64_t>(t);
            auto const logits = reference[t].forward(doubles(x)).back();
            for (std::int64_t s = 0; s < samples; ++s) y.at(s, task) = logits.at(s, 0);
            auto const one = reference[t].backward(doubles(x), doubles(gradient.view().columns_from(task, 1)));
            parameter_gradient.insert(parameter_gradient.end(), one.parameters.begin(), one.parameters.end());
            for (std::size_t i = 0; i < x_gradient.values.size(); ++i) x_gradient.values[i] += one.x.values[i];
          }
          CHECK(worst_difference(result.y, y) < 1e-5);
          CHECK(worst_difference(result.x_gradient, x_gradient) < 1e-5);
          CHECK(worst_difference(result.parameter_gradient, parameter_gradient) < 1e-5);
          CHECK(same_bits(run(heads, x, gradient, false).parameter_gradient, result.parameter_gradient));
        }
  }

  SUBCASE("one head is an MLP, to the bit") {
    tessera::task_heads const heads(harness.exec(), tessera::task_heads_options{6, {{8, 4}}, tessera::random_seed{seed}, 3});
    tessera::mlp const net(harness.exec(),
                           tessera::mlp_options{{6, 8, 4, 1}, tessera::activation::identity, tessera::random_seed{seed}, 3});
    CHECK(same_bits(harness.get(heads.parameters()), harness.get(net.parameters())));
  }

  SUBCASE("an empty batch has a gradient of zero") {
    for (auto const g : run(make(5, {{4}, {}}), strided_floats(0, 5, 0), strided_floats(0, 2, 0)).parameter_gradient) CHECK(g == 0);
  }

  SUBCASE("several forwards are in flight before their backwards") {
    auto const heads = make(6, {{5}, {4}});
    strided_floats const x(random, 4, 6, 0), other(random, 9, 6, 0), gradient(random, 4, 2, 0);
    auto const alone = run(heads, x, gradient);
    auto const there_x = harness.put(x.storage), there_other = harness.put(other.storage);
    auto there_y = harness.put(std::vector<float>(8)), there_y2 = harness.put(std::vector<float>(18)),
         there_g = harness.put(gradient.storage), there_pg = harness.put(alone.parameter_gradient);
    tessera::task_heads_saved first, second;
    heads.forward(harness.exec(), harness.policy(), x.in(there_x.data()), {there_y.data(), 4, 2}, first);
    heads.forward(harness.exec(), harness.policy(), other.in(there_other.data()), {there_y2.data(), 9, 2}, second);
    heads.backward(harness.exec(), harness.policy(), first, gradient.in(there_g.data()), {there_pg.data(), heads.parameters().size()});
    CHECK(same_bits(harness.get(there_pg), alone.parameter_gradient));
  }

  SUBCASE("a task without labels leaves its head alone and the others as they would be without it") {
    auto const two = make(7, {{8}, {8}});
    strided_floats const x(random, 20, 7, 0);
    strided_floats labels(20, 2, 0, std::nanf(""));
    for (std::int64_t s = 0; s < 20; ++s) labels.at(s, 0) = static_cast<float>(random() % 2);
    auto const logits = run(two, x, strided_floats(20, 2, 0, 0)).y;
    strided_floats gradient(20, 2, 0);
    auto const there_logits = harness.put(logits.storage), there_labels = harness.put(labels.storage);
    auto there_gradient = harness.put(gradient.storage);
    std::vector<double> losses(2);
    tessera::multi_task_bce(harness.exec(), logits.in(there_logits.data()), labels.in(there_labels.data()), {},
                            gradient.in(there_gradient.data()), losses);
    gradient.storage = harness.get(there_gradient);
    auto const result = run(two, x, gradient);
    CHECK(losses[0] > 0);
    CHECK(losses[1] == 0);
    auto const of_first = static_cast<std::ptrdiff_t>(two.head(0).parameters().size());
    auto const& g = result.parameter_gradient;
    CHECK(std::all_of(g.begin() + of_first, g.end(), [](float value) { return value == 0; }));
    CHECK(std::any_of(g.begin(), g.begin() + of_first, [](float value) { return value != 0; }));
  }
}

}  // namespace tessera_tests
