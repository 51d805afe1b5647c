// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 10
#include <doctest/doctest.h>

#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/row_update.hpp>
#include <tessera/embed/update_rows.hpp>

#include "../support/type_lists.hpp"
#include "pooled_lookup_backward_suite.hpp"

using namespace embed_tests;

namespace {

struct decayed {
  static constexpr int row_state = 1;
  static constexpr int element_state = 0;
  static constexpr bool uses_sum_of_squares = true;
  float gradient_of(float gradient, float weight) const { return gradient + 0.5F * weight; }
  float begin_row(float* state, tessera::row_gradient const& row) const {
    state[0] = row.sum_of_squares;
    return 1;
  }
  void update(float& weight, float*, std::int64_t, float gradient, float) const { weight -= gradient; }
};
static_assert(tessera::row_optimizer<decayed>);

// One row, one id, a constant gradient: `steps` updates of -rate * gradient each.
template <class Element>
double mean_after(tessera::host_exec const& exec, std::int64_t dim, int steps, float update) {
  tessera::table_options const options{.id = tessera::table_id{1}, .dim = dim, .rows = 1, .init_bound = 0, .seed = tessera::random_seed{9}};
  std::vector<tessera::dense_table<Element>> tables;
  tables.emplace_back(exec, options, tessera::sgd{});
  set_row(tables[0], 0, std::vector<float>(static_cast<std::size_t>(dim), 1.0F));
  std::vector<tessera::pooled_feature> const features{{.table = 0}};
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{0}}}});
  pooled_matrices out({options}, features, std::as_const(batch).view()), gradients({options}, features, std::as_const(batch).view());
  gradients.fill([&] { return -update; });
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, features, std::as_const(batch).view(), out.out(), saved);
  for (int step = 0; step < steps; ++step)
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), tessera::sgd{.learning_rate = 1});
  double sum = 0;
  for (auto const x : values_of_row(tables[0], 0)) sum += static_cast<double>(x);
  return sum / static_cast<double>(dim);
}

using doubles = std::vector<double>;

double sum_of_squares(doubles const& values) {
  double sum = 0;
  for (auto const x : values) sum += x * x;
  return sum;
}

