// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include <tessera/tensor/pool_segments.hpp>

#include "vectors_harness.hpp"

namespace tessera_tests {

using tessera::segment_pooling;
inline constexpr segment_pooling all_modes[]{segment_pooling::sum, segment_pooling::mean, segment_pooling::max};

/// Pooled vectors are rows of length 1.
inline nested reference_pool(nested const& rows, segment_pooling mode, std::int64_t dim) {
  auto result = nested_of(rows.size(), 1, dim);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t c = 0; c < static_cast<std::size_t>(dim); ++c) {
      double sum = 0, largest = -HUGE_VAL;
      for (auto const& vector : rows[i]) {
        sum += vector[c];
        largest = std::max(largest, vector[c]);
      }
      auto const length = static_cast<double>(rows[i].size());
      if (length > 0) result[i][0][c] = mode == segment_pooling::max ? largest : mode == segment_pooling::mean ? sum / length : sum;
    }
  return result;
}

inline nested reference_unpool(nested const& rows, segment_pooling mode, nested const& gradient) {
  auto result = rows;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t c = 0; c < gradient[i][0].size(); ++c) {
      std::size_t first = 0;
      for (std::size_t j = 0; j < rows[i].size(); ++j)
        if (rows[i][j][c] > rows[i][first][c]) first = j;
      for (std::size_t j = 0; j < rows[i].size(); ++j)
        result[i][j][c] = mode == segment_pooling::max
                              ? (j == first ? gradient[i][0][c] : 0)
                              : gradient[i][0][c] / (mode == segment_pooling::mean ? static_cast<double>(rows[i].size()) : 1);
    }
  return result;
}

template <class Harness>
nested pooled(Harness& harness, nested const& rows, segment_pooling mode, std::int64_t dim) {
  auto in = harness.place(rows, dim);
  auto out = harness.place_for(nested_of(rows.size(), 1, dim), dim);
  tessera::pool_segments(harness.exec(), in.jagged(), mode, out.matrix());
  return out.values();
}

template <class Harness>
nested unpooled(Harness& harness, nested const& rows, segment_pooling mode, nested const& gradient, std::int64_t dim) {
  auto in = harness.place(rows, dim), from = harness.place(gradient, dim), to = harness.place_for(rows, dim);
  tessera::pool_segments_backward(harness.exec(), in.jagged(), mode, from.matrix(), to.jagged());
  return to.values();
}

