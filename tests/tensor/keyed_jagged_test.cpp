// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"
#include "../support/temporary_folder.hpp"
#include "keyed_support.hpp"

using tessera::errc;
using tessera::error;
using tessera::jagged;
using tessera::keyed_jagged;
using tessera::keyed_jagged_view;
using tessera_tests::serial_host;

static_assert(std::is_trivially_copyable_v<keyed_jagged_view<std::int64_t>>);
static_assert(std::is_convertible_v<keyed_jagged_view<float>, keyed_jagged_view<float const>>);
static_assert(!std::is_convertible_v<keyed_jagged_view<float const>, keyed_jagged_view<float>>);
static_assert(!std::is_copy_constructible_v<keyed_jagged<>> && std::is_nothrow_move_constructible_v<keyed_jagged<>>);

namespace {

using namespace tensor_tests;
using features = std::vector<tessera::feature_rows<std::int64_t>>;

features const three_keys{{"user", {{1, 2}, {}}}, {"nobody", {}}, {"item", {{3}, {4, 5}, {}}}};
features const weighted_keys{{"user", {{1, 2}, {}}, {{0.5F, 1}, {}}}, {"nobody", {}}, {"item", {{3}}, {{2}}}};

}  // namespace

TEST_CASE("each key has its own number of rows") {
  serial_host host;
  auto const batch = keyed_jagged<>::from_rows(host.exec(), three_keys);
  auto const view = batch.view();
  tessera::validate(view, 5);
  CHECK(batch.keys() == names{"user", "nobody", "item"});
  CHECK(view.keys == 3);
  CHECK(view.rows() == 5);
  CHECK(view.rows(0) == 2);
  CHECK(view.rows(1) == 0);
  CHECK(view.rows(2) == 3);
  CHECK(view.size() == 5);
  CHECK_FALSE(view.weighted());
  CHECK(text(view.flat()) == "[[1, 2], [], [3], [4, 5], []]");
  CHECK(text(view.key(0)) == "[[1, 2], []]");
  CHECK(text(view.key(1)) == "[]");
  CHECK(text(view.key(2)) == "[[3], [4, 5], []]");
  CHECK(view.key(2).begin_of(0) == 2);
  CHECK(view.key(2).row(0).data() == view.values + 2);
  CHECK(text(batch) == "{user: [[1, 2], []], nobody: [], item: [[3], [4, 5], []]}");
}

TEST_CASE("weights lie beside the values") {
  serial_host host;
  auto const batch = keyed_jagged<>::from_rows(host.exec(), weighted_keys);
  auto const view = batch.view();
  CHECK(view.weighted());
  CHECK(text(view.key_weights(0)) == "[[0.5, 1], []]");
  CHECK(text(view.key_weights(2)) == "[[2]]");
  CHECK(text(batch) == "{user: [[1, 2], []] weights [[0.5, 1], []], nobody: [] weights [], item: [[3]] weights [[2]]}");
}