// What an optimizer does to a row, in double: `update(weights, states, gradient, step)`. Adaptors wrap another, as those under test do.
// Options are powers of two, the same in float.
namespace reference {

auto sgd(double rate) {
  return [=](doubles& w, doubles&, doubles const& g, std::int64_t) {
    for (std::size_t c = 0; c < g.size(); ++c) w[c] -= rate * g[c];
  };
}
auto momentum_sgd(double rate, double momentum, double dampening, bool nesterov) {
  return [=](doubles& w, doubles& state, doubles const& g, std::int64_t step) {
    for (std::size_t c = 0; c < g.size(); ++c) {
      state[c] = momentum * state[c] + (step == 1 ? 1 : 1 - dampening) * g[c];
      w[c] -= rate * (nesterov ? g[c] + momentum * state[c] : state[c]);
    }
  };
}
auto adagrad(double rate, double epsilon) {
  return [=](doubles& w, doubles& state, doubles const& g, std::int64_t) {
    for (std::size_t c = 0; c < g.size(); ++c) {
      state[c] += g[c] * g[c];
      w[c] -= rate * g[c] / (std::sqrt(state[c]) + epsilon);
    }
  };
}
auto rowwise_adagrad(double rate, double epsilon) {
  return [=](doubles& w, doubles& state, doubles const& g, std::int64_t) {
    state[0] += sum_of_squares(g) / static_cast<double>(g.size());
    for (std::size_t c = 0; c < g.size(); ++c) w[c] -= rate * g[c] / (std::sqrt(state[0]) + epsilon);
  };
}
auto adam(double rate, double beta1, double beta2, double epsilon) {
  return [=](doubles& w, doubles& state, doubles const& g, std::int64_t step) {
    auto const t = static_cast<double>(step);
    for (std::size_t c = 0; c < g.size(); ++c) {
      auto &m = state[c], &v = state[g.size() + c];
      m = beta1 * m + (1 - beta1) * g[c];
      v = beta2 * v + (1 - beta2) * g[c] * g[c];
      w[c] -= rate * m / (1 - std::pow(beta1, t)) / (std::sqrt(v / (1 - std::pow(beta2, t))) + epsilon);
    }
  };
}
auto rowwise_adam(double rate, double beta1, double beta2, double epsilon) {
  return [=](doubles& w, doubles& state, doubles const& g, std::int64_t step) {
    auto const t = static_cast<double>(step);
    auto& v = state[g.size()];
    v = beta2 * v + (1 - beta2) * sum_of_squares(g) / static_cast<double>(g.size());
    for (std::size_t c = 0; c < g.size(); ++c) {
      state[c] = beta1 * state[c] + (1 - beta1) * g[c];
      w[c] -= rate * state[c] / (1 - std::pow(beta1, t)) / (std::sqrt(v / (1 - std::pow(beta2, t))) + epsilon);
    }
  };
}
auto ftrl(double rate, double beta, double lambda1, double lambda2) {
  return [=](doubles& w, doubles& state, doubles const& g, std::int64_t) {
    for (std::size_t c = 0; c < g.size(); ++c) {
      auto &z = state[c], &n = state[g.size() + c];
      z += g[c] - (std::sqrt(n + g[c] * g[c]) - std::sqrt(n)) / rate * w[c];
      n += g[c] * g[c];
      w[c] = std::abs(z) <= lambda1 ? 0 : (std::copysign(lambda1, z) - z) / ((beta + std::sqrt(n)) / rate + lambda2);
    }
  };
}

template <class Wrapped>
auto with_weight_decay(Wrapped wrapped, double decay) {
  return [=](doubles& w, doubles& state, doubles g, std::int64_t step) {
    for (std::size_t c = 0; c < g.size(); ++c) g[c] += decay * w[c];
    wrapped(w, state, g, step);
  };
}
template <class Wrapped>
auto with_value_clipping(Wrapped wrapped, double limit) {
  return [=](doubles& w, doubles& state, doubles g, std::int64_t step) {
    for (auto& x : g) x = std::clamp(x, -limit, limit);
    wrapped(w, state, g, step);
  };
}
template <class Wrapped>
auto with_decoupled_weight_decay(Wrapped wrapped, double rate, double decay) {
  return [=](doubles& w, doubles& state, doubles const& g, std::int64_t step) {
    for (auto& x : w) x -= rate * decay * x;
    wrapped(w, state, g, step);
  };
}
template <class Wrapped>
auto with_row_clipping(Wrapped wrapped, double max_norm) {
  return [=](doubles& w, doubles& state, doubles g, std::int64_t step) {
    if (auto const norm = std::sqrt(sum_of_squares(g)); norm > max_norm)
      for (auto& x : g) x *= max_norm / norm;
    wrapped(w, state, g, step);
  };
}

}  // namespace reference

// How far the values beside one lie apart at most, in a row of elements of fewer bits than a float.
template <class Store>
double gap_at(Store const& store, std::int64_t slot, double value) {
  using element = typename Store::element;
  auto const magnitude = std::abs(value);
  if constexpr (std::is_same_v<element, tessera::scaled_int8>)
    return static_cast<double>(tessera::row_scale<element>::of(store.row(slot)).step);
  if (std::is_same_v<element, tessera::float16>) return magnitude * 0x1p-10;
  if (std::is_same_v<element, tessera::bfloat16>) return magnitude * 0x1p-7;
  if (std::is_same_v<element, tessera::float8_e4m3>) return std::max(magnitude * 0x1p-3, 0x1p-9);
  if (std::is_same_v<element, tessera::float8_e5m2>) return std::max(magnitude * 0x1p-2, 0x1p-16);
  return 0;
}

