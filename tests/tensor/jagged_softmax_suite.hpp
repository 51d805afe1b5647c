// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <limits>

#include <tessera/tensor/jagged_softmax.hpp>

#include "vectors_harness.hpp"

namespace tessera_tests {

inline nested reference_softmax(nested rows) {
  for (auto& row : rows)
    for (std::size_t c = 0; c < (row.empty() ? 0 : row[0].size()); ++c) {
      double largest = -HUGE_VAL, sum = 0;
      for (auto const& vector : row) largest = std::max(largest, vector[c]);
      for (auto const& vector : row) sum += std::exp(vector[c] - largest);
      for (auto& vector : row) vector[c] = std::exp(vector[c] - largest) / sum;
    }
  return rows;
}

inline nested reference_softmax_backward(nested const& rows, nested gradient) {
  auto const y = reference_softmax(rows);
  for (std::size_t i = 0; i < y.size(); ++i)
    for (std::size_t c = 0; c < (y[i].empty() ? 0 : y[i][0].size()); ++c) {
      double sum = 0;
      for (std::size_t j = 0; j < y[i].size(); ++j) sum += y[i][j][c] * gradient[i][j][c];
      for (std::size_t j = 0; j < y[i].size(); ++j) gradient[i][j][c] = y[i][j][c] * (gradient[i][j][c] - sum);
    }
  return gradient;
}

template <class Harness>
nested softmax(Harness& harness, nested const& rows, std::int64_t dim) {
  auto in = harness.place(rows, dim), out = harness.place_for(rows, dim);
  tessera::jagged_softmax(harness.exec(), in.jagged(), out.jagged());
  return out.values();
}

/// Of what the forward wrote.
template <class Harness>
nested softmax_backward(Harness& harness, nested const& y, nested const& gradient, std::int64_t dim) {
  auto out = harness.place(y, dim), from = harness.place(gradient, dim), to = harness.place_for(y, dim);
  tessera::jagged_softmax_backward(harness.exec(), out.jagged(), from.jagged(), to.jagged());
  return to.values();
}

/// What every execution must show.
template <class Harness, class... Arguments>
void jagged_softmax_suite(Arguments const&... arguments) {
  Harness harness(arguments...);
  auto const seed = draw_seed();
  CAPTURE(seed);
  harness.seed(seed);

  SUBCASE("by hand") {
    CHECK(softmax(harness, {{{0, 5}, {0, 5}}, {}, {{-3, 100}}}, 2) == nested{{{0.5, 0.5}, {0.5, 0.5}}, {}, {{1, 1}}});
    CHECK(worst_difference(softmax(harness, {{{std::log(3.0)}, {0}}}, 1), {{{0.75}, {0.25}}}) < 1e-6);
  }
  SUBCASE("every shape, forward and backward") {
    for (auto const& shape : vectors_shapes) {
      CAPTURE(shape.rows);
      CAPTURE(shape.dim);
      auto const lengths = harness.lengths(shape.rows, shape.mean);
      auto const rows = harness.random(lengths, shape.dim), gradient = harness.random(lengths, shape.dim);
      auto const y = softmax(harness, rows, shape.dim);
      REQUIRE(worst_difference(y, reference_softmax(rows)) < 1e-6);
      REQUIRE(worst_difference(softmax_backward(harness, y, gradient, shape.dim), reference_softmax_backward(rows, gradient)) < 1e-6);
    }
  }
  SUBCASE("the exponential") {
    using tessera::detail::exp_of_negative;
    std::uniform_real_distribution<float> draw(-87, 0);
    double worst = 0;
    for (int i = 0; i < 100000; ++i) {
      auto const x = i < 50000 ? draw(harness.engine()) : draw(harness.engine()) / 100;
      auto const expected = std::exp(static_cast<double>(x));
      worst = std::max(worst, std::fabs(static_cast<double>(exp_of_negative(x)) - expected) / expected);
    }
    CHECK(worst < 2e-7);
    CHECK(exp_of_negative(0) == 1);
    CHECK(exp_of_negative(-87.1F) == 0);
    CHECK(exp_of_negative(-std::numeric_limits<float>::infinity()) == 0);
    CHECK(std::isnan(exp_of_negative(std::nanf(""))));
  }
  SUBCASE("a long row still sums to 1") {
    auto const y = softmax(harness, harness.random({20000}, 3), 3);
    for (std::size_t c = 0; c < 3; ++c) {
      double sum = 0;
      for (auto const& vector : y[0]) sum += vector[c];
      CHECK(sum == doctest::Approx(1).epsilon(1e-6));
    }
  }
  SUBCASE("gradients match central differences") {
    auto rows = harness.random({3, 0, 5, 1}, 3);
    auto const gradient = harness.random(lengths_of(rows), 3);
    CHECK(worst_difference(softmax_backward(harness, softmax(harness, rows, 3), gradient, 3),
                           numeric_gradient(rows, gradient, [&] { return reference_softmax(rows); })) < 1e-6);
  }
  SUBCASE("large values overflow nothing; infinities and NaN as said") {
    auto const infinity = std::numeric_limits<double>::infinity();
    CHECK(softmax(harness, {{{3e38, -3e38}, {-3e38, -3e38}}}, 2) == nested{{{1, 0.5}, {0, 0.5}}});
    CHECK(softmax(harness, {{{-infinity}, {2}, {-infinity}}}, 1) == nested{{{0}, {1}, {0}}});
    for (auto const wrong : {infinity, std::nan("")})
      for (std::size_t position = 0; position < 3; ++position) {
        nested rows{{{1, 1}, {2, 1}, {3, 1}}};
        rows[0][position][0] = wrong;
        auto const spoilt = softmax(harness, rows, 2);
        for (auto const& vector : spoilt[0]) {
          CHECK(std::isnan(vector[0]));
          CHECK(vector[1] == doctest::Approx(1.0 / 3));
        }
      }
    auto const y = softmax(harness, {{{-infinity}, {-infinity}}}, 1);
    CHECK((std::isnan(y[0][0][0]) && std::isnan(y[0][1][0])));
  }
  SUBCASE("in place") {
    auto const rows = harness.random(harness.lengths(50, 3), 70), gradient = harness.random(lengths_of(rows), 70);
    auto in = harness.place(rows, 70), from = harness.place(gradient, 70);
    tessera::jagged_softmax(harness.exec(), in.jagged(), in.jagged());
    CHECK(worst_difference(in.values(), reference_softmax(rows)) < 1e-6);
    tessera::jagged_softmax_backward(harness.exec(), in.jagged(), from.jagged(), from.jagged());
    CHECK(worst_difference(from.values(), reference_softmax_backward(rows, gradient)) < 1e-6);
  }
  SUBCASE("what does not fit") {
    auto in = harness.place(nested_of({2, 1}, 3), 3), other = harness.place(nested_of({2}, 3), 3);
    auto const e = harness.thrown_by([&] { tessera::jagged_softmax(harness.exec(), in.jagged(), other.jagged()); });
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(e.value("rows") == "1");
    CHECK(e.value("rows expected") == "2");
    auto const backward =
        harness.thrown_by([&] { tessera::jagged_softmax_backward(harness.exec(), in.jagged(), other.jagged(), in.jagged()); });
    CHECK(backward.value("argument") == "gradient");
  }
}

}  // namespace tessera_tests