TEST_CASE("rows, lengths, offsets and parts build the same") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const check = [&]<class Offset>(Offset, bool weighted, std::size_t keys) {
    using batch = keyed_jagged<std::int64_t, Offset>;
    features rows;
    names key_names;
    ids values, rows_per_key;
    std::vector<Offset> lengths, offsets{0};
    floats weights;
    for (std::size_t key = 0; key < keys; ++key) {
      key_names.push_back("key " + std::to_string(key));
      rows.push_back({key_names.back(), {}});
      rows_per_key.push_back(static_cast<std::int64_t>(random() % 40));
      for (auto const length : tessera_tests::random_lengths(random, static_cast<std::size_t>(rows_per_key.back()), 3)) {
        auto const row = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(length), -50, 50);
        auto const row_weights = tessera_tests::random_floats(random, row.size());
        rows.back().rows.push_back(row);
        if (weighted) rows.back().weights.push_back(row_weights);
        values.insert(values.end(), row.begin(), row.end());
        if (weighted) weights.insert(weights.end(), row_weights.begin(), row_weights.end());
        lengths.push_back(static_cast<Offset>(length));
        offsets.push_back(static_cast<Offset>(offsets.back() + length));
      }
    }
    auto const a = batch::from_rows(host.exec(), rows);
    auto const b = batch::from_lengths(host.exec(), key_names, values, lengths, rows_per_key, weights);
    auto const c = batch::from_offsets(host.exec(), key_names, values, offsets, rows_per_key, weights);
    auto const d = batch::from_parts(host.exec(), key_names, jagged<std::int64_t, Offset>::from_lengths(host.exec(), values, lengths),
                                     rows_per_key, weights);
    tessera::validate(a.view(), static_cast<std::int64_t>(values.size()));
    CHECK(a.view().weighted() == !weights.empty());
    CHECK(a == b);
    CHECK(a == c);
    CHECK(a == d);
    for (std::size_t key = 0; key < keys; ++key) {
      auto const k = static_cast<std::int64_t>(key);
      CHECK(a.view().rows(k) == rows_per_key[key]);
      CHECK(equal(a.view().key(k), jagged<std::int64_t, Offset>::from_rows(host.exec(), rows[key].rows).view()));
      if (weighted) CHECK(equal(a.view().key_weights(k), jagged<float, Offset>::from_rows(host.exec(), rows[key].weights).view()));
    }
  };
  for (bool const weighted : {false, true})
    for (std::size_t const keys : {0U, 1U, 5U, 30U}) {
      CAPTURE(weighted);
      CAPTURE(keys);
      check(std::int64_t{}, weighted, keys);
      check(std::int32_t{}, weighted, keys);
    }
}

TEST_CASE("no keys, no rows, no values") {
  serial_host host;
  keyed_jagged<> const none;
  tessera::validate(none.view(), 0);
  CHECK(none.view().rows() == 0);
  CHECK(none.view().size() == 0);
  CHECK(text(none) == "{}");
  auto const no_keys = keyed_jagged<>::from_rows(host.exec(), {});
  tessera::validate(no_keys.view(), 0);
  CHECK(no_keys == none);
  auto const no_rows = keyed_jagged<>::from_rows(host.exec(), {{"a", {}}, {"b", {}}});
  tessera::validate(no_rows.view(), 0);
  CHECK(text(no_rows) == "{a: [], b: []}");
  CHECK(no_rows.view().key(1).size() == 0);
  CHECK_FALSE(no_rows == none);
  auto const no_values = keyed_jagged<>::from_rows(host.exec(), {{"a", {{}, {}}}});
  tessera::validate(no_values.view(), 0);
  CHECK(text(no_values) == "{a: [[], []]}");
  CHECK_FALSE(no_values == no_rows);
}

TEST_CASE("equality sees names, rows per key, values and weights") {
  serial_host host;
  auto const make = [&](features const& rows) { return keyed_jagged<>::from_rows(host.exec(), rows); };
  auto const a = make({{"u", {{1}, {2}}, {{1}, {2}}}, {"v", {{3}}, {{3}}}});
  CHECK(a == make({{"u", {{1}, {2}}, {{1}, {2}}}, {"v", {{3}}, {{3}}}}));
  CHECK_FALSE(a == make({{"u", {{1}, {2}}, {{1}, {2}}}, {"w", {{3}}, {{3}}}}));
  CHECK_FALSE(a == make({{"u", {{1}}, {{1}}}, {"v", {{2}, {3}}, {{2}, {3}}}}));
  CHECK_FALSE(a == make({{"u", {{1}, {2}}, {{1}, {2}}}, {"v", {{4}}, {{3}}}}));
  CHECK_FALSE(a == make({{"u", {{1}, {2}}, {{1}, {2}}}, {"v", {{3}}, {{4}}}}));
  CHECK_FALSE(a == make({{"u", {{1}, {2}}}, {"v", {{3}}}}));
  CHECK(equal(a.view(), make({{"x", {{1}, {2}}, {{1}, {2}}}, {"y", {{3}}, {{3}}}}).view()));  // names are the owners' affair
}