// Four steps of pooled_lookup_backward beside the reference. A row of fewer bits is rounded to a neighbour at each step; the reference then
// goes on from there, so that what is left is one rounding.
template <class Store, class Optimizer, class Update>
void compare_with(Optimizer const& optimizer, Update const& update) {
  using element = typename Store::element;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({1, 3, 16, 17, 64, 130}, 30);
  auto const features = features_over(6);
  auto tables = make_tables<Store>(exec, options, optimizer);
  double_rows rows, states;
  for (std::int64_t step = 1; step <= 4; ++step) {
    auto const batch =
        random_batch(exec, random, features.size(), {.id_range = 30, .most_rows = 20, .mean_length = 3, .weighted = step % 2 == 0});
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    pooled_matrices out(options, features, view);
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), optimizer);
    double worst = 0;  // distance from the reference, in what one step may be off by
    for (auto const& [key, gradient] : reference_gradients(options, features, view, gradients)) {
      auto& row = rows[key];
      if (row.empty()) {
        auto const initial = stored_initial_row<element>(options[static_cast<std::size_t>(key.first)], key.second);
        row.assign(initial.begin(), initial.end());
      }
      auto& state = states[key];
      state.resize(2 * gradient.size() + 1);
      update(row, state, gradient, step);
      auto const& table = tables[static_cast<std::size_t>(key.first)];
      auto const slot = find(exec, table, {key.second})[0];
      auto const trained = values_of_row(table, slot);
      for (std::size_t c = 0; c < row.size(); ++c) {
        auto const weight = static_cast<double>(trained[c]);
        worst = std::max(worst, std::abs(weight - row[c]) / (1e-4 + gap_at(table, slot, row[c])));
        if (!std::is_same_v<element, float>) row[c] = weight;
      }
    }
    CAPTURE(step);
    CHECK(worst <= 1);
  }
}

// A batch in which id 3 stands at three of five positions, a run of many chunks: its gradient in the documented order and in double, and
// the contents of a table after a step, which no number of threads changes.
template <class Optimizer>
void check_hot_id(std::int64_t dim, Optimizer const& optimizer) {
  CAPTURE(dim);
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  constexpr std::int64_t ids = 50, hot = 3;
  auto const options = tables_of_dims({dim}, ids);
  auto const features = features_over(1);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    std::vector<std::vector<std::int64_t>> rows(20'000);
    for (auto& row : rows) row.push_back(random() % 5 < 3 ? hot : static_cast<std::int64_t>(random() % ids));
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", rows}});
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    auto const width = static_cast<std::size_t>(dim);
    std::vector<float> sum(width), chunk(width);
    doubles in_double(width);
    std::int64_t found = 0;
    auto const end_chunk = [&] {
      for (std::size_t c = 0; c < width; ++c) sum[c] = found <= tessera::canonical_sum_chunk ? chunk[c] : sum[c] + chunk[c];
    };
    for (std::int64_t bag = 0; bag < view.size(); ++bag) {
      if (view.values[bag] != hot) continue;
      auto const* const gradient = gradients.in()[0].row(bag);
      bool const begins = found++ % tessera::canonical_sum_chunk == 0;
      for (std::size_t c = 0; c < width; ++c) {
        chunk[c] = begins ? gradient[c] : chunk[c] + gradient[c];
        in_double[c] += static_cast<double>(gradient[c]);
      }
      if (found % tessera::canonical_sum_chunk == 0) end_chunk();
    }
    if (found % tessera::canonical_sum_chunk != 0) end_chunk();
    REQUIRE(found > 8 * tessera::canonical_sum_chunk);

    auto tables = make_tables<tessera::dense_table<>>(exec, options, optimizer);
    pooled_matrices out(options, features, view);
    tessera::lookup_saved saved;
    tessera::row_gradients summed;
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    tessera::pooled_lookup_gradients(exec, std::as_const(tables), features, saved, gradients.in(), summed);
    REQUIRE(summed.slots(0)[hot] == hot);
    auto const* const handed_out = std::as_const(summed).values(0).row(hot);
    CHECK(same_bits(handed_out, sum.data(), dim));
    double worst = 0;
    for (std::size_t c = 0; c < width; ++c) worst = std::max(worst, std::abs(static_cast<double>(handed_out[c]) - in_double[c]));
    CHECK(worst < 1e-2);
    auto handed = make_tables<tessera::dense_table<>>(exec, options, optimizer);
    tessera::update_rows(exec, handed, summed, optimizer);
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), optimizer);
    auto const all = contents(exec, tables, ids);
    CHECK(same_bits(all, contents(exec, handed, ids)));
    if (first.empty()) first = all;
    CHECK(same_bits(all, first));
  });
}

}  // namespace

