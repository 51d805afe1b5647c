// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "keyed_support.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/view.hpp>
#include <tessera/tensor/padded.hpp>

using namespace tensor_tests;
using tessera::kept_values;
using tessera::matrix_view;

TEST_CASE("rows to a matrix, too narrow and too wide, and back") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64&) {
    auto const flat = view.flat();
    using offset = std::remove_cvref_t<decltype(flat.offsets[0])>;
    std::int64_t longest = 0;
    std::vector<offset> lengths;
    for (std::int64_t row = 0; row < flat.rows; ++row) {
      lengths.push_back(static_cast<offset>(flat.length(row)));
      longest = std::max(longest, flat.length(row));
    }
    for (auto const columns : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, longest, longest + 2})
      for (auto const kept : {kept_values::first, kept_values::last}) {
        auto const stride = columns + 1;  // the last column is not the matrix's
        ids memory(static_cast<std::size_t>(flat.rows * stride), -7);
        matrix_view<std::int64_t> const matrix(memory.data(), flat.rows, columns, stride);
        tessera::to_padded(exec, flat, matrix, -1, kept);
        bool right = true;
        std::int64_t row = 0;
        for (auto const& rows : keys)
          for (auto const& expected : rows) {
            auto const length = static_cast<std::int64_t>(expected.values.size());
            auto const from = kept == kept_values::last ? std::max<std::int64_t>(0, length - columns) : 0;
            for (std::int64_t c = 0; c < columns; ++c)
              right = right && matrix(row, c) == (from + c < length ? expected.values[static_cast<std::size_t>(from + c)] : -1);
            right = right && memory[static_cast<std::size_t>(row * stride + columns)] == -7;
            ++row;
          }
        CHECK(right);
        if (columns < longest) continue;
        auto const back = tessera::from_padded(exec, matrix, lengths);
        static_assert(std::is_same_v<decltype(back), tessera::jagged<std::int64_t, offset> const>);
        tessera::validate(back.view(), back.size());
        CHECK(equal(back.view(), flat));
      }
  });
}

TEST_CASE("the inverse of each other is the backward of each other") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  floats const gradient{1, 2, 3, 4, 5, 6};
  ids const lengths{2, 0, 3};
  // L = sum of gradient * matrix: by the values, what lies where they went.
  auto const by_values = tessera::from_padded(exec, matrix_view<float const>(gradient.data(), 2, 3), ids{1, 3});
  CHECK(text(by_values.view()) == "[[1], [4, 5, 6]]");
  auto const by_rows = tessera::jagged<float>::from_rows(exec, {{1, 2}, {}, {3, 4, 5}});
  floats by_matrix(9, -1);
  tessera::to_padded(exec, by_rows.view(), matrix_view<float>(by_matrix.data(), 3, 3), 0);
  CHECK(by_matrix == floats{1, 2, 0, 0, 0, 0, 3, 4, 5});
}

TEST_CASE("shapes and lengths that do not fit are refused") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  ids memory(6);
  matrix_view<std::int64_t> const matrix(memory.data(), 2, 3);
  auto const rows = tessera::jagged<std::int64_t>::from_rows(exec, {{1}, {2}, {3}});
  auto e = error_of([&] { tessera::to_padded(exec, rows.view(), matrix, 0); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("rows of the matrix") == "2");
  auto const fitting = tessera::jagged<std::int64_t>::from_rows(exec, {{1}, {2}});
  e = error_of([&] { tessera::to_padded(exec, fitting.view(), matrix_view<std::int64_t>(memory.data(), 2, 3, 2), 0); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("stride") == "2");
  e = error_of([&] { tessera::from_padded(exec, matrix, ids{1}); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{4}, INT64_MAX, INT64_MIN}) {
    e = error_of([&] { tessera::from_padded(exec, matrix, ids{3, wrong}); });
    CHECK(e.code() == tessera::errc::out_of_range);
    CHECK(e.value("row") == "1");
    CHECK(e.value("length") == std::to_string(wrong));
    CHECK(e.value("columns") == "3");
  }
}
