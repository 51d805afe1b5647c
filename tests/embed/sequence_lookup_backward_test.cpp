// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include <doctest/doctest.h>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>
#include <tessera/embed/update_rows.hpp>

#include "pooled_lookup_backward_suite.hpp"
#include "sequence_problem.hpp"

using namespace embed_tests;
using dense = tessera::dense_table<>;
using hashed = tessera::hash_table<>;
using tessera::errc;

namespace {

pooled_matrices value_gradients(std::mt19937_64& random, std::vector<tessera::table_options> const& options,
                                std::vector<std::int64_t> const& features, sparse_view batch) {
  value_matrices gradients(options, features, batch);
  std::normal_distribution<float> draw;
  gradients.fill([&] { return draw(random); });
  return gradients;
}

}  // namespace

TEST_CASE_TEMPLATE("sequence_lookup_backward: steps beside a double reference", Store, dense, hashed) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  constexpr std::int64_t ids = 40;
  auto const options = tables_of_dims({1, 3, 16, 17, 32, 64, 100, 128, 130, 1027}, ids);
  auto const features = sequence_features(static_cast<std::int64_t>(options.size()));
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F, .epsilon = 1e-2F};
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    auto tables = make_tables<Store>(exec, options, optimizer);
    reference_tables reference(options);
    for (int step = 0; step < 3; ++step) {
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = ids, .most_rows = 20, .mean_length = 4, .weighted = false});
      auto const view = std::as_const(batch).view();
      auto const gradients = value_gradients(random, options, features, view);
      value_matrices out(options, features, view);
      tessera::lookup_saved saved;
      tessera::sequence_lookup(exec, tables, features, view, out.out(), saved);
      tessera::sequence_lookup_backward(exec, tables, features, saved, gradients.in(), optimizer);
      double_rows sums;
      for (std::int64_t key = 0; key < view.keys; ++key) {
        auto const key_ids = values_of(view, key);
        for (std::size_t i = 0; i < key_ids.size(); ++i) {
          auto const& gradient = gradients.in()[static_cast<std::size_t>(key)];
          auto& sum = sums[{features[static_cast<std::size_t>(key)], key_ids[i]}];
          sum.resize(static_cast<std::size_t>(gradient.columns()));
          for (std::size_t c = 0; c < sum.size(); ++c)
            sum[c] += static_cast<double>(gradient(static_cast<std::int64_t>(i), static_cast<std::int64_t>(c)));
        }
      }
      reference.step(sums, [](auto& row, auto& state, auto const& g, std::int64_t) {
        double squares = 0;
        for (auto const x : g) squares += x * x;
        state[0] += squares / static_cast<double>(g.size());
        for (std::size_t c = 0; c < g.size(); ++c)
          row[c] -= static_cast<double>(0.1F) * g[c] / (std::sqrt(state[0]) + static_cast<double>(1e-2F));
      });
      CHECK(reference.close_to(exec, tables, 2e-5));
    }
    auto const trained = contents(exec, tables, ids);
    if (first.empty()) first = trained;
    CHECK(same_bits(first, trained));
  });
}

TEST_CASE("sequence_lookup_backward: one value a row is a pooled lookup, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({16, 130}, 30);
  std::vector<std::int64_t> const features{0, 1};
  tessera::adam const optimizer;
  auto sequence = make_tables<dense>(exec, options, optimizer), pooled = make_tables<dense>(exec, options, optimizer);
  auto const batch = random_batch(exec, random, 2, {.id_range = 30, .most_rows = 40, .mean_length = 5, .weighted = false});
  auto const values = value_by_value(exec, std::as_const(batch).view());
  auto const gradients = value_gradients(random, options, features, std::as_const(batch).view());
  value_matrices out(options, features, std::as_const(batch).view());
  tessera::lookup_saved saved;
  tessera::sequence_lookup(exec, sequence, features, std::as_const(batch).view(), out.out(), saved);
  tessera::sequence_lookup_backward(exec, sequence, features, saved, gradients.in(), optimizer);
  tessera::pooled_lookup(exec, pooled, as_pooled(features), std::as_const(values).view(), out.out(), saved);
  tessera::pooled_lookup_backward(exec, pooled, as_pooled(features), saved, gradients.in(), optimizer);
  CHECK(same_bits(contents(exec, sequence, 30), contents(exec, pooled, 30)));

  SUBCASE("gradients handed out, then the update") {
    auto handed = make_tables<dense>(exec, options, optimizer);
    tessera::row_gradients rows;
    tessera::sequence_lookup(exec, handed, features, std::as_const(batch).view(), out.out(), saved);
    tessera::sequence_lookup_gradients(exec, handed, features, saved, gradients.in(), rows);
    tessera::update_rows(exec, handed, rows, optimizer);
    CHECK(same_bits(contents(exec, sequence, 30), contents(exec, handed, 30)));
  }
}

TEST_CASE("sequence_lookup_backward: what does not fit is refused and nothing changes") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({4}, 10);
  std::vector<std::int64_t> const features{0};
  auto tables = make_tables<hashed>(exec, options, tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 2}, {3}}}});
  value_matrices out(options, features, std::as_const(batch).view());
  tessera::lookup_saved saved;
  tessera::sequence_lookup(exec, tables, features, std::as_const(batch).view(), out.out(), saved);
  auto const before = contents(exec, tables, 10);
  auto const code = [&](tessera::lookup_saved const& of, std::vector<tessera::matrix_view<float const>> const& gradients,
                        auto const& optimizer) {
    try {
      tessera::sequence_lookup_backward(exec, tables, features, of, gradients, optimizer);
    } catch (tessera::error const& e) {
      return e.code();
    }
    return errc::io_error;
  };
  std::vector<float> const memory(64);
  CHECK(code(saved, {{memory.data(), 2, 4}}, tessera::sgd{}) == errc::shape_mismatch);
  CHECK(code(saved, {}, tessera::sgd{}) == errc::shape_mismatch);
  CHECK(code(saved, out.in(), tessera::adam{}) == errc::incompatible);
  CHECK(code(saved, out.in(), std::vector<tessera::sgd>(2)) == errc::shape_mismatch);
  tessera::lookup_saved unlocated;
  unlocated.batch = std::as_const(batch).view();
  CHECK(code(unlocated, out.in(), tessera::sgd{}) == errc::shape_mismatch);
  CHECK(same_bits(contents(exec, tables, 10), before));
  CHECK(tables[0].steps().value == 0);
}