TEST_CASE("an id that takes most of a batch: the documented sum, on any team") {
  for (std::int64_t const dim : {1, 17, 128}) {
    check_hot_id(dim, tessera::sgd{.learning_rate = 0.1F});
    check_hot_id(dim, tessera::rowwise_adagrad{.learning_rate = 0.1F});
  }
}

TEST_CASE_TEMPLATE("optimizers through the backward match a double reference", Store, TESSERA_TEST_STORES, TESSERA_TEST_SMALL_STORES) {
  compare_with<Store>(tessera::momentum_sgd{.learning_rate = 0.0625F, .momentum = 0.75F, .dampening = 0.25F, .nesterov = true},
                      reference::momentum_sgd(0.0625, 0.75, 0.25, true));
  compare_with<Store>(tessera::ftrl{.learning_rate = 0.125F, .beta = 0.5F, .lambda1 = 0.25F, .lambda2 = 0.5F},
                      reference::ftrl(0.125, 0.5, 0.25, 0.5));
  compare_with<Store>(tessera::rowwise_adam{.learning_rate = 0.03125F, .beta1 = 0.75F, .beta2 = 0.875F, .epsilon = 0x1p-10F},
                      reference::rowwise_adam(0.03125, 0.75, 0.875, 0x1p-10));
}

TEST_CASE_TEMPLATE("weight decay and clipping through the backward match a double reference", Store, TESSERA_TEST_STORES) {
  using namespace tessera;
  compare_with<Store>(with_weight_decay{rowwise_adagrad{.learning_rate = 0.125F, .epsilon = 0x1p-10F}, 0.5F},
                      reference::with_weight_decay(reference::rowwise_adagrad(0.125, 0x1p-10), 0.5));
  compare_with<Store>(with_row_clipping{sgd{0.25F}, 1.5F}, reference::with_row_clipping(reference::sgd(0.25), 1.5));
  compare_with<Store>(with_row_clipping{with_weight_decay{sgd{0.25F}, 0.5F}, 1.5F},
                      reference::with_row_clipping(reference::with_weight_decay(reference::sgd(0.25), 0.5), 1.5));
  // The row's norm is that of the decayed gradient, and the row-wise state that of the clipped one.
  compare_with<Store>(with_weight_decay{with_row_clipping{rowwise_adagrad{.learning_rate = 0.125F, .epsilon = 0x1p-10F}, 1.5F}, 0.5F},
                      reference::with_weight_decay(reference::with_row_clipping(reference::rowwise_adagrad(0.125, 0x1p-10), 1.5), 0.5));
  compare_with<Store>(with_value_clipping{adagrad{.learning_rate = 0.125F, .epsilon = 0x1p-10F}, 0.75F},
                      reference::with_value_clipping(reference::adagrad(0.125, 0x1p-10), 0.75));
  compare_with<Store>(
      with_decoupled_weight_decay{
          with_value_clipping{adam{.learning_rate = 0.03125F, .beta1 = 0.75F, .beta2 = 0.875F, .epsilon = 0x1p-10F}, 0.75F}, 0.5F},
      reference::with_decoupled_weight_decay(reference::with_value_clipping(reference::adam(0.03125, 0.75, 0.875, 0x1p-10), 0.75), 0.03125,
                                             0.5));
}