TEST_CASE("a key's number is found by name") {
  serial_host host;
  auto const batch = keyed_jagged<>::from_rows(host.exec(), three_keys);
  CHECK(batch.key_index("user") == 0);
  CHECK(batch.key_index("item") == 2);
  auto const e = error_of([&] { batch.key_index("users"); });
  CHECK(e.code() == errc::out_of_range);
  CHECK(std::string(e.what()) == "keyed_jagged: no such key (key users)");
}

TEST_CASE("some of the keys share the memory of the whole") {
  serial_host host;
  auto const batch = keyed_jagged<>::from_rows(
      host.exec(), {{"a", {{1, 2}, {}}, {{1, 2}, {}}}, {"none", {}, {}}, {"b", {{3}, {4, 5}, {}}, {{3}, {4, 5}, {}}}, {"c", {{6}}, {{6}}}});
  auto const whole = batch.view();
  auto const part = whole.slice_keys(1, 2);
  tessera::validate(part, whole.size());
  CHECK(part.keys == 2);
  CHECK(part.rows() == 3);
  CHECK(part.rows(0) == 0);
  CHECK(part.rows(1) == 3);
  CHECK(part.size() == 3);
  CHECK(part.first_value() == 2);
  CHECK(text(part.flat()) == "[[3], [4, 5], []]");
  CHECK(text(part.flat_weights()) == "[[3], [4, 5], []]");
  CHECK(text(part.key(1)) == "[[3], [4, 5], []]");
  CHECK(text(part.key_weights(1)) == "[[3], [4, 5], []]");
  CHECK(part.key(1).row(0).data() == whole.values + 2);
  CHECK(text(part.slice_keys(1, 1).flat()) == "[[3], [4, 5], []]");
  CHECK(equal(part, keyed_jagged<>::from_rows(host.exec(), {{"x", {}, {}}, {"y", {{3}, {4, 5}, {}}, {{3}, {4, 5}, {}}}}).view()));
  CHECK_FALSE(equal(part, whole.slice_keys(2, 2)));

  for (std::int64_t first = 0; first <= whole.keys; ++first)
    for (std::int64_t count = 0; first + count <= whole.keys; ++count) {
      auto const some = whole.slice_keys(first, count);
      tessera::validate(some, whole.size());
      std::int64_t rows = 0, values = 0;
      for (std::int64_t key = 0; key < count; ++key) {
        rows += some.rows(key);
        values += some.key(key).size();
        CHECK(equal(some.key(key), whole.key(first + key)));
      }
      CHECK(some.rows() == rows);
      CHECK(some.size() == values);
    }
  // No rows: the offsets behind them say nothing.
  CHECK(whole.slice_keys(1, 1).first_value() == 0);
  CHECK(keyed_jagged_view<std::int64_t>{}.slice_keys(0, 0).size() == 0);
  std::int64_t const values[] = {1, 2};
  ids const offsets{9, 9, 9, 0, 2}, first_row{3, 4};
  keyed_jagged_view<std::int64_t const> const far{values, nullptr, offsets.data(), first_row.data(), 1};
  tessera::validate(far, 2);
  CHECK(text(far.flat()) == "[[1, 2]]");
  if constexpr (tessera::checked) {
    CHECK_THROWS_AS((void)whole.slice_keys(3, 2), error);
    CHECK_THROWS_AS((void)whole.slice_keys(-1, 2), error);
  }
}

TEST_CASE("the same rows of other values") {
  serial_host host;
  auto const batch = keyed_jagged<>::from_rows(host.exec(), weighted_keys);
  floats gradient{10, 20, 30};
  auto const view = batch.view().with_values(gradient.data());
  CHECK(text(view.key(0)) == "[[10, 20], []]");
  CHECK(text(view.key(2)) == "[[30]]");
  CHECK_FALSE(view.weighted());
  view.key(2).row(0)[0] = 1;
  CHECK(gradient[2] == 1);
  CHECK(text(batch.view().key(2).with_values(gradient.data())) == "[[1]]");
  CHECK(text(batch.view().slice_keys(2, 1).flat().all_values().slice(0, 1).size()) == "1");
}

