// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "select_rows_suite.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "inverse_suite.hpp"

using namespace tensor_tests;
using tessera::jagged;
using tessera::keyed_jagged;
using tessera_tests::serial_host;

TEST_CASE_TEMPLATE("select_rows", Host, TESSERA_TEST_HOSTS) {
  Host host;
  select_rows_suite(rows_on_host{host.exec()});
}

TEST_CASE_TEMPLATE("samples of an IKJT", Host, TESSERA_TEST_HOSTS) {
  Host host;
  select_samples_suite(rows_on_host{host.exec()}, 1000);
}

TEST_CASE("rows are selected from a slice, and with narrow offsets") {
  serial_host host;
  auto const rows = jagged<float, std::int32_t>::from_rows(host.exec(), {{1}, {2, 3}, {}, {4}});
  auto const selected = tessera::select_rows(host.exec(), rows.view().slice(1, 3), ids{2, 0});
  CHECK(equal(selected.view(), jagged<float, std::int32_t>::from_rows(host.exec(), {{4}, {2, 3}}).view()));
}

TEST_CASE("a row that one key has not is named by the key's name") {
  serial_host host;
  auto const batch = keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {2}}}, {"b", {{3}}}});
  CHECK(tensor_tests::text(tessera::select_rows(host.exec(), batch, ids{0})) == "{a: [[1]], b: [[3]]}");
  CHECK_THROWS_WITH_AS(tessera::select_rows(host.exec(), batch, ids{0, 1}), "select_rows: no such row (key b, position 1, index 1, rows 1)",
                       tessera::error);
  CHECK_THROWS_AS(tessera::select_rows(host.exec(), batch, ids{-1}), tessera::error);
}

TEST_CASE("random batches, row by row") {
  serial_host host;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<tessera::feature_rows<std::int64_t>> features, expected;
  auto const indices = tessera_tests::random_integers<std::int64_t>(random, 700, 0, 99);
  for (int key = 0; key < 7; ++key) {
    auto const rows = random_rows(random, 100);
    std::vector<std::vector<float>> weights;
    for (auto const& row : rows) weights.push_back(tessera_tests::random_floats(random, row.size()));
    features.push_back({std::to_string(key), rows, weights});
    expected.push_back({std::to_string(key), select_rows_tests::naive(rows, indices), select_rows_tests::naive(weights, indices)});
  }
  auto const selected = tessera::select_rows(host.exec(), keyed_jagged<>::from_rows(host.exec(), features), indices);
  CHECK((selected == keyed_jagged<>::from_rows(host.exec(), expected)));
}
