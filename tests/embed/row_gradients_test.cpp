// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 5
#include <doctest/doctest.h>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>
#include <tessera/embed/update_rows.hpp>

#include "../support/type_lists.hpp"
#include "pooled_lookup_backward_suite.hpp"

using namespace embed_tests;
using dense = tessera::dense_table<>;
using hashed = tessera::hash_table<>;
using tessera::errc;

namespace {

constexpr std::int64_t summed_ids = 40;
std::vector<tessera::table_options> const summed_tables = tables_of_dims({1, 16, 17, 128, 130}, summed_ids);
std::vector<tessera::pooled_feature> const summed_features = features_over(5);

tessera::keyed_jagged<> a_batch(tessera::host_exec const& exec, std::mt19937_64& random) {
  return random_batch(exec, random, summed_features.size(), {.id_range = summed_ids, .most_rows = 30, .mean_length = 4, .weighted = true});
}

template <class Store>
tessera::row_gradients gradients_of(tessera::host_exec const& exec, std::vector<Store>& tables, embed_tests::sparse_view batch,
                                    pooled_matrices const& gradients) {
  pooled_matrices out(summed_tables, summed_features, batch);
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, summed_features, batch, out.out(), saved);
  tessera::row_gradients rows;
  tessera::pooled_lookup_gradients(exec, tables, summed_features, saved, gradients.in(), rows);
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
    auto tables = make_tables<Store>(exec, summed_tables, tessera::sgd{});
    auto const batch = a_batch(exec, random);
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, summed_tables, summed_features, view);
    auto const rows = gradients_of(exec, tables, view, gradients);
    auto expected = reference_gradients(summed_tables, summed_features, view, gradients);
    REQUIRE(rows.tables() == 5);
    std::size_t seen = 0;
    for (std::int64_t t = 0; t < rows.tables(); ++t) {
      CHECK(rows.values(t).rows() == rows.rows(t));
      CHECK(rows.values(t).columns() == summed_tables[static_cast<std::size_t>(t)].dim);
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

TEST_CASE_TEMPLATE("update_rows: gradients handed out do what the fused backward does", Store, TESSERA_TEST_STORES,
                   TESSERA_TEST_SMALL_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  tessera::adam const optimizer{.learning_rate = 0.05F};
  auto fused = make_tables<Store>(exec, summed_tables, optimizer), handed = make_tables<Store>(exec, summed_tables, optimizer);
  for (int step = 0; step < 3; ++step) {
    auto const batch = a_batch(exec, random);
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, summed_tables, summed_features, view);
    pooled_matrices out(summed_tables, summed_features, view);
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, fused, summed_features, view, out.out(), saved);
    if (step == 1) tessera::prepare_backward(exec, fused, summed_features, saved);
    CHECK(saved.order.ready() == (step == 1));
    tessera::pooled_lookup_backward(exec, fused, summed_features, saved, gradients.in(), optimizer);
    auto const rows = gradients_of(exec, handed, view, gradients);
    tessera::update_rows(exec, handed, rows, optimizer);
    for (std::size_t t = 0; t < fused.size(); ++t) CHECK(fused[t].steps() == handed[t].steps());
  }
  CHECK(same_bits(contents(exec, fused, summed_ids), contents(exec, handed, summed_ids)));
}

