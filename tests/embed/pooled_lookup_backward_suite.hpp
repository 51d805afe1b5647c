// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>

#include "hosts.hpp"
#include "pooled_problem.hpp"

namespace embed_tests {

using table_and_id = std::pair<std::int64_t, std::int64_t>;
using double_rows = std::map<table_and_id, std::vector<double>>;

/// The gradient of every row that a batch names, in double.
inline double_rows reference_gradients(std::vector<tessera::table_options> const& tables,
                                       std::vector<tessera::pooled_feature> const& features, sparse_view batch,
                                       pooled_matrices const& gradients) {
  double_rows sums;
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    auto const& feature = features[static_cast<std::size_t>(key)];
    auto const dim = static_cast<std::size_t>(tables[static_cast<std::size_t>(feature.table)].dim);
    auto const bags = batch.key(key);
    for (std::int64_t bag = 0; bag < bags.rows; ++bag)
      for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p) {
        auto& sum = sums[{feature.table, batch.values[p]}];
        sum.resize(dim);
        double const scale = contribution_scale(batch, key, bag, p, feature.pooling);
        for (std::size_t c = 0; c < dim; ++c)
          sum[c] += scale * static_cast<double>(gradients.in()[static_cast<std::size_t>(key)](bag, static_cast<std::int64_t>(c)));
      }
  }
  return sums;
}

/// Tables in double whose rows are trained by `update(row, state, gradient, step)`.
class reference_tables {
 public:
  explicit reference_tables(std::vector<tessera::table_options> const& options) : options_(options) {}

  std::vector<double>& row(table_and_id key) {
    auto& r = rows_[key];
    if (r.empty())
      for (auto const x : initial_row(options_[static_cast<std::size_t>(key.first)], key.second)) r.push_back(static_cast<double>(x));
    return r;
  }

  template <class Update>
  void step(double_rows const& gradients, Update const& update) {
    ++steps_;
    for (auto const& [key, gradient] : gradients) {
      auto& state = states_[key];
      state.resize(2 * gradient.size() + 1);
      update(row(key), state, gradient, steps_);
    }
  }

  template <class Store>
  bool close_to(tessera::host_exec const& exec, std::vector<Store> const& tables, double tolerance) {
    for (auto const& [key, expected] : rows_) {
      auto const& table = tables[static_cast<std::size_t>(key.first)];
      auto const slot = find(exec, table, {key.second})[0];
      if (slot < 0) return false;
      auto const row = values_of_row(table, slot);
      for (std::size_t c = 0; c < expected.size(); ++c)
        if (!(std::abs(static_cast<double>(row[c]) - expected[c]) <= tolerance)) return false;
    }
    return true;
  }

 private:
  std::vector<tessera::table_options> options_;
  double_rows rows_, states_;
  std::int64_t steps_ = 0;
};

/// Rows, then states, of ids [0, count) of every table, NaN where an id has none.
template <class Store>
std::vector<float> contents(tessera::host_exec const& exec, std::vector<Store> const& tables, std::int64_t count) {
  std::vector<float> all;
  for (auto const& table : tables)
    for (std::int64_t id = 0; id < count; ++id) {
      auto const slot = find(exec, table, {id})[0];
      auto const width = table.state_layout().width(table.dim());
      if (slot < 0) {
        all.insert(all.end(), static_cast<std::size_t>(table.dim() + width), std::numeric_limits<float>::quiet_NaN());
        continue;
      }
      auto const row = values_of_row(table, slot);
      all.insert(all.end(), row.begin(), row.end());
      all.insert(all.end(), table.state(slot), table.state(slot) + width);
    }
  return all;
}

/// Counts its calls: to see that each touched row is updated once, and each of its elements.
struct counting_updates {
  static constexpr int row_state = 1;
  static constexpr int element_state = 1;
  float begin_row(float* state, tessera::row_gradient const&) const noexcept {
    *state += 1;
    return 0;
  }
  void update(float&, float* state, std::int64_t, float, float) const noexcept { state[0] += 1; }
};

