// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/select_rows.hpp>

#include "inverse_support.hpp"

using namespace tensor_tests;

namespace {

tessera::buffer<std::int64_t> buffer_of(tessera::host_exec const& exec, ids const& values) {
  tessera::buffer<std::int64_t> result(exec, static_cast<std::int64_t>(values.size()));
  std::copy(values.begin(), values.end(), result.begin());
  return result;
}

std::string error_of_parts(ids const& keys_per_group, ids const& inverses, std::int64_t samples) {
  tessera_tests::serial_host host;
  auto distinct = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {2}}}, {"b", {{1}, {3}}}, {"c", {{1}, {2}, {3}}}});
  return refusal_of([&] {
    auto const made =
        tessera::inverse_keyed_jagged<>::from_parts(std::move(distinct), keys_per_group, buffer_of(host.exec(), inverses), samples);
    tessera::validate(made.view(), made.view().distinct.size());
  });
}

}  // namespace

TEST_CASE("an IKJT is put together from parts that fit") {
  CHECK(error_of_parts({2}, {0, 1, 1}, 3) == "");
  CHECK(error_of_parts({2}, {0, 1}, 3) == "inverse_keyed_jagged: one inverse a group and sample (inverses 2, groups 1, samples 3)");
  CHECK(error_of_parts({2}, {0, 1, 2}, 3) == "inverse_keyed_jagged: no such row (group 0, sample 2, row 2, rows 2)");
  CHECK(error_of_parts({2}, {0, -1, 1}, 3) == "inverse_keyed_jagged: no such row (group 0, sample 1, row -1, rows 2)");
  CHECK(error_of_parts({3}, {0, 1, 1}, 3) ==
        "inverse_keyed_jagged: keys of one group have as many rows (group 0, key 2, rows 3, expected 2)");
  CHECK(error_of_parts({1}, {0, 1, 1}, 3) == "inverse_keyed_jagged: a key without a group has a row a sample (key 1, rows 2, samples 3)");
  CHECK(error_of_parts({4}, {0, 1, 1}, 3) ==
        "inverse_keyed_jagged: groups are one key or more each, in order (group 0, first key 0, keys 4, keys of all 3)");
  CHECK(error_of_parts({2, 0}, {0, 1, 1, 0, 0, 0}, 3) ==
        "inverse_keyed_jagged: groups are one key or more each, in order (group 1, first key 2, keys 0, keys of all 3)");
}

TEST_CASE("a view of fewer samples than none is refused, though no key has a row a sample") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {2}}}});
  ids const inverse{0};
  tessera::row_group const group{0, 1, inverse.data()};
  tessera::inverse_keyed_jagged_view<std::int64_t const> const view{batch.view(), {&group, 1}, -1};
  CHECK(refusal_of([&] { tessera::validate(view, 2); }) == "inverse_keyed_jagged: samples (samples -1, least 0)");
  CHECK(refusal_of([&] { tessera::expand(host.exec(), view); }) == "expand: samples (samples -1, least 0)");
}

TEST_CASE("an empty IKJT has neither keys nor samples") {
  tessera::inverse_keyed_jagged<> const none;
  CHECK(none.view().keys() == 0);
  CHECK(none.view().samples == 0);
  CHECK(none.view().grouped_keys() == 0);
  tessera_tests::serial_host host;
  CHECK(tessera::expand(host.exec(), none.view()).view().keys == 0);
}

TEST_CASE("moving an IKJT keeps its views' memory") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {1}}}});
  auto made = tessera::deduplicate(host.exec(), batch, ids{1});
  auto const before = made.view();
  auto const moved = std::move(made);
  CHECK(moved.view().groups.data() == before.groups.data());
  CHECK(moved.view().groups[0].inverse == before.groups[0].inverse);
  CHECK(moved.bytes() >= 2 * 8 + 8);
}

TEST_CASE("a sample that is not there is named by the key's name") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {1}}}, {"b", {{}, {3}}}});
  auto const plain = tessera::deduplicate(host.exec(), batch, ids{});
  CHECK(refusal_of([&] { tessera::select_rows(host.exec(), plain, ids{-1}); }) ==
        "select_rows: no such row (key a, position 0, index -1, rows 2)");
}