TEST_CASE("add_row_gradients: micro-batches add up to the whole") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  auto tables = make_tables<dense>(exec, summed_tables, tessera::sgd{});
  tessera::row_gradients sum;
  double_rows expected;
  for (int micro = 0; micro < 3; ++micro) {
    auto const batch = a_batch(exec, random);
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, summed_tables, summed_features, view);
    tessera::add_row_gradients(exec, sum, gradients_of(exec, tables, view, gradients));
    for (auto const& [key, gradient] : reference_gradients(summed_tables, summed_features, view, gradients)) {
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
  auto tables = make_tables<dense>(exec, summed_tables, tessera::sgd{});
  auto const empty = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{}, {}}}, {"b", {}}, {"c", {}}, {"d", {}}, {"e", {}}, {"f", {}}});
  auto const view = std::as_const(empty).view();
  pooled_matrices const gradients(summed_tables, summed_features, view);
  auto rows = gradients_of(exec, tables, view, gradients);
  CHECK(rows.tables() == 5);
  CHECK(rows.values().empty());
  auto const before = contents(exec, tables, summed_ids);
  tessera::update_rows(exec, tables, rows, tessera::sgd{});
  CHECK(same_bits(before, contents(exec, tables, summed_ids)));
  CHECK(tables[0].steps().value == 1);  // a step all the same

  auto const code = [&](auto&& call) {
    try {
      call();
    } catch (tessera::error const& e) {
      return e.code();
    }
    return errc::io_error;
  };
  auto fewer = make_tables<dense>(exec, tables_of_dims({1, 16}, summed_ids), tessera::sgd{});
  auto other = make_tables<dense>(exec, tables_of_dims({1, 16, 17, 128, 131}, summed_ids), tessera::sgd{});
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
  auto const gradients = random_gradients(random, summed_tables, summed_features, view);
  std::vector<tessera::sgd> const optimizers{{0.1F}, {0.2F}, {0.0F}, {0.4F}, {0.5F}};
  auto together = make_tables<dense>(exec, summed_tables, tessera::sgd{});
  pooled_matrices out(summed_tables, summed_features, view);
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, together, summed_features, view, out.out(), saved);
  tessera::pooled_lookup_backward(exec, together, summed_features, saved, gradients.in(), optimizers);
  for (std::size_t t = 0; t < optimizers.size(); ++t) {
    auto alone = make_tables<dense>(exec, summed_tables, tessera::sgd{});
    tessera::pooled_lookup_backward(exec, alone, summed_features, saved, gradients.in(), optimizers[t]);
    auto const dim = summed_tables[t].dim;
    CHECK(same_bits(together[t].weights().data(), alone[t].weights().data(), summed_ids * dim));
  }
}

TEST_CASE("a checked build refuses backwards whose rows have left since the forward, and tables that gradients have not") {
  if constexpr (tessera::checked) {
    tessera_tests::serial_host host;
    auto const exec = host.exec();
    std::vector<tessera::pooled_feature> const one{{.table = 1}};
    std::vector<std::int64_t> const tables_of_keys{1};
    auto tables = make_tables<hashed>(exec, summed_tables, tessera::sgd{});
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{5}, {}, {6, 7}}}});
    auto const view = std::as_const(batch).view();
    pooled_matrices out(summed_tables, one, view);
    out.fill([] { return 1.0F; });
    std::vector<float> three(3 * 16);
    std::vector<tessera::matrix_view<float>> const vectors{{three.data(), 3, 16}};
    std::vector<tessera::matrix_view<float const>> const of_vectors{{three.data(), 3, 16}};
    tessera::lookup_saved saved, saved_vectors;
    tessera::pooled_lookup(exec, tables, one, view, out.out(), saved);
    tessera::sequence_lookup(exec, tables, tables_of_keys, view, vectors, saved_vectors);
    tessera::row_gradients rows;
    tessera::pooled_lookup_gradients(exec, tables, one, saved, out.in(), rows);
    CHECK(rows.rows(1) == 3);
    CHECK_THROWS_AS(rows.rows(5), tessera::error);
    CHECK_THROWS_AS(rows.values(-1), tessera::error);

    tables[1].erase(exec, std::vector<std::int64_t>{6});
    std::vector<float> weights(3);
    tessera::row_gradients more;
    auto const sgd = tessera::sgd{};
    auto const refused = [&](char const* name, char const* of, char const* number, auto const& call) {
      CAPTURE(name);
      try {
        call();
        FAIL("accepted");
      } catch (tessera::error const& e) {
        CHECK(e.code() == errc::out_of_range);
        CHECK(std::string(e.sentence()) == std::string(name) + ": an id's row is no longer where it was");
        CHECK(e.value(of) == number);
        CHECK(e.value("position") == "1");
        CHECK(e.value("id") == "6");
        CHECK(e.value("slot now") == "-1");
      }
    };
    refused("pooled_lookup_backward", "feature", "0", [&] { tessera::pooled_lookup_backward(exec, tables, one, saved, out.in(), sgd); });
    refused("pooled_lookup_gradients", "feature", "0", [&] { tessera::pooled_lookup_gradients(exec, tables, one, saved, out.in(), more); });
    refused("pooled_lookup_weight_gradient", "feature", "0",
            [&] { tessera::pooled_lookup_weight_gradient(exec, tables, one, saved, out.in(), weights); });
    refused("sequence_lookup_backward", "feature", "0",
            [&] { tessera::sequence_lookup_backward(exec, tables, tables_of_keys, saved_vectors, of_vectors, sgd); });
    refused("sequence_lookup_gradients", "feature", "0",
            [&] { tessera::sequence_lookup_gradients(exec, tables, tables_of_keys, saved_vectors, of_vectors, more); });
    refused("update_rows", "table", "1", [&] { tessera::update_rows(exec, tables, rows, sgd); });
    for (auto const& table : tables) CHECK(table.steps() == tessera::step_count(0));
  }
}