/// What every execution must show.
template <class Harness, class... Arguments>
void pool_segments_suite(Arguments const&... arguments) {
  Harness harness(arguments...);
  auto const seed = draw_seed();
  CAPTURE(seed);
  harness.seed(seed);

  SUBCASE("by hand, with ties and an empty row") {
    nested const rows{{{1, 5}, {3, -2}, {3, 5}}, {}, {{-7, 0}}};
    CHECK(pooled(harness, rows, segment_pooling::sum, 2) == nested{{{7, 8}}, {{0, 0}}, {{-7, 0}}});
    CHECK(pooled(harness, {{{1, 5}, {3, 2}}}, segment_pooling::mean, 2) == nested{{{2, 3.5}}});
    CHECK(pooled(harness, rows, segment_pooling::max, 2) == nested{{{3, 5}}, {{0, 0}}, {{-7, 0}}});
    nested const gradient{{{10, 20}}, {{30, 40}}, {{50, 60}}};
    CHECK(unpooled(harness, rows, segment_pooling::max, gradient, 2) == nested{{{0, 20}, {10, 0}, {0, 0}}, {}, {{50, 60}}});
    CHECK(unpooled(harness, rows, segment_pooling::sum, gradient, 2) == nested{{{10, 20}, {10, 20}, {10, 20}}, {}, {{50, 60}}});
    CHECK(unpooled(harness, {{{1}, {2}}}, segment_pooling::mean, {{{10}}}, 1) == nested{{{5}, {5}}});
  }
  SUBCASE("every shape and mode, forward and backward") {
    for (auto const& shape : vectors_shapes)
      for (auto const mode : all_modes) {
        auto const dim = shape.dim;
        CAPTURE(shape.rows);
        CAPTURE(dim);
        auto const rows = harness.random(harness.lengths(shape.rows, shape.mean), dim), gradient = harness.random(shape.rows, 1, dim);
        auto const forward = pooled(harness, rows, mode, dim), backward = unpooled(harness, rows, mode, gradient, dim);
        REQUIRE(worst_difference(forward, reference_pool(rows, mode, dim)) < 1e-6);
        REQUIRE(worst_difference(backward, reference_unpool(rows, mode, gradient)) < 1e-6);
        if (mode != segment_pooling::max) REQUIRE(adjoint(forward, gradient, rows, backward));
      }
  }
  SUBCASE("one row longer than many pieces") {
    auto const rows = harness.random({0, 5000, 1, 0}, 20), gradient = harness.random(4, 1, 20);
    for (auto const mode : all_modes) {
      CHECK(worst_difference(pooled(harness, rows, mode, 20), reference_pool(rows, mode, 20)) < 1e-5);
      CHECK(worst_difference(unpooled(harness, rows, mode, gradient, 20), reference_unpool(rows, mode, gradient)) < 1e-6);
    }
  }
  SUBCASE("gradients match central differences") {
    auto rows = harness.random({3, 0, 5, 1}, 3);
    for (auto& row : rows)  // apart by more than a step, which must not change who is the largest
      for (std::size_t r = 0; r < row.size(); ++r)
        for (std::size_t c = 0; c < row[r].size(); ++c)
          row[r][c] = std::round(row[r][c] * 8) / 8 + 0.01 * static_cast<double>((r * 3 + c) % 7);
    auto const gradient = harness.random(4, 1, 3);
    for (auto const mode : all_modes)
      CHECK(worst_difference(unpooled(harness, rows, mode, gradient, 3),
                             numeric_gradient(rows, gradient, [&] { return reference_pool(rows, mode, 3); })) < 1e-6);
  }
  SUBCASE("a NaN is the largest wherever it comes, and takes the gradient") {
    auto const nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
    for (std::size_t position = 0; position < 3; ++position) {
      nested rows{{{1}, {infinity}, {2}}};
      rows[0][position][0] = nan;
      CHECK(std::isnan(pooled(harness, rows, segment_pooling::max, 1)[0][0][0]));
      nested expected{{{0}, {0}, {0}}};
      expected[0][position][0] = 4;
      CHECK(unpooled(harness, rows, segment_pooling::max, {{{4}}}, 1) == expected);
    }
    CHECK(pooled(harness, {{{-infinity}, {-infinity}}}, segment_pooling::max, 1) == nested{{{-infinity}}});
  }
  SUBCASE("what does not fit") {
    auto const exec = harness.exec();
    auto in = harness.place(nested_of({2, 1}, 3), 3), other = harness.place(nested_of({2, 2}, 3), 3);
    auto const refused = [&](std::size_t rows, std::int64_t dim) {
      auto out = harness.place(nested_of(rows, 1, dim), dim);
      auto const e = harness.thrown_by([&] { tessera::pool_segments(exec, in.jagged(), segment_pooling::sum, out.matrix()); });
      CHECK(e.code() == tessera::errc::shape_mismatch);
      CHECK(e.value("matrix rows") == std::to_string(rows));
      CHECK(e.value("columns") == std::to_string(dim));
    };
    refused(3, 3);
    refused(2, 4);
    auto out = harness.place(nested_of(2, 1, 3), 3);
    auto const wrong = static_cast<segment_pooling>(9);
    CHECK(harness.thrown_by([&] { tessera::pool_segments(exec, in.jagged(), wrong, out.matrix()); }).value("mode") == "9");
    auto const e =
        harness.thrown_by([&] { tessera::pool_segments_backward(exec, in.jagged(), segment_pooling::sum, out.matrix(), other.jagged()); });
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(e.value("argument") == "in_gradient");
    CHECK(e.value("values") == "4");
    CHECK(e.value("values expected") == "3");
  }
}

}  // namespace tessera_tests