TEST_CASE_TEMPLATE("options with which nothing is learned are refused before a row changes", Store, TESSERA_TEST_STORES) {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::table_options const options{.id = tessera::table_id{1}, .dim = 3, .rows = 2, .seed = tessera::random_seed{9}};
  auto const nan = std::nanf("");
  CHECK_THROWS_AS(Store(exec, options, tessera::sgd{nan}), tessera::error);
  CHECK_THROWS_AS(Store(exec, options, tessera::rowwise_adagrad{.initial_state = -1}), tessera::error);
  for (tessera::rowwise_adam const wrong : {tessera::rowwise_adam{.learning_rate = -1}, {.beta1 = 1}, {.beta2 = nan}, {.epsilon = -1}})
    CHECK_THROWS_AS(Store(exec, options, wrong), tessera::error);

  std::vector<Store> tables;
  tables.emplace_back(exec, options, tessera::sgd{});
  std::vector<tessera::pooled_feature> const features{{.table = 0}};
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}}}});
  pooled_matrices out({options}, features, std::as_const(batch).view()), gradients({options}, features, std::as_const(batch).view());
  gradients.fill([] { return 1.0F; });
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, features, std::as_const(batch).view(), out.out(), saved);
  std::int64_t const id = 1;
  std::int64_t slot = -1;
  tables[0].find(exec, {&id, 1}, {&slot, 1});
  std::vector<float> const before(tables[0].row(slot), tables[0].row(slot) + 3);
  auto const backward = [&](auto const& optimizers) {
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), optimizers);
  };
  CHECK_THROWS_AS(backward(tessera::sgd{nan}), tessera::error);
  CHECK_THROWS_AS(backward(std::vector<tessera::sgd>{{-1.0F}}), tessera::error);
  CHECK(std::vector<float>(tables[0].row(slot), tables[0].row(slot) + 3) == before);
  CHECK(tables[0].steps() == tessera::step_count{0});
}

TEST_CASE_TEMPLATE("states of another kind of optimizer are refused, though they are as large", Store, TESSERA_TEST_STORES) {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::table_options const options{.id = tessera::table_id{1}, .dim = 3, .rows = 2};
  std::vector<Store> tables;
  tables.emplace_back(exec, options, tessera::adagrad{});
  std::vector<tessera::pooled_feature> const features{{.table = 0}};
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}}}});
  pooled_matrices out({options}, features, std::as_const(batch).view());
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, features, std::as_const(batch).view(), out.out(), saved);
  CHECK_THROWS_WITH_AS(tessera::pooled_lookup_backward(exec, tables, features, saved, out.in(), tessera::momentum_sgd{}),
                       "pooled_lookup_backward: the optimizer state is of another kind (built for adagrad, optimizer momentum_sgd)",
                       tessera::error);
  CHECK(tables[0].steps() == tessera::step_count{0});
  tessera::pooled_lookup_backward(exec, tables, features, saved, out.in(), tessera::with_weight_decay<tessera::adagrad>{});
  CHECK(tables[0].steps() == tessera::step_count{1});
}

TEST_CASE_TEMPLATE("weight decay and clipping reach rows of fewer bits", Store,
                   tessera::dense_table<tessera::scaled_int8> TESSERA_TEST_MORE_TYPES(, tessera::dense_table<tessera::float16>,
                                                                                      tessera::hash_table<tessera::float8_e4m3>)) {
  using namespace tessera;
  compare_with<Store>(with_weight_decay{with_row_clipping{rowwise_adagrad{.learning_rate = 0.125F, .epsilon = 0x1p-10F}, 1.5F}, 0.5F},
                      reference::with_weight_decay(reference::with_row_clipping(reference::rowwise_adagrad(0.125, 0x1p-10), 1.5), 0.5));
}