TEST_CASE_TEMPLATE("when memory runs out, nothing has changed", Store, dense, hashed) {
  std::mt19937_64 random(8);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const batch = a_batch(exec, random), more = a_batch(exec, random);
  auto const view = std::as_const(batch).view(), more_view = std::as_const(more).view();
  auto tables = make_tables<Store>(exec, summed_tables, tessera::sgd{});
  auto sum = gradients_of(exec, tables, view, random_gradients(random, summed_tables, summed_features, view));
  auto const other = gradients_of(exec, tables, more_view, random_gradients(random, summed_tables, summed_features, more_view));
  auto const before = all_values(sum);
  auto const weights = [&] {
    std::vector<float> all;
    for (auto const& table : tables)
      table.for_each_row([&](std::int64_t slot, std::int64_t) { all.insert(all.end(), table.row(slot), table.row(slot) + table.dim()); });
    return all;
  };
  auto const weights_before = weights();
  tessera_tests::counting_memory small;
  auto const small_exec = exec.with_memory(small);
  for (std::int64_t allowed = 0; allowed < 4; ++allowed) {
    CAPTURE(allowed);
    small.fail_after(allowed);
    CHECK_THROWS_AS(tessera::add_row_gradients(small_exec, sum, other), std::bad_alloc);
    CHECK(same_bits(all_values(sum), before));
  }
  small.fail_after(0);
  CHECK_THROWS_AS(tessera::update_rows(small_exec, tables, sum, tessera::sgd{}), std::bad_alloc);
  for (auto const& table : tables) CHECK(table.steps() == tessera::step_count(0));
  CHECK(same_bits(weights(), weights_before));
}

TEST_CASE("add_row_gradients takes the spare's memory, and refuses a slot that has gone to another id") {
  using evicting = tessera::hash_table<float, tessera::admit_all, tessera::evict_lru>;
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::vector<tessera::pooled_feature> const one{{.table = 0}};
  auto const limited = [](std::int64_t batches_in_flight) {
    return tessera::table_options{.dim = 16, .rows = 4, .most_rows = 4, .batches_in_flight = batches_in_flight};
  };
  for (std::int64_t const in_flight : {1, 2}) {
    CAPTURE(in_flight);
    std::vector<tessera::table_options> const of_tables{limited(in_flight)};
    auto tables = make_tables<evicting>(exec, of_tables, tessera::sgd{});
    auto const gradients = [&](std::vector<std::int64_t> const& ids_of_bag, float value) {
      auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {ids_of_bag}}});
      auto const view = std::as_const(batch).view();
      pooled_matrices out(of_tables, one, view);
      tessera::lookup_saved saved;
      tessera::pooled_lookup(exec, tables, one, view, out.out(), saved);
      out.fill([value] { return value; });
      tessera::row_gradients rows;
      tessera::pooled_lookup_gradients(exec, tables, one, saved, out.in(), rows);
      return rows;
    };
    auto sum = gradients({1, 2, 3, 4}, 1);
    auto const next = gradients({2, 9}, 10);  // 1 leaves for 9, unless it is in flight
    tessera::row_gradients spare;
    if (in_flight == 1) {
      try {
        tessera::add_row_gradients(exec, sum, next, spare);
        FAIL("accepted");
      } catch (tessera::error const& e) {
        CHECK(e.code() == errc::out_of_range);
        CHECK(e.value("slot") == "0");
        CHECK(e.value("id") == "1");
        CHECK(e.value("id now") == "9");
      }
      CHECK(all_values(sum) == std::vector<float>(4 * 16, 1.0F));
    } else {
      tessera::add_row_gradients(exec, sum, next, spare);
      REQUIRE(sum.rows(0) == 4);
      for (std::int64_t row = 0; row < 4; ++row) CHECK(sum.values(0)(row, 15) == (row == 1 ? 11.0F : 1.0F));
      for (int i = 0; i < 2; ++i) tessera::add_row_gradients(exec, sum, next, spare);
      tessera_tests::counting_memory small;
      small.fail_after(1);  // of the work
      tessera::add_row_gradients(exec.with_memory(small), sum, next, spare);
      CHECK(sum.values(0)(1, 15) == 41.0F);
    }
  }
}

TEST_CASE("no tables, no optimizers: nothing happens") {
  tessera_tests::serial_host host;
  std::vector<dense> none;
  tessera::update_rows(host.exec(), none, tessera::row_gradients(), std::vector<tessera::sgd>());
  CHECK(none.empty());
}
