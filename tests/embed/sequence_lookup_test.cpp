// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 3
#include <doctest/doctest.h>

#include <cmath>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/sequence_lookup.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"
#include "sequence_problem.hpp"

using namespace embed_tests;
using dense = tessera::dense_table<>;
using hashed = tessera::hash_table<>;
using tessera::errc;

TEST_CASE_TEMPLATE("sequence_lookup: each value gets the row of its id", Store, TESSERA_TEST_STORES, TESSERA_TEST_SMALL_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    auto const options = tables_of_dims(all_dims, 50);
    auto const features = sequence_features(static_cast<std::int64_t>(options.size()));
    for (bool const weighted : {false, true}) {  // weights play no part
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = 50, .most_rows = 30, .mean_length = 4, .weighted = weighted});
      auto const view = std::as_const(batch).view();
      auto tables = make_tables<Store>(exec, options, tessera::sgd{});
      value_matrices evaluated(options, features, view), trained(options, features, view);
      tessera::lookup_saved saved;
      tessera::sequence_lookup(exec, std::as_const(tables), features, view, evaluated.out());
      tessera::sequence_lookup(exec, tables, features, view, trained.out(), saved);
      CHECK(same_bits(evaluated.values(), trained.values()));
      CHECK(evaluated.gaps_untouched());
      std::vector<float> expected;
      for (std::int64_t key = 0; key < view.keys; ++key) {
        auto const& table = options[static_cast<std::size_t>(features[static_cast<std::size_t>(key)])];
        for (auto const id : values_of(view, key))
          for (auto const x : stored_initial_row<typename Store::element>(table, id)) expected.push_back(x);
      }
      CHECK(same_bits(trained.values(), expected));
      if (weighted) continue;
      if (first.empty()) first = expected;
      CHECK(same_bits(first, expected));  // the same batch on every team
    }
  });
}

TEST_CASE("sequence_lookup: a part of a batch, nothing at all") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({5}, 10);
  auto tables = make_tables<dense>(exec, options, tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 2}, {}}}, {"b", {{7}, {3, 3, 9}}}});
  auto const part = std::as_const(batch).view().slice_keys(1, 1);
  std::vector<std::int64_t> const features{0};
  value_matrices out(options, features, part);
  tessera::lookup_saved saved;
  tessera::sequence_lookup(exec, tables, features, part, out.out(), saved);
  std::vector<float> expected;
  for (auto const id : {7, 3, 3, 9})
    for (auto const x : initial_row(options[0], id)) expected.push_back(x);
  CHECK(same_bits(out.values(), expected));

  auto const empty = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{}, {}}}});
  value_matrices none(options, features, std::as_const(empty).view());
  tessera::sequence_lookup(exec, tables, features, std::as_const(empty).view(), none.out(), saved);
  CHECK(none.values().empty());
  tessera::keyed_jagged_view<std::int64_t const> const no_keys;
  tessera::sequence_lookup(exec, tables, {}, no_keys, {}, saved);
}

TEST_CASE("sequence_lookup: ids out of range") {
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({3}, 10);
  auto tables = make_tables<dense>(exec, options, tessera::sgd{});
  std::vector<std::int64_t> const features{0};
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{4, -1}, {10, 2}}}});
  auto const view = std::as_const(batch).view();
  value_matrices out(options, features, view);
  tessera::lookup_saved saved;
  try {
    tessera::sequence_lookup(exec, tables, features, view, out.out(), saved);
    FAIL("accepted");
  } catch (tessera::error const& e) {
    CHECK(e.code() == errc::out_of_range);
    CHECK(e.value("feature") == "0");
    CHECK(e.value("position") == "1");
    CHECK(e.value("id") == "-1");
    CHECK(e.value("rows") == "10");
  }
  CHECK(saved.batch.keys == 0);
  std::int64_t count = 5;
  tessera::sequence_lookup(exec, tables, features, view, out.out(), saved,
                           {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = &count});
  CHECK(count == 7);
  auto const four = initial_row(options[0], 4), two = initial_row(options[0], 2);
  CHECK(same_bits(out.values(), {four[0], four[1], four[2], 0, 0, 0, 0, 0, 0, two[0], two[1], two[2]}));
}