/// A row optimizer as a user would write one: SGD with momentum.
struct momentum {
  static constexpr int row_state = 0;
  static constexpr int element_state = 1;
  float learning_rate = 0.1F;
  float decay = 0.9F;
  float begin_row(float*, tessera::row_gradient const&) const { return learning_rate; }
  void update(float& weight, float* velocity, std::int64_t, float gradient, float rate) const {
    velocity[0] = decay * velocity[0] + gradient;
    weight -= rate * velocity[0];
  }
};
static_assert(tessera::row_optimizer<momentum>);

/// Another: steps along the sign, shorter from step to step.
struct sign_descent {
  static constexpr int row_state = 0;
  static constexpr int element_state = 0;
  float rate = 0.5F;
  float begin_row(float*, tessera::row_gradient const& row) const { return rate / static_cast<float>(row.step.value); }
  void update(float& weight, float*, std::int64_t, float gradient, float step) const {
    weight -= gradient > 0 ? step : gradient < 0 ? -step : 0;
  }
};

/// What the fused backward must show over every row store on every team.
template <class Store>
void pooled_lookup_backward_suite(int threads) {
  tessera_tests::pool host(threads);
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr std::int64_t ids = 60;
  auto const options = tables_of_dims({1, 3, 4, 8, 16, 17, 32, 64, 100, 128, 130}, ids);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  tessera::lookup_saved saved;

  // Forward and backward of one batch with gradients of no pattern.
  auto const train = [&](auto& tables, sparse_view batch, pooled_matrices const& gradients, auto const& optimizer) {
    pooled_matrices out(options, features, batch);
    tessera::pooled_lookup(exec, tables, features, batch, out.out(), saved);
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), optimizer);
  };

  // Several steps beside a reference in double.
  auto const compare = [&](auto const& optimizer, auto const& update, double tolerance) {
    auto tables = make_tables<Store>(exec, options, optimizer);
    reference_tables reference(options);
    for (int step = 1; step <= 4; ++step) {
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = ids, .most_rows = 40, .mean_length = 4, .weighted = step % 2 == 0});
      auto const view = std::as_const(batch).view();
      auto const gradients = random_gradients(random, options, features, view);
      train(tables, view, gradients, optimizer);
      reference.step(reference_gradients(options, features, view, gradients), update);
      CHECK(reference.close_to(exec, tables, tolerance));
      for (auto const& t : tables) CHECK(t.steps() == tessera::step_count(step));
    }
  };

  SUBCASE("SGD matches a double reference") {
    compare(
        tessera::sgd{.learning_rate = 0.1F},
        [](auto& row, auto&, auto const& g, std::int64_t) {
          for (std::size_t c = 0; c < g.size(); ++c) row[c] -= static_cast<double>(0.1F) * g[c];
        },
        2e-5);
  }

  SUBCASE("row-wise Adagrad matches a double reference") {
    compare(
        tessera::rowwise_adagrad{.learning_rate = 0.1F, .epsilon = 1e-2F},
        [](auto& row, auto& state, auto const& g, std::int64_t) {
          double squares = 0;
          for (auto const x : g) squares += x * x;
          state[0] += squares / static_cast<double>(g.size());
          for (std::size_t c = 0; c < g.size(); ++c)
            row[c] -= static_cast<double>(0.1F) * g[c] / (std::sqrt(state[0]) + static_cast<double>(1e-2F));
        },
        2e-5);
  }

  SUBCASE("Adam matches a double reference, with two states an element") {
    tessera::adam const adam{.learning_rate = 0.05F, .epsilon = 1e-3F};
    compare(
        adam,
        [&](auto& row, auto& state, auto const& g, std::int64_t step) {
          double const b1 = static_cast<double>(adam.beta1), b2 = static_cast<double>(adam.beta2), t = static_cast<double>(step);
          for (std::size_t c = 0; c < g.size(); ++c) {
            auto &m = state[c], &v = state[g.size() + c];
            m = b1 * m + (1 - b1) * g[c];
            v = b2 * v + (1 - b2) * g[c] * g[c];
            row[c] -= static_cast<double>(adam.learning_rate) * m / (1 - std::pow(b1, t)) /
                      (std::sqrt(v / (1 - std::pow(b2, t))) + static_cast<double>(adam.epsilon));
          }
        },
        1e-4);
  }

  SUBCASE("a row optimizer of the user's own: momentum") {
    compare(
        momentum{},
        [](auto& row, auto& state, auto const& g, std::int64_t) {
          for (std::size_t c = 0; c < g.size(); ++c) {
            state[c] = static_cast<double>(0.9F) * state[c] + g[c];
            row[c] -= static_cast<double>(0.1F) * state[c];
          }
        },
        5e-5);
  }

  SUBCASE("a row optimizer of the user's own: the step is the table's") {
    std::vector<tessera::pooled_feature> const one{{4}};
    auto tables = make_tables<Store>(exec, options, sign_descent{});
    for (auto& t : tables) t.set_steps(tessera::step_count(7));
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{3, 3, 5}}}});
    auto const view = std::as_const(batch).view();
    pooled_matrices matrix(options, one, view);
    tessera::pooled_lookup(exec, tables, one, view, matrix.out(), saved);
    matrix.fill([&, sign = 1.0F]() mutable { return sign = -sign; });
    tessera::pooled_lookup_backward(exec, tables, one, saved, matrix.in(), sign_descent{});
    auto const before = initial_row(options[4], 3);
    auto const* const after = tables[4].row(find(exec, tables[4], {3})[0]);
    for (std::size_t c = 0; c < 16; ++c) CHECK(after[c] == doctest::Approx(before[c] + (c % 2 == 0 ? 0.0625F : -0.0625F)));
    for (auto const& t : tables) CHECK(t.steps() == tessera::step_count(8));
  }

  SUBCASE("gradients are the derivatives of a loss through the lookup") {
    for (bool const weighted : {false, true}) {
      CAPTURE(weighted);
      auto tables = make_tables<Store>(exec, options, tessera::sgd{});
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = 12, .most_rows = 6, .mean_length = 3, .weighted = weighted});
      auto const view = std::as_const(batch).view();
      double_rows rows;
      for (std::size_t t = 0; t < options.size(); ++t)
        for (std::int64_t id = 0; id < 12; ++id) {
          auto const row = initial_row(options[t], id);
          rows[{static_cast<std::int64_t>(t), id}].assign(row.begin(), row.end());
        }
      // loss = sum of coefficient * output^2 / 2, in double
      auto coefficients = random_gradients(random, options, features, view).values();
      auto const loss = [&] {
        auto const out = reference_pool(
            options, features, view, [&](std::int64_t t, std::int64_t id) -> auto const& {
              return rows[{t, id}];
            });
        double sum = 0;
        for (std::size_t i = 0; i < out.size(); ++i) sum += static_cast<double>(coefficients[i]) * out[i].value * out[i].value / 2;
        return sum;
      };
      pooled_matrices out(options, features, view);
      tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
      pooled_matrices gradients(options, features, view);
      gradients.fill([&, i = std::size_t{0}, values = out.values()]() mutable {
        auto const g = coefficients[i] * values[i];
        ++i;
        return g;
      });
      tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), tessera::sgd{.learning_rate = 1});
      for (auto& [key, row] : rows) {
        auto const slot = find(exec, tables[static_cast<std::size_t>(key.first)], {key.second})[0];
        // One element of each row.
        auto const c = random() % row.size();
        auto const before = row[c];
        double const step = 1e-3;  // the loss is quadratic: central differences are exact
        row[c] = before + step;
        auto const above = loss();
        row[c] = before - step;
        auto const below = loss();
        row[c] = before;
        auto const slope = (above - below) / (2 * step);
        auto const moved = slot < 0 ? 0 : before - static_cast<double>(tables[static_cast<std::size_t>(key.first)].row(slot)[c]);
        CHECK(std::abs(moved - slope) < 2e-5 * (1 + std::abs(slope)));
      }
    }
  }

  SUBCASE("rows that the batch does not name keep every bit, and each that it names is updated once") {
    auto tables = make_tables<Store>(exec, options, counting_updates{});
    for (auto& t : tables) {
      std::vector<std::int64_t> all(ids);
      for (std::int64_t id = 0; id < ids; ++id) all[static_cast<std::size_t>(id)] = id;
      locate(exec, t, all);
    }
    auto const batch =
        random_batch(exec, random, features.size(), {.id_range = 40, .most_rows = 30, .mean_length = 1.5, .weighted = false});
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    auto const named = reference_gradients(options, features, view, gradients);
    train(tables, view, gradients, counting_updates{});
    bool exact = true;
    for (std::size_t t = 0; t < tables.size(); ++t)
      for (std::int64_t id = 0; id < ids; ++id) {
        auto const slot = find(exec, tables[t], {id})[0];
        float const updates = named.count({static_cast<std::int64_t>(t), id}) > 0 ? 1 : 0;
        for (std::int64_t s = 0; s < 1 + tables[t].dim(); ++s) exact = exact && tables[t].state(slot)[s] == updates;
        exact = exact && same_bits(tables[t].row(slot), initial_row(options[t], id).data(), tables[t].dim());
      }
    CHECK(exact);

    auto trained = make_tables<Store>(exec, options, tessera::rowwise_adagrad{});
    train(trained, view, gradients, tessera::rowwise_adagrad{});
    auto const before = contents(exec, trained, ids);
    std::vector<tessera::pooled_feature> const one{{5}};
    auto const small = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{3}, {7, 3}}}});
    auto const gradient = random_gradients(random, options, one, std::as_const(small).view());
    pooled_matrices out(options, one, std::as_const(small).view());
    tessera::pooled_lookup(exec, trained, one, std::as_const(small).view(), out.out(), saved);
    auto const with_rows = contents(exec, trained, ids);
    tessera::pooled_lookup_backward(exec, trained, one, saved, gradient.in(), tessera::rowwise_adagrad{});
    auto const after = contents(exec, trained, ids);
    std::size_t i = 0;
    for (std::size_t t = 0; t < trained.size(); ++t)
      for (std::int64_t id = 0; id < ids; ++id) {
        auto const width = static_cast<std::size_t>(trained[t].dim() + 1);
        bool const touched = t == 5 && (id == 3 || id == 7);
        CHECK(same_bits(with_rows.data() + i, after.data() + i, static_cast<std::int64_t>(width)) != touched);
        i += width;
      }
    CHECK(before.size() == after.size());
    for (auto const& t : trained) CHECK(t.steps() == tessera::step_count(2));
  }

  SUBCASE("forwards in flight, their backwards in any order") {
    tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};
    std::vector<tessera::keyed_jagged<>> batches;
    std::vector<pooled_matrices> gradients;
    for (int b = 0; b < 3; ++b) {
      batches.push_back(
          random_batch(exec, random, features.size(), {.id_range = ids, .most_rows = 30, .mean_length = 3, .weighted = b == 1}));
      gradients.push_back(random_gradients(random, options, features, std::as_const(batches.back()).view()));
    }
    auto together = make_tables<Store>(exec, options, optimizer), alone = make_tables<Store>(exec, options, optimizer);
    std::vector<tessera::lookup_saved> flights(3);
    for (std::size_t b = 0; b < 3; ++b) {
      pooled_matrices out(options, features, std::as_const(batches[b]).view());
      tessera::pooled_lookup(exec, together, features, std::as_const(batches[b]).view(), out.out(), flights[b]);
    }
    for (auto const b : {std::size_t{1}, std::size_t{0}, std::size_t{2}}) {
      tessera::pooled_lookup_backward(exec, together, features, flights[b], gradients[b].in(), optimizer);
      train(alone, std::as_const(batches[b]).view(), gradients[b], optimizer);
    }
    CHECK(same_bits(contents(exec, together, ids), contents(exec, alone, ids)));
  }

  SUBCASE("a part of a larger batch") {
    auto const batch = random_batch(exec, random, features.size(), {.id_range = ids, .most_rows = 30, .mean_length = 3, .weighted = true});
    auto const whole = std::as_const(batch).view();
    std::int64_t const first = 5, count = 4;
    std::vector<std::int64_t> first_row;
    for (std::int64_t k = 0; k <= count; ++k) first_row.push_back(whole.first_row[first + k] - whole.first_row[first]);
    sparse_view const part{whole.values, whole.weights, whole.offsets + whole.first_row[first], first_row.data(), count};
    std::vector<tessera::pooled_feature> const some(features.begin() + first, features.begin() + first + count);
    auto tables = make_tables<Store>(exec, options, tessera::sgd{});
    reference_tables reference(options);
    auto const gradients = random_gradients(random, options, some, part);
    pooled_matrices out(options, some, part);
    tessera::pooled_lookup(exec, tables, some, part, out.out(), saved);
    tessera::pooled_lookup_backward(exec, tables, some, saved, gradients.in(), tessera::sgd{});
    reference.step(reference_gradients(options, some, part, gradients), [](auto& row, auto&, auto const& g, std::int64_t) {
      for (std::size_t c = 0; c < g.size(); ++c) row[c] -= static_cast<double>(0.1F) * g[c];
    });
    CHECK(reference.close_to(exec, tables, 2e-5));
  }

  SUBCASE("no rows, no values, no keys: a step in which nothing changes") {
    auto tables = make_tables<Store>(exec, options, tessera::rowwise_adagrad{});
    std::vector<std::int64_t> const some{1, 2};
    for (auto& t : tables) locate(exec, t, some);
    auto const before = contents(exec, tables, ids);
    std::vector<tessera::pooled_feature> const two{{0}, {1}};
    for (auto const& rows : {std::vector<std::vector<std::int64_t>>{}, std::vector<std::vector<std::int64_t>>{{}, {}}}) {
      auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", rows}, {"b", rows}});
      pooled_matrices matrix(options, two, std::as_const(batch).view());
      tessera::pooled_lookup(exec, tables, two, std::as_const(batch).view(), matrix.out(), saved);
      tessera::pooled_lookup_backward(exec, tables, two, saved, matrix.in(), tessera::rowwise_adagrad{});
    }
    std::vector<std::int64_t> const values{1, 2, 3}, offsets{3, 3, 3}, first_row{0, 2};
    sparse_view const far{values.data(), nullptr, offsets.data(), first_row.data(), 1};
    std::vector<tessera::pooled_feature> const one{{2}};
    pooled_matrices matrix(options, one, far);
    tessera::pooled_lookup(exec, tables, one, far, matrix.out(), saved);
    tessera::pooled_lookup_backward(exec, tables, one, saved, matrix.in(), tessera::rowwise_adagrad{});
    std::vector<tessera::pooled_feature> const none;
    std::vector<tessera::matrix_view<float const>> const nowhere;
    tessera::lookup_saved const nothing;
    tessera::pooled_lookup_backward(exec, tables, none, nothing, nowhere, tessera::rowwise_adagrad{});
    std::vector<Store> no_tables;
    tessera::pooled_lookup_backward(exec, no_tables, none, nothing, nowhere, tessera::rowwise_adagrad{});
    CHECK(same_bits(contents(exec, tables, ids), before));
    for (auto const& t : tables) CHECK(t.steps() == tessera::step_count(4));
  }

  SUBCASE("workspace goes back, and when there is none nothing changes") {
    tessera::rowwise_adagrad const optimizer;
    auto tables = make_tables<Store>(exec, options, optimizer);
    auto const batch = random_batch(exec, random, features.size(), {.id_range = ids, .most_rows = 30, .mean_length = 3, .weighted = false});
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    pooled_matrices out(options, features, view);
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    auto const before = contents(exec, tables, ids);
    auto const in_tables = host.memory().allocations();
    tessera_tests::pool step(threads);
    for (std::int64_t allowed = 0;; ++allowed) {
      step.memory().fail_after(allowed);
      try {
        tessera::pooled_lookup_backward(step.exec(), tables, features, saved, gradients.in(), optimizer);
        CHECK(allowed > 3);
        break;
      } catch (std::bad_alloc const&) {
        CHECK(same_bits(contents(exec, tables, ids), before));
        for (auto const& t : tables) CHECK(t.steps() == tessera::step_count(0));
        CHECK(step.memory().live_pieces() == 0);
      }
    }
    CHECK_FALSE(same_bits(contents(exec, tables, ids), before));
    CHECK(step.memory().live_pieces() == 0);
    CHECK(host.memory().allocations() == in_tables);
  }

  SUBCASE("what does not fit is named, and nothing changes") {
    auto tables = make_tables<Store>(exec, options, tessera::sgd{});
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}, {2, 3}}}, {"b", {{4}}}});
    auto const view = std::as_const(batch).view();
    std::vector<tessera::pooled_feature> const two{{4}, {6}};
    pooled_matrices out(options, two, view);
    tessera::pooled_lookup(exec, tables, two, view, out.out(), saved);
    auto const before = contents(exec, tables, ids);
    using tessera::errc;
    auto const refused = [&](auto const& optimizer, auto const& some, auto const& gradients, tessera::lookup_saved const& of, errc code,
                             std::vector<std::pair<char const*, char const*>> const& values) {
      try {
        tessera::pooled_lookup_backward(exec, tables, some, of, gradients, optimizer);
        FAIL_CHECK("accepted");
      } catch (tessera::error const& e) {
        CHECK(e.code() == code);
        for (auto const& [name, value] : values) CHECK(e.value(name) == value);
      }
    };
    tessera::sgd const sgd;
    refused(tessera::rowwise_adagrad{}, two, out.in(), saved, errc::incompatible,
            {{"table", "100"}, {"state a row", "0"}, {"needed", "1"}});
    refused(tessera::adam{}, two, out.in(), saved, errc::incompatible, {{"table", "100"}, {"needed", "2"}});
    refused(sgd, std::vector<tessera::pooled_feature>{{4}}, out.in(), saved, errc::shape_mismatch, {{"keys", "2"}, {"features", "1"}});
    refused(sgd, two, out.in(), tessera::lookup_saved{}, errc::shape_mismatch, {{"keys", "0"}, {"features", "2"}});
    refused(sgd, std::vector<tessera::pooled_feature>{{4}, {11}}, out.in(), saved, errc::out_of_range, {{"feature", "1"}, {"table", "11"}});
    refused(sgd, two, std::vector<tessera::matrix_view<float const>>{out.in()[0]}, saved, errc::shape_mismatch, {{"matrices", "1"}});
    auto wrong = out.in();
    wrong[1].row_count = 0;
    refused(sgd, two, wrong, saved, errc::shape_mismatch, {{"feature", "1"}, {"rows", "0"}});
    wrong = out.in();
    wrong[0].column_count = 17;
    refused(sgd, two, wrong, saved, errc::shape_mismatch, {{"feature", "0"}, {"columns", "17"}, {"dim", "16"}});
    wrong = out.in();
    wrong[0].row_stride = 15;
    refused(sgd, two, wrong, saved, errc::shape_mismatch, {{"feature", "0"}, {"stride", "15"}, {"dim", "16"}});
    refused(sgd, two, out.in(), tessera::lookup_saved{}, errc::shape_mismatch, {{"keys", "0"}});
    if (!Store::slots_are_ids)
      refused(sgd, two, out.in(), tessera::lookup_saved{view, {}}, errc::shape_mismatch, {{"values", "4"}, {"slots", "0"}});
    CHECK(same_bits(contents(exec, tables, ids), before));
    for (auto const& t : tables) CHECK(t.steps() == tessera::step_count(0));
  }
}

