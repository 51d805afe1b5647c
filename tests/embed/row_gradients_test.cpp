// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/row_gradients.hpp>

#include "pooled_lookup_backward_suite.hpp"

using namespace embed_tests;
using dense = tessera::dense_table<>;
using hashed = tessera::hash_table<>;
using tessera::errc;

namespace {

constexpr std::int64_t ids = 40;
std::vector<tessera::table_options> const options = tables_of_dims({1, 16, 17, 128, 130}, ids);
std::vector<tessera::pooled_feature> const features = features_over(5);

tessera::keyed_jagged<> a_batch(tessera::host_exec const& exec, std::mt19937_64& random) {
  return random_batch(exec, random, features.size(), {.id_range = ids, .most_rows = 30, .mean_length = 4, .weighted = true});
}

template <class Store>
tessera::row_gradients gradients_of(tessera::host_exec const& exec, std::vector<Store>& tables, batch_view batch,
                                    pooled_matrices const& gradients) {
  pooled_matrices out(options, features, batch);
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, features, batch, out.out(), saved);
  tessera::row_gradients rows;
  tessera::pooled_lookup_gradients(exec, tables, features, saved, gradients.in(), rows);
  return rows;
}

std::vector<float> all_values(tessera::row_gradients const& rows) { return {rows.values().begin(), rows.values().end()}; }

}  // namespace

TEST_CASE_TEMPLATE("pooled_lookup_gradients: each row once, its sum as in double", Store, dense, hashed) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    auto tables = make_tables<Store>(exec, options, tessera::sgd{});
    auto const batch = a_batch(exec, random);
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    auto const rows = gradients_of(exec, tables, view, gradients);
    auto expected = reference_gradients(options, features, view, gradients);
    REQUIRE(rows.tables() == 5);
    std::size_t seen = 0;
    for (std::int64_t t = 0; t < rows.tables(); ++t) {
      CHECK(rows.values(t).rows() == rows.rows(t));
      CHECK(rows.values(t).columns() == options[static_cast<std::size_t>(t)].dim);
      for (std::int64_t r = 0; r < rows.rows(t); ++r, ++seen) {
        CHECK((r == 0 || rows.slots(t)[r] > rows.slots(t)[r - 1]));
        CHECK(find(exec, tables[static_cast<std::size_t>(t)], {rows.ids(t)[r]})[0] == rows.slots(t)[r]);
        auto const sum = expected.find({t, rows.ids(t)[r]});
        REQUIRE(sum != expected.end());
        for (std::size_t c = 0; c < sum->second.size(); ++c)
          CHECK(static_cast<double>(rows.values(t)(r, static_cast<std::int64_t>(c))) == doctest::Approx(sum->second[c]).epsilon(1e-5));
      }
    }
    CHECK(seen == expected.size());
    if (first.empty()) first = all_values(rows);
    CHECK(same_bits(first, all_values(rows)));
  });
}

TEST_CASE_TEMPLATE("update_rows: gradients handed out do what the fused backward does", Store, dense, hashed,
                   tessera::dense_table<tessera::float16>, tessera::hash_table<tessera::bfloat16>) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  tessera::adam const optimizer{.learning_rate = 0.05F};
  auto fused = make_tables<Store>(exec, options, optimizer), handed = make_tables<Store>(exec, options, optimizer);
  for (int step = 0; step < 3; ++step) {
    auto const batch = a_batch(exec, random);
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    pooled_matrices out(options, features, view);
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, fused, features, view, out.out(), saved);
    if (step == 1) tessera::prepare_backward(exec, fused, tessera::vector_view<tessera::pooled_feature const>(features), saved);
    CHECK(saved.order.ready() == (step == 1));
    tessera::pooled_lookup_backward(exec, fused, features, saved, gradients.in(), optimizer);
    auto const rows = gradients_of(exec, handed, view, gradients);
    tessera::update_rows(exec, handed, rows, optimizer);
    for (std::size_t t = 0; t < fused.size(); ++t) CHECK(fused[t].steps() == handed[t].steps());
  }
  CHECK(same_bits(contents(exec, fused, ids), contents(exec, handed, ids)));
}