TEST_CASE("sequence_lookup: shapes that disagree") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({4}, 10);
  auto const tables = make_tables<dense>(exec, options, tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 2}, {3}}}});
  auto const view = std::as_const(batch).view();
  std::vector<float> memory(64);
  auto const code = [&](std::vector<std::int64_t> const& features, std::vector<tessera::matrix_view<float>> const& out) {
    try {
      tessera::sequence_lookup(exec, tables, features, view, out);
    } catch (tessera::error const& e) {
      return e.code();
    }
    return errc::io_error;
  };
  CHECK(code({0, 0}, {{memory.data(), 3, 4}}) == errc::shape_mismatch);
  CHECK(code({0}, {}) == errc::shape_mismatch);
  CHECK(code({1}, {{memory.data(), 3, 4}}) == errc::out_of_range);
  CHECK(code({0}, {{memory.data(), 2, 4}}) == errc::shape_mismatch);  // a row a value, not a bag
  CHECK(code({0}, {{memory.data(), 3, 5}}) == errc::shape_mismatch);
  CHECK(code({0}, {{memory.data(), 3, 4}}) == errc::io_error);  // fits
}

TEST_CASE_TEMPLATE("sequence_lookup: more vectors than caches keep, each the row of its id", Store,
                   dense TESSERA_TEST_MORE_TYPES(, tessera::hash_table<tessera::bfloat16>, tessera::dense_table<tessera::scaled_int8>,
                                                 tessera::hash_table<tessera::float8_e5m2>)) {
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({16, 70}, 50);
  auto tables = make_tables<Store>(exec, options, tessera::sgd{});
  std::vector<std::vector<std::vector<float>>> rows(2);
  for (std::size_t t = 0; t < 2; ++t)
    for (std::int64_t id = 0; id < 50; ++id) {
      auto row = initial_row(options[t], id);
      for (auto& x : row) x = std::ldexp(x, static_cast<int>(id % 5) - 2);
      set_row(tables[t], locate(exec, tables[t], {id})[0], row);
      rows[t].push_back(stored<typename Store::element>(row));
    }
  std::vector<std::int64_t> const features{0, 1};
  constexpr std::int64_t count = 110'000;
  std::vector<std::int64_t> ids(2 * static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * i % 50);
  std::vector<std::int64_t> const lengths{count, count}, rows_per_key{1, 1};
  auto const batch = tessera::keyed_jagged<>::from_lengths(exec, {"a", "b"}, ids, lengths, rows_per_key, {});
  for (std::int64_t const shift : {0, 1}) {
    CAPTURE(shift);
    tessera::buffer<float> first(exec, count * 16 + shift), second(exec, count * 80 + shift);
    std::fill(second.begin(), second.end(), -9.0F);
    std::vector<tessera::matrix_view<float>> const out{{first.data() + shift, count, 16, 16}, {second.data() + shift, count, 70, 80}};
    tessera::lookup_saved saved;
    tessera::sequence_lookup(exec, tables, features, std::as_const(batch).view(), out, saved);
    std::int64_t wrong = 0;
    for (std::size_t key = 0; key < 2; ++key) {
      for (std::int64_t i = 0; i < count; ++i) {
        auto const id = static_cast<std::size_t>(ids[key * static_cast<std::size_t>(count) + static_cast<std::size_t>(i)]);
        wrong += !same_bits(out[key].row(i), rows[key][id].data(), out[key].columns());
      }
    }
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t c = 70; c < 80; ++c) wrong += second[shift + i * 80 + c] != -9.0F;
    CHECK(wrong == 0);
  }
}