TEST_CASE("values are written through the owner's view") {
  serial_host host;
  auto batch = keyed_jagged<>::from_rows(host.exec(), three_keys);
  batch.view().key(2).row(1)[0] = 40;
  CHECK(text(batch.view().key(2)) == "[[3], [40, 5], []]");
}

TEST_CASE("what disagrees is named") {
  serial_host host;
  auto const exec = host.exec();
  auto const rows = [&](features const& f) { return error_of([&] { keyed_jagged<>::from_rows(exec, f); }); };
  auto const lengths = [&](names const& keys, ids const& values, ids const& row_lengths, ids const& rows_per_key,
                           floats const& weights = {}) {
    return error_of([&] { keyed_jagged<>::from_lengths(exec, keys, values, row_lengths, rows_per_key, weights); });
  };
  auto const check = [](error const& e, errc code, char const* what) {
    CHECK(e.code() == code);
    CHECK(std::string(e.what()) == what);
  };
  check(rows({{"a", {{1}}, {{1}}}, {"b", {{2}, {3}}}}), errc::shape_mismatch,
        "keyed_jagged: rows without weights (key b, rows 2, rows of weights 0)");
  check(rows({{"a", {{1}, {2, 3}}, {{1}, {2}}}}), errc::shape_mismatch,
        "keyed_jagged: a row and its weights differ in length (key a, row 1, values 2, weights 1)");
  check(lengths({"a"}, {1, 2, 3}, {1, 1}, {2}), errc::shape_mismatch,
        "jagged: lengths do not sum to the number of values (sum 2, values 3)");
  check(lengths({"a"}, {1}, {1, 1}, {2}), errc::shape_mismatch, "jagged: lengths do not sum to the number of values (sum 2, values 1)");
  check(lengths({"a"}, {1}, {2, -1}, {2}), errc::invalid_argument, "lengths_to_offsets: negative length (row 1, length -1)");
  check(lengths({"a", "b"}, {1}, {1}, {1}), errc::shape_mismatch, "keyed_jagged: one row count a key (keys 2, row counts 1)");
  check(lengths({"a", "b"}, {1}, {1}, {1, 1}), errc::shape_mismatch,
        "keyed_jagged: row counts do not sum to the number of rows (sum 2, rows 1)");
  check(lengths({"a", "b"}, {1}, {1}, {2, -1}), errc::invalid_argument, "lengths_to_offsets: negative length (row 1, length -1)");
  check(lengths({"a"}, {1, 2}, {2}, {1}, {1}), errc::shape_mismatch, "keyed_jagged: one weight a value (values 2, weights 1)");
  check(error_of([&] {
          keyed_jagged<>::from_offsets(exec, {"a"}, ids{1, 2}, ids{0, 2}, ids{1}, floats{1, 2, 3});
        }),
        errc::shape_mismatch, "keyed_jagged: one weight a value (values 2, weights 3)");
  check(error_of([&] {
          keyed_jagged<>::from_offsets(exec, {"a"}, ids{1, 2}, ids{0, 1}, ids{1});
        }),
        errc::shape_mismatch, "jagged: more values than the offsets reach (last offset 1, values 2)");
  check(error_of([&] {
          keyed_jagged<>::from_parts(exec, {"a"}, jagged<std::int64_t>::from_rows(exec, {{1, 2}, {3}}), ids{2}, floats{1, 2});
        }),
        errc::shape_mismatch, "keyed_jagged: one weight a value (values 3, weights 2)");
  check(lengths({"a", "a"}, {1}, {1}, {1, 0}), errc::invalid_argument, "keyed_jagged: a key twice (key a)");
}

