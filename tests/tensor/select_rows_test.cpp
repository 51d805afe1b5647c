// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "select_rows_suite.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>

#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/select_rows.hpp>

#include "../support/hosts.hpp"
#include "keyed_support.hpp"

using tessera::jagged;
using tessera::keyed_jagged;
using tessera_tests::serial_host;

namespace {

using select_rows_tests::ids;
using select_rows_tests::rows_of_ids;

struct host_select_rows {
  tessera::host_exec exec;

  rows_of_ids select(rows_of_ids const& rows, ids const& indices) const {
    auto const in = jagged<std::int64_t>::from_rows(exec, rows);
    auto const out = tessera::select_rows(exec, in.view(), indices);
    tessera::validate(out.view(), out.size());
    rows_of_ids result;
    for (std::int64_t row = 0; row < out.rows(); ++row) {
      auto const values = out.view().row(row);
      result.emplace_back(values.begin(), values.end());
    }
    return result;
  }
};

std::string text(keyed_jagged<> const& batch) {
  std::ostringstream out;
  out << batch;
  return out.str();
}

}  // namespace

TEST_CASE("select_rows on one thread") {
  serial_host host;
  select_rows_suite(host_select_rows{host.exec()});
}
TEST_CASE("select_rows on 2 threads") {
  tessera_tests::pool_host<2> host;
  select_rows_suite(host_select_rows{host.exec()});
}
TEST_CASE("select_rows on 4 threads") {
  tessera_tests::pool_host<4> host;
  select_rows_suite(host_select_rows{host.exec()});
}

TEST_CASE("rows are selected from a slice, and with narrow offsets") {
  serial_host host;
  auto const rows = jagged<float, std::int32_t>::from_rows(host.exec(), {{1}, {2, 3}, {}, {4}});
  auto const selected = tessera::select_rows(host.exec(), rows.view().slice(1, 3), ids{2, 0});
  CHECK(equal(selected.view(), jagged<float, std::int32_t>::from_rows(host.exec(), {{4}, {2, 3}}).view()));
}

TEST_CASE("a selection too large for its offsets is refused") {
  serial_host host;
  std::vector<std::int32_t> const offsets{0, 1 << 30};
  float value = 0;
  tessera::jagged_view<float const, std::int32_t> const rows{&value, offsets.data(), 1};
  try {
    tessera::select_rows(host.exec(), rows, ids{0, 0});
    FAIL("selected");
  } catch (tessera::error const& e) {
    CHECK(e.code() == tessera::errc::out_of_range);
    CHECK(e.value("row") == "1");
  }
}

TEST_CASE("the same rows of every key") {
  serial_host host;
  SUBCASE("values and weights") {
    auto const batch = keyed_jagged<>::from_rows(
        host.exec(), {{"user", {{1, 2}, {}, {3}}, {{0.5F, 1}, {}, {2}}}, {"item", {{4}, {5, 6}, {7}, {8}}, {{4}, {5, 6}, {7}, {8}}}});
    auto const selected = tessera::select_rows(host.exec(), batch, ids{2, 0, 2});
    CHECK(text(selected) == "{user: [[3], [1, 2], [3]] weights [[2], [0.5, 1], [2]], item: [[7], [4], [7]] weights [[7], [4], [7]]}");
    CHECK(selected.view().rows(0) == 3);
    CHECK(selected.view().rows(1) == 3);
    tessera::validate(selected.view(), 7);
  }
  SUBCASE("no rows, no keys") {
    auto const batch = keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {2}}}, {"b", {{3}}}});
    CHECK(text(tessera::select_rows(host.exec(), batch, ids{})) == "{a: [], b: []}");
    CHECK(text(tessera::select_rows(host.exec(), keyed_jagged<>(), ids{})) == "{}");
  }
  SUBCASE("a row that one key has not") {
    auto const batch = keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {2}}}, {"b", {{3}}}});
    CHECK(text(tessera::select_rows(host.exec(), batch, ids{0})) == "{a: [[1]], b: [[3]]}");
    CHECK_THROWS_WITH_AS(tessera::select_rows(host.exec(), batch, ids{0, 1}),
                         "select_rows: no such row (key b, position 1, index 1, rows 1)", tessera::error);
    CHECK_THROWS_AS(tessera::select_rows(host.exec(), batch, ids{-1}), tessera::error);
  }
  SUBCASE("random batches, row by row") {
    auto const seed = tessera_tests::draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<tessera::feature_rows<std::int64_t>> features, expected;
    auto const indices = tessera_tests::random_integers<std::int64_t>(random, 700, 0, 99);
    for (int key = 0; key < 7; ++key) {
      auto const rows = select_rows_tests::random_rows(random, 100);
      std::vector<std::vector<float>> weights;
      for (auto const& row : rows) weights.push_back(tessera_tests::random_floats(random, row.size()));
      features.push_back({std::to_string(key), rows, weights});
      expected.push_back({std::to_string(key), select_rows_tests::naive(rows, indices), select_rows_tests::naive(weights, indices)});
    }
    auto const selected = tessera::select_rows(host.exec(), keyed_jagged<>::from_rows(host.exec(), features), indices);
    CHECK((selected == keyed_jagged<>::from_rows(host.exec(), expected)));
  }
}

TEST_CASE("the same rows of every key of a view") {
  using namespace tensor_tests;
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    std::size_t least = keys.empty() ? 4 : keys[0].size();
    for (auto const& rows : keys) least = std::min(least, rows.size());
    auto const indices =
        tessera_tests::random_integers<std::int64_t>(random, least == 0 ? 0 : 50, 0, static_cast<std::int64_t>(least) - (least > 0));
    model expected;
    for (auto const& rows : keys) expected.push_back(select_rows_tests::naive(rows, indices));
    check_batch(tessera::select_rows(exec, view, indices), expected);
    check_any_type(view, [&](auto in) { return tessera::select_rows(exec, in, indices); });
    tensor_tests::ids every(static_cast<std::size_t>(view.rows()));
    std::iota(every.begin(), every.end(), 0);
    CHECK(equal(tessera::select_rows(exec, view.flat(), every).view(), view.flat()));
    check_any_type(view.flat(), [&](auto in) { return tessera::select_rows(exec, in, every); });
  });
}

TEST_CASE("a row that one key of a view has not is named by the key's number") {
  serial_host host;
  auto const batch = tensor_tests::named_batch(host.exec());
  auto const e = tensor_tests::error_of([&] { tessera::select_rows(host.exec(), batch.view(), ids{0, 2}); });
  CHECK(std::string(e.what()) == "select_rows: no such row (key 1, position 1, index 2, rows 2)");
}