/// The documented order, by scalars: a row's contributions by (sample, key, position in the bag), by chunks of 1,024 whose sums are joined
/// in order. Scales and rate are powers of two, so that no product rounds and fusing it with a sum changes nothing.
template <class Store>
void pooled_lookup_backward_in_canonical_order() {
  static_assert(tessera::canonical_sum_chunk == 1024);
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const options = tables_of_dims({5, 16, 64, 128}, 400);
  auto const features = [&] {
    auto all = features_over(4);
    for (auto& f : all) f.pooling = tessera::pooling::sum;
    all.push_back({1, tessera::pooling::mean});  // bags of two: scale 1/2
    return all;
  }();
  tessera::sgd const optimizer{.learning_rate = 0.5F};
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    for (bool const weighted : {false, true}) {
      CAPTURE(weighted);
      std::mt19937_64 random(seed);
      std::vector<tessera::feature_rows<>> rows;
      for (std::size_t key = 0; key < features.size(); ++key) {
        rows.emplace_back("key" + std::to_string(key), std::vector<std::vector<std::int64_t>>());
        for (int bag = 0; bag < (key == 4 ? 1100 : 1500); ++bag) {  // keys 1 and 4 share a table and differ in rows
          auto ids = tessera_tests::random_integers<std::int64_t>(random, features[key].pooling == tessera::pooling::mean ? 2 : 4, 0, 399);
          for (std::size_t i = 0; i < ids.size(); ++i) {
            if (i == 0 || random() % 8 != 0) ids[i] = ids[i] % 4 == 0 ? ids[i] : 7;  // 7 comes thousands of times
          }
          rows.back().rows.push_back(ids);
          if (!weighted) continue;
          rows.back().weights.emplace_back();
          for (std::size_t i = 0; i < ids.size(); ++i) {
            constexpr float powers[] = {1, -2, 0.5F, 0, 4, -1};
            rows.back().weights.back().push_back(powers[random() % 6]);
          }
        }
      }
      auto const batch = tessera::keyed_jagged<>::from_rows(exec, rows);
      auto const view = std::as_const(batch).view();
      auto const gradients = random_gradients(random, options, features, view);
      auto tables = make_tables<Store>(exec, options, optimizer);
      pooled_matrices out(options, features, view);
      tessera::lookup_saved saved;
      tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
      tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), optimizer);

      std::map<table_and_id, std::vector<std::pair<float const*, float>>> terms;
      for (std::int64_t bag = 0; bag < 1500; ++bag)
        for (std::int64_t key = 0; key < view.keys; ++key) {
          auto const& feature = features[static_cast<std::size_t>(key)];
          auto const bags = view.key(key);
          if (bag >= bags.rows) continue;
          for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p)
            terms[{feature.table, view.values[p]}].emplace_back(gradients.in()[static_cast<std::size_t>(key)].row(bag),
                                                                static_cast<float>(contribution_scale(view, key, bag, p, feature.pooling)));
        }
      CHECK(terms[{0, 7}].size() > 5000);
      bool exact = true;
      for (auto const& [key, list] : terms) {
        auto const& table = tables[static_cast<std::size_t>(key.first)];
        auto const start = initial_row(options[static_cast<std::size_t>(key.first)], key.second);
        auto const* const row = table.row(find(exec, table, {key.second})[0]);
        for (std::size_t c = 0; c < start.size(); ++c) {
          float sum = 0;
          for (std::size_t chunk = 0; chunk < list.size(); chunk += 1024) {
            float part = list[chunk].second * list[chunk].first[c];
            for (auto i = chunk + 1; i < std::min(list.size(), chunk + 1024); ++i) part += list[i].second * list[i].first[c];
            sum = chunk == 0 ? part : sum + part;
          }
          float const expected = start[c] - 0.5F * sum;
          exact = exact && same_bits(&expected, row + c, 1);
        }
      }
      CHECK(exact);
    }
  });
}

/// Every team trains the same bits.
template <class Store, class Optimizer>
void pooled_lookup_backward_of_every_team(Optimizer const& optimizer) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const options = tables_of_dims({4, 16, 20, 128}, 300);
  auto const features = features_over(4);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    auto tables = make_tables<Store>(exec, options, optimizer);
    tessera::lookup_saved saved;
    for (int step = 0; step < 3; ++step) {
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = 300, .most_rows = 500, .mean_length = 5, .weighted = step == 1});
      auto const view = std::as_const(batch).view();
      auto const gradients = random_gradients(random, options, features, view);
      pooled_matrices out(options, features, view);
      tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
      tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), optimizer);
    }
    auto const trained = contents(exec, tables, 300);
    if (first.empty()) first = trained;
    CHECK(same_bits(trained, first));
  });
}

}  // namespace embed_tests
