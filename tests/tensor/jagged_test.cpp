// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/tensor/jagged.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"
#include "../support/temporary_folder.hpp"
#include "keyed_support.hpp"

using tessera::errc;
using tessera::error;
using tessera::jagged;
using tessera::jagged_view;
using tessera_tests::serial_host;

static_assert(std::is_trivially_copyable_v<jagged_view<float>>);
static_assert(std::is_convertible_v<jagged_view<float>, jagged_view<float const>>);
static_assert(!std::is_convertible_v<jagged_view<float const>, jagged_view<float>>);
static_assert(!std::is_convertible_v<jagged_view<float>, jagged_view<double const>>);
static_assert(!std::is_copy_constructible_v<jagged<float>> && std::is_nothrow_move_constructible_v<jagged<float>>);

namespace {

using namespace tensor_tests;

template <class Offset>
void check_round_trip(tessera::host_exec const& exec, rows_of_ids const& rows) {
  ids values;
  std::vector<Offset> lengths, offsets{0};
  for (auto const& row : rows) {
    values.insert(values.end(), row.begin(), row.end());
    lengths.push_back(static_cast<Offset>(row.size()));
    offsets.push_back(static_cast<Offset>(values.size()));
  }
  using owner = jagged<std::int64_t, Offset>;
  auto const from_rows = owner::from_rows(exec, rows);
  auto const view = from_rows.view();
  REQUIRE(view.rows == static_cast<std::int64_t>(rows.size()));
  CHECK(from_rows.rows() == view.rows);
  CHECK(from_rows.size() == static_cast<std::int64_t>(values.size()));
  CHECK(view.size() == from_rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto const row = view.row(static_cast<std::int64_t>(i));
    if (ids(row.begin(), row.end()) != rows[i] || view.length(static_cast<std::int64_t>(i)) != row.size()) FAIL("row ", i);
  }
  tessera::validate(view, from_rows.size());
  CHECK(equal(owner::from_lengths(exec, values, lengths).view(), view));
  CHECK(equal(owner::from_offsets(exec, values, offsets).view(), view));
  CHECK(equal(owner::from_view(exec, view).view(), view));
  auto written = owner::with_lengths(exec, lengths);
  CHECK(written.size() == from_rows.size());
  std::copy(values.begin(), values.end(), written.view().values);
  CHECK(equal(written.view(), view));
}

}  // namespace

TEST_CASE("rows, lengths and offsets build the same") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  rows_of_ids const edges[] = {{}, {{}}, {{}, {}, {}}, {{1}}, {{1, 2}, {}, {3}}, {{}, {7}}, random_rows(random, 5000)};
  for (auto const& rows : edges) {
    check_round_trip<std::int64_t>(host.exec(), rows);
    check_round_trip<std::int32_t>(host.exec(), rows);
  }
}

TEST_CASE("buffers are taken over where they lie, and offsets that do not fit the values are refused") {
  tessera_tests::serial_host host;
  auto const made = [&](std::int64_t values, ids const& offsets) {
    tessera::buffer<std::int64_t> v(host.exec(), values), o(host.exec(), static_cast<std::int64_t>(offsets.size()));
    std::fill(v.begin(), v.end(), 7);
    std::copy(offsets.begin(), offsets.end(), o.begin());
    auto const* const place = v.data();
    auto rows = jagged<std::int64_t>::from_buffers(std::move(v), std::move(o));
    CHECK(std::as_const(rows).view().values == place);
    return rows;
  };
  CHECK(equal(made(3, {0, 2, 2, 3}).view(), jagged<std::int64_t>::from_rows(host.exec(), {{7, 7}, {}, {7}}).view()));
  CHECK(made(0, {0}).rows() == 0);
  for (auto const& wrong : {ids{}, ids{1, 3}, ids{0, 2}, ids{0, 4}})
    CHECK(error_of([&] { made(3, wrong); }).code() == tessera::errc::shape_mismatch);
  CHECK(error_of([&] { made(3, {0, 2}); }).value("last offset") == "2");
}