TEST_CASE_TEMPLATE("rows of fewer bits: the mean of many small updates survives", Element, TESSERA_TEST_SMALL_ELEMENTS) {
  tessera_tests::serial_host host;
  // From 1 on, a row's next value is a multiple of 2^-10 away: rounded to nearest, updates of 2^-13 would all be lost.
  constexpr float update = 0x1p-13F;
  constexpr int steps = 512;
  constexpr std::int64_t dim = 4099;
  constexpr double gap = std::is_same_v<Element, tessera::float16>       ? 0x1p-10
                         : std::is_same_v<Element, tessera::bfloat16>    ? 0x1p-7
                         : std::is_same_v<Element, tessera::float8_e4m3> ? 0x1p-3
                         : std::is_same_v<Element, tessera::float8_e5m2> ? 0x1p-2
                                                                         : 0x1p-6;
  CHECK(stored<Element>({1.0F + update}) == std::vector<float>{1});
  double const added = steps * static_cast<double>(update);
  // Each step adds a variance of at most gap * update; six deviations of the mean over the row.
  double const deviation = std::sqrt(gap * added / static_cast<double>(dim));
  CHECK(std::abs(mean_after<Element>(host.exec(), dim, steps, update) - 1 - added) < 6 * deviation);
  CHECK(6 * deviation < 0.5 * added);  // the bound means something
}

TEST_CASE_TEMPLATE("rows of fewer bits: each element is rounded by its own random word", Element, TESSERA_TEST_SMALL_ELEMENTS) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t id = 3;
  for (std::int64_t const dim : {1, 3, 5, 8, 64, 65, 67, 127, 128, 130, 1030}) {
    CAPTURE(dim);
    auto const options = tables_of_dims({dim}, 5);
    auto tables = make_tables<tessera::dense_table<Element>>(exec, options, tessera::sgd{});
    std::vector<tessera::pooled_feature> const features{{.table = 0}};
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{id}}}});
    auto const gradients = random_gradients(random, options, features, std::as_const(batch).view());
    auto values = values_of_row(tables[0], id);
    for (std::size_t c = 0; c < values.size(); ++c) values[c] -= gradients.in()[0](0, static_cast<std::int64_t>(c));
    auto const scale = tessera::row_scale<Element>::for_values(values.data(), dim);
    std::vector<float> expected;
    for (std::uint32_t c = 0; c < values.size(); ++c) {
      auto const words = tessera::rounding_block(options[0], tessera::step_count{1}, id, c / 4);
      expected.push_back(scale.value(scale.stochastic(values[c], words[static_cast<int>(c % 4)])));
    }
    pooled_matrices out(options, features, std::as_const(batch).view());
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, tables, features, std::as_const(batch).view(), out.out(), saved);
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), tessera::sgd{.learning_rate = 1});
    CHECK(same_bits(values_of_row(tables[0], id), expected));
    CHECK(rows_are_initial(tables[0], {id - 1, id + 1}, {id - 1, id + 1}));
  }
}

TEST_CASE_TEMPLATE("rows that share a scale: it grows and shrinks with the row, and what does not change keeps its value", Store,
                   tessera::dense_table<tessera::scaled_int8>, tessera::hash_table<tessera::scaled_int8>) {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::vector<tessera::table_options> const options{{.id = tessera::table_id{1}, .dim = 3, .rows = 8, .init_bound = 1}};
  std::vector<tessera::pooled_feature> const features{{.table = 0}};
  auto tables = make_tables<Store>(exec, options, tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{4}}}});
  auto const view = std::as_const(batch).view();
  auto const slots = locate(exec, tables[0], {3, 4, 5});
  auto const step_of = [&] { return tessera::row_scale<tessera::scaled_int8>::of(tables[0].row(slots[1])).step; };
  auto const add = [&](std::vector<float> const& what) {
    pooled_matrices out(options, features, view), gradients(options, features, view);
    gradients.fill([&, c = std::size_t{0}]() mutable { return -what[c++]; });
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), tessera::sgd{.learning_rate = 1});
    CHECK(rows_are_initial(tables[0], {3, 5}, {slots[0], slots[2]}));  // the neighbours
    return values_of_row(tables[0], slots[1]);
  };
  auto const nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  set_row(tables[0], slots[1], {1, 2, -3});
  CHECK(step_of() == 0x1p-5F);
  CHECK(add({0.5F, 0, 0}) == std::vector<float>{1.5F, 2, -3});
  auto const grown = add({998.5F, 0, 0});
  CHECK(step_of() == 8);
  CHECK(grown[0] == 1000);
  CHECK((grown[1] == 0 || grown[1] == 8));
  CHECK((grown[2] == 0 || grown[2] == -8));
  CHECK(add({-1000, 0, 0}) == std::vector<float>{0, grown[1], grown[2]});
  CHECK(step_of() <= 0x1p-3F);
  CHECK(add({0x1p-4F, 4 - grown[1], -4 - grown[2]}) == std::vector<float>{0x1p-4F, 4, -4});
  CHECK(step_of() == 0x1p-4F);
  CHECK(add({-0x1p-4F, -4, 4}) == std::vector<float>{0, 0, 0});
  CHECK(step_of() == 0x1p-126F);
  CHECK(add({0, 0, 0x1p-30F}) == std::vector<float>{0, 0, 0x1p-30F});
  CHECK(step_of() == 0x1p-36F);
  for (auto const x : add({0, infinity, 0})) CHECK(std::isnan(x));
  for (auto const x : add({0, 0, 0})) CHECK(std::isnan(x));
  set_row(tables[0], slots[1], {1, 2, -3});
  for (auto const x : add({nan, 0, 0})) CHECK(std::isnan(x));
}

