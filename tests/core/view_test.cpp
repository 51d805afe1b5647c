// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/view.hpp>

#include "skip.hpp"

using tessera::matrix_view;
using tessera::vector_view;

namespace {

struct base {
  int a;
};
struct derived : base {
  int b;
};

}  // namespace

// Const is added, never taken away; elements neither change their type nor their size.
static_assert(std::is_convertible_v<std::vector<float>&, vector_view<float>>);
static_assert(std::is_convertible_v<std::vector<float> const&, vector_view<float const>>);
static_assert(!std::is_convertible_v<std::vector<float> const&, vector_view<float>>);
static_assert(std::is_convertible_v<vector_view<float>, vector_view<float const>>);
static_assert(!std::is_convertible_v<vector_view<float const>, vector_view<float>>);
static_assert(!std::is_convertible_v<std::vector<double>&, vector_view<float>>);
static_assert(!std::is_convertible_v<std::vector<derived>&, vector_view<base>>);
static_assert(!std::is_convertible_v<std::vector<bool>&, vector_view<bool>>);
static_assert(!std::is_convertible_v<float*, vector_view<float>>);
static_assert(std::is_convertible_v<matrix_view<float>, matrix_view<float const>>);
static_assert(!std::is_convertible_v<matrix_view<float const>, matrix_view<float>>);
static_assert(!std::is_convertible_v<matrix_view<int>, matrix_view<float const>>);

TEST_CASE("a vector view shows what its container holds") {
  std::vector<int> vector{1, 2, 3};
  vector_view<int> const view = vector;
  CHECK(view.data() == vector.data());
  CHECK(view.size() == 3);
  CHECK_FALSE(view.empty());
  CHECK(std::accumulate(view.begin(), view.end(), 0) == 6);
  view[1] = 20;
  CHECK(vector[1] == 20);

  std::vector<int> const constant{4, 5};
  CHECK(vector_view<int const>(constant)[1] == 5);
  std::array<double, 2> array{0.5, 1.5};
  CHECK(vector_view<double>(array)[1] == 1.5);
  std::string text = "abc";
  CHECK(vector_view<char const>(text).size() == 3);

  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::buffer<int> buffer(tessera::host_exec(team, memory), 2);
  buffer[0] = 7;
  buffer[1] = 8;
  CHECK(vector_view<int>(buffer)[1] == 8);
  CHECK(vector_view<int const>(std::as_const(buffer))[0] == 7);
  CHECK(buffer.view().data() == buffer.data());
}

TEST_CASE("a vector view's type follows from its container") {
  std::vector<int> vector{1};
  std::vector<int> const constant{1};
  static_assert(std::is_same_v<decltype(vector_view(vector)), vector_view<int>>);
  static_assert(std::is_same_v<decltype(vector_view(constant)), vector_view<int const>>);
  static_assert(std::is_same_v<decltype(vector_view(vector_view(constant))), vector_view<int const>>);
  static_assert(std::is_same_v<decltype(vector_view(vector.data(), 1)), vector_view<int>>);
  CHECK(vector_view(vector).size() == 1);
}

TEST_CASE("empty views") {
  vector_view<int> const none;
  CHECK(none.empty());
  CHECK(none.begin() == none.end());
  CHECK(none.slice(0, 0).empty());
  std::vector<int> empty;
  CHECK(vector_view<int>(empty).empty());
  matrix_view<float> const nothing;
  CHECK(nothing.rows() == 0);
  CHECK(nothing.block(0, 0, 0, 0).columns() == 0);
}

TEST_CASE("a slice of a slice") {
  std::vector<int> vector(10);
  std::iota(vector.begin(), vector.end(), 0);
  auto const slice = vector_view<int>(vector).slice(2, 6).slice(3, 2);
  CHECK(slice.size() == 2);
  CHECK(slice[0] == 5);
  CHECK(slice[1] == 6);
}

TEST_CASE("blocks of a strided matrix") {
  constexpr std::int64_t rows = 5, columns = 7, stride = 9;
  std::vector<int> storage(static_cast<std::size_t>(rows * stride), -1);
  matrix_view<int> const matrix(storage.data(), rows, columns, stride);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) matrix(r, c) = static_cast<int>(10 * r + c);
  CHECK(matrix.row(2)[3] == 23);
  CHECK(storage[2 * 9 + 3] == 23);
  CHECK(storage[7] == -1);  // between the rows

  auto const block = matrix.block(1, 2, 3, 4);
  CHECK(block.rows() == 3);
  CHECK(block.columns() == 4);
  CHECK(block.stride() == stride);
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 4; ++c) CHECK(block(r, c) == 10 * (r + 1) + c + 2);
  CHECK(matrix.block(0, 0, rows, columns).data() == matrix.data());
  CHECK(&block.block(1, 1, 1, 1)(0, 0) == &matrix(2, 3));
  CHECK(&matrix.columns_from(3, 2)(4, 1) == &matrix(4, 4));
  CHECK(matrix.columns_from(3, 2).rows() == rows);
  CHECK(&matrix.rows_from(3, 2)(1, 6) == &matrix(4, 6));
  CHECK(matrix.rows_from(3, 2).columns() == columns);

  matrix_view<int const> const constant = matrix;
  CHECK(constant.stride() == stride);
  CHECK(constant(4, 6) == 46);
  CHECK(matrix_view<int>(storage.data(), 5, 9).stride() == 9);
}

TEST_CASE("a checked build refuses indices and parts that reach past a view") {
  if constexpr (!tessera::checks_indices) return tessera_tests::skip("not a checked build");
  std::vector<int> values(12);
  tessera::vector_view<int> const v(values);
  tessera::matrix_view<int> const m(values.data(), 3, 4);
  auto const refused = [](auto const& f) {
    try {
      f();
    } catch (tessera::error const& e) {
      return e.code() == tessera::errc::out_of_range;
    }
    return false;
  };
  CHECK(refused([&] { v[12] = 0; }));
  CHECK(refused([&] { v[-1] = 0; }));
  CHECK(refused([&] { v.slice(5, 8); }));
  CHECK(refused([&] { m(3, 0) = 0; }));
  CHECK(refused([&] { m(0, 4) = 0; }));
  CHECK(refused([&] { m.row(3); }));
  CHECK(refused([&] { m.block(1, 1, 2, 4); }));
  CHECK(refused([&] { m.rows_from(2, 2); }));
  CHECK_FALSE(refused([&] { m.block(3, 0, 0, 4); }));
  CHECK_FALSE(refused([&] { v.slice(12, 0); }));
}