TEST_CASE("an owner without rows") {
  jagged<float> none;
  CHECK(none.rows() == 0);
  CHECK(none.size() == 0);
  CHECK(none.view().size() == 0);
  CHECK(text(none.view()) == "[]");
  tessera::validate(none.view(), 0);
  CHECK(equal(none.view(), jagged_view<float>{}));
  serial_host host;
  CHECK(jagged<float>::from_view(host.exec(), none.view()).rows() == 0);
  CHECK(jagged<float>::from_offsets(host.exec(), std::vector<float>{}, ids{0}).rows() == 0);
}

TEST_CASE("a slice shares the values, and its offsets need not start at 0") {
  serial_host host;
  auto rows = jagged<std::int64_t>::from_rows(host.exec(), {{1, 2}, {}, {3}, {4, 5, 6}, {7}});
  auto const slice = rows.view().slice(1, 3);
  CHECK(text(slice) == "[[], [3], [4, 5, 6]]");
  CHECK(slice.size() == 4);
  CHECK(slice.begin_of(0) == 2);
  CHECK(slice.end_of(2) == 6);
  CHECK(slice.row(1).data() == rows.view().row(2).data());
  slice.row(1)[0] = 30;
  CHECK(text(rows.view().slice(2, 1)) == "[[30]]");
  tessera::validate(slice, 6);
  tessera::validate(slice, rows.size());
  CHECK(rows.view().slice(5, 0).size() == 0);

  auto const copy = jagged<std::int64_t>::from_view(host.exec(), slice);
  CHECK(copy.size() == 4);
  CHECK(copy.view().offsets[0] == 0);
  CHECK(equal(copy.view(), slice));
  CHECK(equal(copy.view().slice(1, 2), rows.view().slice(2, 2)));
}

TEST_CASE("equality sees values and shapes, not places") {
  serial_host host;
  auto const make = [&](rows_of_ids const& rows) { return jagged<std::int64_t>::from_rows(host.exec(), rows); };
  auto const a = make({{1, 2}, {3}});
  CHECK(equal(a.view(), make({{1, 2}, {3}}).view()));
  CHECK_FALSE(equal(a.view(), make({{1, 2}, {4}}).view()));
  CHECK_FALSE(equal(a.view(), make({{1}, {2, 3}}).view()));
  CHECK_FALSE(equal(a.view(), make({{1, 2}, {3}, {}}).view()));
  CHECK_FALSE(equal(a.view(), make({{1, 2}}).view()));
  CHECK(equal(make({{9}, {1, 2}, {3}}).view().slice(1, 2), a.view()));
  CHECK(equal(make({{}, {}}).view(), make({{}, {}}).view()));
}

