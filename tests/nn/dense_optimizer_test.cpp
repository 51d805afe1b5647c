// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include "dense_optimizer_suite.hpp"

namespace {

/// A user's own optimizer.
struct own_momentum {
  static constexpr int row_state = 0;
  static constexpr int element_state = 1;
  float learning_rate = 0.1F;
  float momentum = 0.9F;
  float begin_row(float*, tessera::row_gradient const&) const { return learning_rate; }
  void update(float& weight, float* state, std::int64_t, float gradient, float rate) const {
    state[0] = momentum * state[0] + gradient;
    weight -= rate * state[0];
  }
};
static_assert(tessera::dense_optimizer<own_momentum>);

struct with_row_state : own_momentum {
  static constexpr int row_state = 1;
};
struct without_element_state {
  static constexpr int row_state = 0;
  float begin_row(float*, tessera::row_gradient const&) const { return 0; }
  void update(float&, float*, std::int64_t, float, float) const {}
};
struct without_begin {
  static constexpr int row_state = 0;
  static constexpr int element_state = 0;
  void update(float&, float*, std::int64_t, float, float) const {}
};
struct not_plain : own_momentum {
  std::vector<float> rates;
};
template <class Optimizer>
concept accepted = requires(tessera::host_exec const& exec, std::vector<float>& floats, tessera::dense_optimizer_state& state,
                            Optimizer optimizer) {
  tessera::dense_update(exec, floats, floats, state, optimizer);
};
static_assert(accepted<tessera::sgd> && accepted<tessera::adagrad> && accepted<tessera::adam> && accepted<own_momentum>);
static_assert(!accepted<with_row_state>, "a block of parameters has no rows");
static_assert(accepted<tessera::momentum_sgd> && accepted<tessera::ftrl> && accepted<tessera::with_weight_decay<tessera::adam>>);
static_assert(!accepted<tessera::with_row_clipping<tessera::sgd>> &&
                  !accepted<tessera::with_weight_decay<tessera::with_row_clipping<tessera::sgd>>>,
              "a block of parameters has no norm of a row");
static_assert(!accepted<without_element_state> && !accepted<without_begin> && !accepted<not_plain> && !accepted<int>);

using harness = tessera_tests::nn_host<tessera_tests::naive_gemm>;

TEST_CASE("dense_update on the host") { tessera_tests::dense_optimizer_suite<harness>(); }

TEST_CASE("dense_update with a user's optimizer") {
  harness host;
  std::vector<float> weights{1, 2};
  tessera::dense_optimizer_state state(host.exec(), 2, own_momentum{});
  for (int step = 0; step < 2; ++step) tessera::dense_update(host.exec(), weights, std::vector<float>{1, -1}, state, own_momentum{});
  CHECK(weights[0] == doctest::Approx(1 - 0.1 - 0.19));
  CHECK(weights[1] == doctest::Approx(2 + 0.1 + 0.19));
}

TEST_CASE("dense_update: 1, 2 and 4 threads give the same bits") {
  std::mt19937_64 random(1);
  auto const initial = tessera_tests::random_floats(random, 100'000), gradient = tessera_tests::random_floats(random, 100'000);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    auto weights = initial;
    tessera::dense_optimizer_state state(exec, 100'000, tessera::adam{});
    for (int step = 0; step < 3; ++step) tessera::dense_update(exec, weights, gradient, state, tessera::adam{});
    weights.insert(weights.end(), state.planes().begin(), state.planes().end());
    if (first.empty()) first = weights;
    CHECK(tessera_tests::same_bits(weights, first));
  });
}

TEST_CASE("dense_update: a parameter's bits do not depend on the block that it stands in") {
  std::mt19937_64 random(2);
  auto const initial = tessera_tests::random_floats(random, 126);
  harness host;
  auto const check = [&](auto const& optimizer) {
    auto whole = initial, halves = initial;
    tessera::dense_optimizer_state state(host.exec(), 126, optimizer), first(host.exec(), 63, optimizer),
        second(host.exec(), 63, optimizer);
    for (int step = 0; step < 10; ++step) {
      auto const gradient = tessera_tests::random_floats(random, 126);
      tessera::dense_update(host.exec(), whole, gradient, state, optimizer);
      tessera::dense_update(host.exec(), tessera::vector_view<float>(halves.data(), 63), {gradient.data(), 63}, first, optimizer);
      tessera::dense_update(host.exec(), tessera::vector_view<float>(halves.data() + 63, 63), {gradient.data() + 63, 63}, second,
                            optimizer);
    }
    CHECK(tessera_tests::same_bits(whole, halves));
  };
  using namespace tessera;
  check(momentum_sgd{.learning_rate = 0.01F, .dampening = 0.1F, .nesterov = true});
  check(adagrad{});
  check(adam{.learning_rate = 0.01F});
  check(ftrl{});
  check(with_weight_decay{adam{.learning_rate = 0.01F}, 0.3F});
  check(with_decoupled_weight_decay{adam{.learning_rate = 0.01F}, 0.3F});
  check(with_decoupled_weight_decay{with_value_clipping{adagrad{}, 0.5F}, 0.3F});
}

TEST_CASE("dense_update: the step count of a checkpoint carries on") {
  harness host;
  std::vector<float> straight{1, 1}, resumed{1, 1};
  std::vector<float> const gradient{0.5F, -2};
  tessera::dense_optimizer_state state(host.exec(), 2, tessera::adam{});
  auto const step = [&](std::vector<float>& weights, tessera::dense_optimizer_state& s) {
    tessera::dense_update(host.exec(), weights, gradient, s, tessera::adam{});
  };
  step(straight, state);
  resumed = straight;
  tessera::dense_optimizer_state loaded(host.exec(), 2, tessera::adam{});
  std::copy(state.planes().begin(), state.planes().end(), loaded.planes().begin());
  loaded.set_steps(state.steps());
  step(straight, state);
  step(resumed, loaded);
  CHECK(tessera_tests::same_bits(straight, resumed));
  CHECK(loaded.steps() == tessera::step_count{2});
}

}  // namespace