TEST_CASE("a batch without names") {
  serial_host host;
  auto const exec = host.exec();
  auto const a = keyed_jagged<>::from_lengths(exec, {}, ids{1, 2, 3}, ids{2, 0, 1}, ids{1, 0, 2}, floats{4, 5, 6});
  tessera::validate(a.view(), 3);
  CHECK(a.keys().empty());
  CHECK(a.view().keys == 3);
  CHECK(text(a) == "{0: [[1, 2]] weights [[4, 5]], 1: [] weights [], 2: [[], [3]] weights [[], [6]]}");
  CHECK(error_of([&] { a.key_index("0"); }).code() == errc::out_of_range);
  auto const make = [&](names const& keys) {
    return keyed_jagged<>::from_lengths(exec, keys, ids{1, 2, 3}, ids{2, 0, 1}, ids{1, 0, 2}, floats{4, 5, 6});
  };
  CHECK(a == make({}));
  CHECK_FALSE(a == make({"x", "y", "z"}));
  CHECK(equal(a.view(), make({"x", "y", "z"}).view()));

  auto written = keyed_jagged<>::with_lengths(exec, ids{2, 0, 1}, ids{1, 0, 2}, true);
  for (std::int64_t i = 0; i < 3; ++i) {
    written.view().values[i] = i + 1;
    written.weights()[i] = static_cast<float>(i + 4);
  }
  CHECK(written == a);
  auto roomy = keyed_jagged<>::with_room(exec, 3, 3, 3, true);
  ids const offsets{0, 2, 2, 3}, first_row{0, 1, 1, 3};
  std::copy(offsets.begin(), offsets.end(), roomy.offsets().begin());
  std::copy(first_row.begin(), first_row.end(), roomy.first_row().begin());
  for (std::int64_t i = 0; i < 3; ++i) {
    roomy.view().values[i] = i + 1;
    roomy.weights()[i] = static_cast<float>(i + 4);
  }
  CHECK(roomy == a);

  auto const named = std::move(written).named({"x", "y", "z"});
  CHECK(named == make({"x", "y", "z"}));
  CHECK(named.key_index("y") == 1);
  auto e = error_of([&] { make({}).named({"x"}); });
  CHECK(e.code() == errc::shape_mismatch);
  e = error_of([&] { make({}).named({"x", "y", "x"}); });
  CHECK(e.code() == errc::invalid_argument);
  CHECK(e.value("key") == "x");

  auto from = make({"x", "y", "z"});
  auto const to = std::move(from);
  CHECK(to.view().keys == 3);
  CHECK(from.view().keys == 0);  // NOLINT: moved-from is empty by contract
  CHECK(from.keys().empty());    // NOLINT
}

TEST_CASE("validate names what is wrong with a view") {
  std::int64_t const values[] = {1, 2, 3};
  ids const offsets{0, 1, 3}, decreasing{0, 3, 1}, first_row{0, 1, 2}, negative{-1, 1, 2}, backwards{0, 2, 1};
  auto const check = [&](ids const* rows, ids const* of, std::int64_t keys, errc code, char const* what) {
    keyed_jagged_view<std::int64_t const> const view{values, nullptr, of == nullptr ? nullptr : of->data(),
                                                     rows == nullptr ? nullptr : rows->data(), keys};
    auto const e = error_of([&] { tessera::validate(view, 3); });
    CHECK(e.code() == code);
    CHECK(std::string(e.what()) == what);
  };
  tessera::validate(keyed_jagged_view<std::int64_t const>{values, nullptr, offsets.data(), first_row.data(), 2}, 3);
  check(&first_row, &offsets, -1, errc::invalid_argument, "keyed_jagged: negative number of keys (keys -1)");
  check(nullptr, &offsets, 2, errc::invalid_argument, "keyed_jagged: no row counts (keys 2)");
  check(&negative, &offsets, 2, errc::invalid_argument, "keyed_jagged: negative first row (first row -1)");
  check(&backwards, &offsets, 2, errc::invalid_argument, "keyed_jagged: first rows decrease (key 1, first row 2, next first row 1)");
  check(&first_row, nullptr, 2, errc::invalid_argument, "jagged: no offsets (rows 2)");
  check(&first_row, &decreasing, 2, errc::invalid_argument, "jagged: offsets decrease (row 1, offset 3, next offset 1)");
  auto const past = error_of([&] {
    tessera::validate(keyed_jagged_view<std::int64_t const>{values, nullptr, offsets.data(), first_row.data(), 2}, 2);
  });
  CHECK(past.code() == errc::out_of_range);
}