TEST_CASE("printing shows eight and counts the rest") {
  serial_host host;
  auto const make = [&](rows_of_ids const& rows) { return jagged<std::int64_t>::from_rows(host.exec(), rows); };
  CHECK(text(make({{1, 2}, {}, {3}}).view()) == "[[1, 2], [], [3]]");
  CHECK(text(make({{1, 2, 3, 4, 5, 6, 7, 8}}).view()) == "[[1, 2, 3, 4, 5, 6, 7, 8]]");
  CHECK(text(make({{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}).view()) == "[[1, 2, 3, 4, 5, 6, 7, 8, +2 more]]");
  CHECK(text(make(rows_of_ids(11)).view()) == "[[], [], [], [], [], [], [], [], +3 more]");
  CHECK(text(jagged<float>::from_rows(host.exec(), {{0.5F, -1}}).view()) == "[[0.5, -1]]");
}

TEST_CASE("lengths that disagree with the values are refused before anything that large is allocated") {
  serial_host host;
  auto const from_lengths = [&](ids const& values, ids const& lengths) {
    return error_of([&] { jagged<std::int64_t>::from_lengths(host.exec(), values, lengths); });
  };
  auto e = from_lengths({1, 2, 3}, {1, 1});
  CHECK(e.code() == errc::shape_mismatch);
  CHECK(std::string(e.what()) == "jagged: lengths do not sum to the number of values (sum 2, values 3)");
  e = from_lengths({1}, {std::int64_t{1} << 60, 1});
  CHECK(e.code() == errc::shape_mismatch);
  CHECK(e.value("sum") == "1152921504606846977");
  e = from_lengths({1}, {2, -1});
  CHECK(e.code() == errc::invalid_argument);
  CHECK(e.value("row") == "1");
  CHECK(e.value("length") == "-1");
  CHECK_THROWS_AS(jagged<float>::with_lengths(host.exec(), ids{-1}), error);
  CHECK_THROWS_AS(
      (jagged<float, std::int32_t>::with_lengths(host.exec(), std::vector<std::int32_t>(3, std::numeric_limits<std::int32_t>::max()))),
      error);
}

TEST_CASE("offsets that cannot be are refused by name") {
  serial_host host;
  auto const check = [&](ids const& values, ids const& offsets, errc code, char const* what) {
    auto const e = error_of([&] { jagged<std::int64_t>::from_offsets(host.exec(), values, offsets); });
    CHECK(e.code() == code);
    CHECK(std::string(e.what()) == what);
  };
  check({}, {}, errc::shape_mismatch, "jagged: offsets need one element more than rows (offsets 0)");
  check({1}, {1, 1}, errc::invalid_argument, "jagged: the first offset is not 0 (offset 1)");
  check({1, 2}, {0, 2, 1, 2}, errc::invalid_argument, "jagged: offsets decrease (row 1, offset 2, next offset 1)");
  check({1, 2}, {0, 3}, errc::out_of_range, "jagged: offsets reach past the values (last offset 3, values 2)");
  check({1, 2}, {0, 1}, errc::shape_mismatch, "jagged: more values than the offsets reach (last offset 1, values 2)");
}

TEST_CASE("validate names what is wrong with a view") {
  std::int64_t const values[] = {1, 2, 3};
  auto const check = [&](jagged_view<std::int64_t const> view) { return error_of([&] { tessera::validate(view, 3); }); };
  ids const good{1, 1, 3}, negative{-1, 0}, decreasing{0, 3, 2};
  tessera::validate(jagged_view<std::int64_t const>{values, good.data(), 2}, 3);
  tessera::validate(jagged_view<std::int64_t const>{}, 0);
  CHECK(std::string(check({values, good.data(), -1}).what()) == "jagged: negative number of rows (rows -1)");
  CHECK(std::string(check({values, nullptr, 2}).what()) == "jagged: no offsets (rows 2)");
  CHECK(std::string(check({values, negative.data(), 1}).what()) == "jagged: negative offset (row 0, offset -1)");
  CHECK(std::string(check({values, decreasing.data(), 2}).what()) == "jagged: offsets decrease (row 1, offset 3, next offset 2)");
  CHECK(check({values, decreasing.data(), 2}).code() == errc::invalid_argument);
  auto const past = error_of([&] { tessera::validate(jagged_view<std::int64_t const>{values, good.data(), 2}, 2); });
  CHECK(past.code() == errc::out_of_range);
}

TEST_CASE("everything an owner holds comes from the execution's memory and goes back") {
  serial_host host;
  {
    auto a = jagged<std::int64_t>::from_rows(host.exec(), {{1, 2}, {3}});
    CHECK(host.memory().live_bytes() == 3 * 8 + 3 * 8);
    auto const b = std::move(a);
    CHECK(b.size() == 3);
    CHECK(a.rows() == 0);  // NOLINT: moved-from is empty by contract
  }
  CHECK(host.memory().balanced());
}