TEST_CASE("add_row_gradients: micro-batches add up to the whole") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  auto tables = make_tables<dense>(exec, options, tessera::sgd{});
  tessera::row_gradients sum;
  double_rows expected;
  for (int micro = 0; micro < 3; ++micro) {
    auto const batch = a_batch(exec, random);
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    tessera::add_row_gradients(exec, sum, gradients_of(exec, tables, view, gradients));
    for (auto const& [key, gradient] : reference_gradients(options, features, view, gradients)) {
      auto& to = expected[key];
      to.resize(gradient.size());
      for (std::size_t c = 0; c < gradient.size(); ++c) to[c] += gradient[c];
    }
  }
  std::size_t seen = 0;
  for (std::int64_t t = 0; t < sum.tables(); ++t)
    for (std::int64_t r = 0; r < sum.rows(t); ++r, ++seen) {
      CHECK((r == 0 || sum.slots(t)[r] > sum.slots(t)[r - 1]));
      auto const of = expected.find({t, sum.ids(t)[r]});
      REQUIRE(of != expected.end());
      for (std::size_t c = 0; c < of->second.size(); ++c)
        CHECK(static_cast<double>(sum.values(t)(r, static_cast<std::int64_t>(c))) == doctest::Approx(of->second[c]).epsilon(1e-5).scale(1));
    }
  CHECK(seen == expected.size());
}

TEST_CASE("row gradients: nothing, and what does not fit") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<dense>(exec, options, tessera::sgd{});
  auto const empty = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{}, {}}}, {"b", {}}, {"c", {}}, {"d", {}}, {"e", {}}, {"f", {}}});
  auto const view = std::as_const(empty).view();
  pooled_matrices const gradients(options, features, view);
  auto rows = gradients_of(exec, tables, view, gradients);
  CHECK(rows.tables() == 5);
  CHECK(rows.values().empty());
  auto const before = contents(exec, tables, ids);
  tessera::update_rows(exec, tables, rows, tessera::sgd{});
  CHECK(same_bits(before, contents(exec, tables, ids)));
  CHECK(tables[0].steps().value == 1);  // a step all the same

  auto const code = [&](auto&& call) {
    try {
      call();
    } catch (tessera::error const& e) {
      return e.code();
    }
    return errc::io_error;
  };
  auto fewer = make_tables<dense>(exec, tables_of_dims({1, 16}, ids), tessera::sgd{});
  auto other = make_tables<dense>(exec, tables_of_dims({1, 16, 17, 128, 131}, ids), tessera::sgd{});
  CHECK(code([&] { tessera::update_rows(exec, fewer, rows, tessera::sgd{}); }) == errc::shape_mismatch);
  CHECK(code([&] { tessera::update_rows(exec, other, rows, tessera::sgd{}); }) == errc::shape_mismatch);
  CHECK(code([&] { tessera::update_rows(exec, tables, rows, tessera::adam{}); }) == errc::incompatible);
  CHECK(code([&] { tessera::update_rows(exec, tables, rows, std::vector<tessera::sgd>(3)); }) == errc::shape_mismatch);
  tessera::row_gradients of_fewer;
  of_fewer.resize(
      exec, 2, [](std::int64_t) { return 0; }, [](std::int64_t) { return 1; });
  CHECK(code([&] { tessera::add_row_gradients(exec, of_fewer, rows); }) == errc::shape_mismatch);
}

TEST_CASE("one optimizer a table: each with its own learning rate") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const batch = a_batch(exec, random);
  auto const view = std::as_const(batch).view();
  auto const gradients = random_gradients(random, options, features, view);
  std::vector<tessera::sgd> const optimizers{{0.1F}, {0.2F}, {0.0F}, {0.4F}, {0.5F}};
  auto together = make_tables<dense>(exec, options, tessera::sgd{});
  pooled_matrices out(options, features, view);
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, together, features, view, out.out(), saved);
  tessera::pooled_lookup_backward(exec, together, features, saved, gradients.in(), optimizers);
  for (std::size_t t = 0; t < optimizers.size(); ++t) {
    auto alone = make_tables<dense>(exec, options, tessera::sgd{});
    tessera::pooled_lookup_backward(exec, alone, features, saved, gradients.in(), optimizers[t]);
    auto const dim = options[t].dim;
    CHECK(same_bits(together[t].weights().data(), alone[t].weights().data(), ids * dim));
  }
}
