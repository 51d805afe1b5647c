// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/view.hpp>
#include <tessera/tensor/padded.hpp>

#include "rows_harness.hpp"

namespace padded_tests {

using namespace tensor_tests;
using tessera::kept_values;
using tessera::matrix_view;

// Row for row what `to_padded` must write; the column behind the matrix's stays.
inline ids padded(model const& keys, std::int64_t columns, std::int64_t stride, kept_values kept, std::int64_t untouched) {
  ids result;
  for (auto const& rows : keys)
    for (auto const& row : rows) {
      auto const length = static_cast<std::int64_t>(row.values.size());
      auto const from = kept == kept_values::last ? std::max<std::int64_t>(0, length - columns) : 0;
      for (std::int64_t c = 0; c < columns; ++c) result.push_back(from + c < length ? row.values[static_cast<std::size_t>(from + c)] : -1);
      result.insert(result.end(), static_cast<std::size_t>(stride - columns), untouched);
    }
  return result;
}

template <class Harness>
void batches(Harness const& harness) {
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64&) {
    auto const flat = view.flat();
    using offset = std::remove_cvref_t<decltype(flat.offsets[0])>;
    std::int64_t longest = 0;
    std::vector<offset> lengths;
    for (std::int64_t row = 0; row < flat.rows; ++row) {
      lengths.push_back(static_cast<offset>(host_view.flat().length(row)));
      longest = std::max(longest, host_view.flat().length(row));
    }
    auto const row_lengths = harness.numbers(lengths);
    constexpr std::int64_t widest = 520;  // more than two chunks of a device's row; the rest is cut
    for (auto const columns : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::min(longest, widest), longest + 2}) {
      if (columns > widest || (columns == widest && view.weighted())) continue;  // a matrix has no weights
      for (std::int64_t const behind : {0, 1})
        for (auto const kept : {kept_values::first, kept_values::last}) {
          auto const stride = columns + behind;
          auto memory = harness.numbers(ids(static_cast<std::size_t>(flat.rows * stride), -7));
          matrix_view<std::int64_t> const matrix(memory.data(), flat.rows, columns, stride);
          tessera::to_padded(harness.exec, flat, matrix, -1, kept);
          CHECK(harness.get(memory) == padded(keys, columns, stride, kept, -7));
          if (columns < longest) continue;
          auto back = tessera::from_padded(harness.exec, matrix, row_lengths);
          static_assert(std::is_same_v<std::remove_cvref_t<decltype(harness.get(std::move(back)))>, tessera::jagged<std::int64_t, offset>>);
          auto const rows = harness.get(std::move(back));
          tessera::validate(rows.view(), rows.size());
          CHECK(equal(rows.view(), host_view.flat()));
        }
    }
  });
}

// Every size of a value, and rows that begin anywhere.
template <class T, class Harness>
void values_of(Harness const& harness) {
  CAPTURE(sizeof(T));
  std::vector<std::vector<T>> rows;
  for (std::size_t length : {5U, 0U, 33U, 16U, 1U, 300U, 32U}) {
    rows.emplace_back();
    for (std::size_t i = 0; i < length; ++i) rows.back().push_back(static_cast<T>(rows.size() + i % 100));
  }
  auto const given = tessera::jagged<T>::from_rows(harness.on_host(), rows);
  auto const& in = harness.put(given);
  for (std::int64_t const columns : {1, 15, 16, 31, 48, 299, 300, 4096})
    for (std::int64_t const offset : {0, 1}) {
      CAPTURE(columns);
      auto const count = static_cast<std::int64_t>(rows.size());
      auto memory = harness.numbers(std::vector<T>(static_cast<std::size_t>(offset + count * columns), T{99}));
      matrix_view<T> const matrix(memory.data() + offset, count, columns);
      tessera::to_padded(harness.exec, in.view(), matrix, T{77});
      std::vector<T> expected(static_cast<std::size_t>(offset), T{99});
      for (auto const& row : rows)
        for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) expected.push_back(c < row.size() ? row[c] : T{77});
      CHECK(harness.get(memory) == expected);
      if (columns < 300) continue;
      auto const back = harness.get(tessera::from_padded(harness.exec, matrix, harness.numbers(ids{5, 0, 33, 16, 1, 300, 32})));
      CHECK(equal(back.view(), given.view()));
    }
}

template <class Harness>
void refusals(Harness const& harness) {
  auto const& exec = harness.exec;
  auto memory = harness.numbers(ids(6, 5));
  matrix_view<std::int64_t> const matrix(memory.data(), 2, 3);
  auto const rows = rows_in(harness, {{1}, {2}, {3}}), fitting = rows_in(harness, {{1}, {2}});
  auto e = error_of([&] { tessera::to_padded(exec, rows.view(), matrix, 0); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("rows of the matrix") == "2");
  e = error_of([&] { tessera::to_padded(exec, fitting.view(), matrix_view<std::int64_t>(memory.data(), 2, 3, 2), 0); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("stride") == "2");
  auto const one = harness.numbers(ids{1});
  e = error_of([&] { tessera::from_padded(exec, matrix, one); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{4}, INT64_MAX, INT64_MIN}) {
    auto const lengths = harness.numbers(ids{3, wrong});
    CHECK(refusal_of(harness, [&] { return tessera::from_padded(exec, matrix, lengths); }) ==
          "from_padded: no such length (row 1, length " + std::to_string(wrong) + ", columns 3)");
  }
  auto const lengths = harness.numbers(ids{3, 2});
  check_room(harness, "from_padded", 5, [&](tessera::result_room room) { return tessera::from_padded(exec, matrix, lengths, room); });
  CHECK(waits_of(harness, 0, [&] {
          tessera::from_padded(exec, matrix, lengths);
          tessera::to_padded(exec, fitting.view(), matrix, 0);
        }) == 0);
}

}  // namespace padded_tests

/// What every execution must show.
template <class Harness>
void padded_suite(Harness const& harness) {
  using namespace padded_tests;
  SUBCASE("rows to a matrix, too narrow and too wide, and back") { batches(harness); }
  SUBCASE("values of every size, rows that begin anywhere") {
    values_of<unsigned char>(harness);
    values_of<std::int16_t>(harness);
    values_of<float>(harness);
    values_of<double>(harness);
  }
  SUBCASE("shapes and lengths that do not fit are refused") { refusals(harness); }
}