TEST_CASE_TEMPLATE("rows of fewer bits: dense and hashed stores, any team, the same bits", Element, TESSERA_TEST_SMALL_ELEMENTS) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  constexpr std::int64_t ids = 30;
  auto const options = tables_of_dims({1, 3, 16, 17, 64, 130}, ids);
  auto const features = features_over(6);
  std::vector<float> first;
  auto const run = [&]<class Store>(std::type_identity<Store>, tessera::host_exec const& exec) {
    std::mt19937_64 random(seed);
    tessera::adagrad const optimizer{.learning_rate = 0.01F};
    auto tables = make_tables<Store>(exec, options, optimizer);
    for (int step = 0; step < 4; ++step) {
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = ids, .most_rows = 30, .mean_length = 4, .weighted = true});
      auto const view = std::as_const(batch).view();
      auto const gradients = random_gradients(random, options, features, view);
      pooled_matrices out(options, features, view);
      tessera::lookup_saved saved;
      tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
      tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), optimizer);
    }
    auto all = contents(exec, tables, ids);
    for (auto& x : all)  // an id that no batch named has a row in one kind of store only
      if (std::isnan(x)) x = -1;
    return all;
  };
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    auto const dense = run(std::type_identity<tessera::dense_table<Element>>{}, exec);
    auto const hashed = run(std::type_identity<tessera::hash_table<Element>>{}, exec);
    if (first.empty()) first = dense;
    CHECK(same_bits(first, dense));
    REQUIRE(dense.size() == hashed.size());
    std::size_t different = 0, absent = 0;
    for (std::size_t i = 0; i < dense.size(); ++i) {
      absent += hashed[i] == -1.0F;
      different += hashed[i] != -1.0F && hashed[i] != dense[i];
    }
    CHECK(different == 0);
    CHECK(absent < dense.size() / 2);
  });
}

TEST_CASE("an optimizer that looks at the weight first: decay is part of the gradient") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::table_options const options{.id = tessera::table_id{1}, .dim = 2, .rows = 1, .init_bound = 0, .seed = tessera::random_seed{9}};
  std::vector<tessera::dense_table<>> tables;
  tables.emplace_back(exec, options, decayed{});
  tables[0].row(0)[0] = 2;
  tables[0].row(0)[1] = -4;
  std::vector<tessera::pooled_feature> const features{{.table = 0}};
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{0}}}});
  pooled_matrices out({options}, features, std::as_const(batch).view()), gradients({options}, features, std::as_const(batch).view());
  gradients.fill([] { return 1.0F; });
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, features, std::as_const(batch).view(), out.out(), saved);
  tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), decayed{});
  CHECK(tables[0].row(0)[0] == 0.0F);           // 2 - (1 + 1)
  CHECK(tables[0].row(0)[1] == -3.0F);          // -4 - (1 - 2)
  CHECK(tables[0].state(0)[0] == 4.0F + 1.0F);  // of the decayed gradient
  CHECK(gradients.in()[0](0, 0) == 1.0F);       // the caller's gradients stay
}
