// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>

#include <tessera/tensor/padded_vectors.hpp>
#include <tessera/tensor/vector_arithmetic.hpp>

#include "vectors_harness.hpp"

namespace tessera_tests {

/// op(rows[i][j][c], other[i][j][c]), where `other` may be shorter (then 0) or longer.
template <class Operation>
nested reference_combined(nested rows, nested const& other, Operation op) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows[i].size(); ++j)
      for (std::size_t c = 0; c < rows[i][j].size(); ++c) rows[i][j][c] = op(rows[i][j][c], j < other[i].size() ? other[i][j][c] : 0.0);
  return rows;
}
inline nested reference_sum(nested const& rows, nested const& other) { return reference_combined(rows, other, std::plus<>()); }
inline nested reference_product(nested const& rows, nested const& other) { return reference_combined(rows, other, std::multiplies<>()); }

template <class Harness>
struct arithmetic {
  Harness& harness;
  std::int64_t dim;

  template <class Call>
  nested run(Call const& call, nested const& rows, nested const& other, bool dense) {
    auto in = harness.place(rows, dim), with = harness.place(other, dim), out = harness.place_for(rows, dim);
    if (dense)
      call(harness.exec(), in.jagged(), with.matrix(), out.jagged());
    else
      call(harness.exec(), in.jagged(), with.jagged(), out.jagged());
    return out.values();
  }
  nested sum(nested const& rows, nested const& other, bool dense) {
    return run([](auto const&... arguments) { tessera::add_vectors(arguments...); }, rows, other, dense);
  }
  nested product(nested const& rows, nested const& other, bool dense) {
    return run([](auto const&... arguments) { tessera::multiply_vectors(arguments...); }, rows, other, dense);
  }
  /// By the rows, and by the other.
  std::pair<nested, nested> product_backward(nested const& rows, nested const& other, nested const& gradient, bool dense) {
    auto in = harness.place(rows, dim), with = harness.place(other, dim), from = harness.place(gradient, dim);
    auto to = harness.place_for(rows, dim), to_other = harness.place_for(other, dim);
    if (dense)
      tessera::multiply_vectors_backward(harness.exec(), in.jagged(), with.matrix(), from.jagged(), to.jagged(), to_other.matrix());
    else
      tessera::multiply_vectors_backward(harness.exec(), in.jagged(), with.jagged(), from.jagged(), to.jagged(), to_other.jagged());
    return {to.values(), to_other.values()};
  }
  /// What `add_vectors` says its backward is.
  nested sum_backward_of_dense(nested const& gradient, nested const& other) {
    auto from = harness.place(gradient, dim), to = harness.place_for(other, dim);
    tessera::to_padded_vectors(harness.exec(), from.jagged(), to.matrix());
    return to.values();
  }
};

/// What every execution must show.
template <class Harness, class... Arguments>
void vector_arithmetic_suite(Arguments const&... arguments) {
  Harness harness(arguments...);
  auto const seed = draw_seed();
  CAPTURE(seed);
  harness.seed(seed);

  SUBCASE("by hand: past the width a sum passes, a product is 0") {
    arithmetic<Harness> calls{harness, 2};
    nested const rows{{{1, 2}, {3, 4}, {5, 6}}, {}, {{7, 8}}}, dense{{{1, 10}, {2, 20}}, {{3, 30}, {4, 40}}, {{5, 50}, {6, 60}}};
    CHECK(calls.sum(rows, dense, true) == nested{{{2, 12}, {5, 24}, {5, 6}}, {}, {{12, 58}}});
    CHECK(calls.product(rows, dense, true) == nested{{{1, 20}, {6, 80}, {0, 0}}, {}, {{35, 400}}});
    auto const backward = calls.product_backward(rows, dense, {{{1, 1}, {1, 1}, {1, 1}}, {}, {{1, 1}}}, true);
    CHECK(backward.first == nested{{{1, 10}, {2, 20}, {0, 0}}, {}, {{5, 50}}});
    CHECK(backward.second == nested{{{1, 2}, {3, 4}}, {{0, 0}, {0, 0}}, {{7, 8}, {0, 0}}});
    CHECK(calls.sum(rows, rows, false) == nested{{{2, 4}, {6, 8}, {10, 12}}, {}, {{14, 16}}});
  }
  SUBCASE("every shape and width, forward and backward") {
    for (auto const& shape : vectors_shapes)
      for (std::int64_t const width : {-1, 0, 4, 25}) {
        bool const dense = width >= 0;
        CAPTURE(shape.rows);
        CAPTURE(shape.dim);
        CAPTURE(width);
        arithmetic<Harness> calls{harness, shape.dim};
        auto const lengths = harness.lengths(shape.rows, shape.mean);
        auto const rows = harness.random(lengths, shape.dim), gradient = harness.random(lengths, shape.dim);
        auto const other = dense ? harness.random(shape.rows, width, shape.dim) : harness.random(lengths, shape.dim);
        REQUIRE(worst_difference(calls.sum(rows, other, dense), reference_sum(rows, other)) < 1e-6);
        REQUIRE(worst_difference(calls.product(rows, other, dense), reference_product(rows, other)) < 1e-6);
        auto const backward = calls.product_backward(rows, other, gradient, dense);
        REQUIRE(worst_difference(backward.first, reference_product(gradient, other)) < 1e-6);
        // Linear in each operand: <x * y, g> == <x, dx> == <y, dy>.
        REQUIRE(adjoint(reference_product(rows, other), gradient, rows, backward.first));
        REQUIRE(adjoint(reference_product(rows, other), gradient, other, backward.second));
      }
  }
  SUBCASE("gradients match central differences") {
    arithmetic<Harness> calls{harness, 3};
    for (bool const dense : {true, false}) {
      auto rows = harness.random({3, 0, 5, 1}, 3), other = dense ? harness.random(4, 2, 3) : harness.random({3, 0, 5, 1}, 3);
      auto const gradient = harness.random(lengths_of(rows), 3);
      auto const product = [&] { return reference_product(rows, other); };
      auto const backward = calls.product_backward(rows, other, gradient, dense);
      CHECK(worst_difference(backward.first, numeric_gradient(rows, gradient, product)) < 1e-6);
      CHECK(worst_difference(backward.second, numeric_gradient(other, gradient, product)) < 1e-6);
      auto const sum = [&] { return reference_sum(rows, other); };
      CHECK(worst_difference(gradient, numeric_gradient(rows, gradient, sum)) < 1e-6);
      CHECK(worst_difference(dense ? calls.sum_backward_of_dense(gradient, other) : gradient, numeric_gradient(other, gradient, sum)) <
            1e-6);
    }
  }
  SUBCASE("in place") {
    auto const rows = harness.random(harness.lengths(50, 3), 5), dense = harness.random(50, 4, 5);
    auto in = harness.place(rows, 5), with = harness.place(dense, 5);
    tessera::add_vectors(harness.exec(), in.jagged(), with.matrix(), in.jagged());
    CHECK(worst_difference(in.values(), reference_sum(rows, dense)) < 1e-6);
    auto squared = harness.place(rows, 5);
    tessera::multiply_vectors(harness.exec(), squared.jagged(), squared.jagged(), squared.jagged());
    CHECK(worst_difference(squared.values(), reference_product(rows, rows)) < 1e-6);
  }
  SUBCASE("what does not fit") {
    auto const exec = harness.exec();
    auto in = harness.place(nested_of({2, 1}, 3), 3), longer = harness.place(nested_of({2, 2}, 3), 3);
    auto wide = harness.place(nested_of({2, 1}, 4), 4), dense = harness.place(nested_of(2, 2, 3), 3),
         odd = harness.place(nested_of(3, 1, 3), 3);
    auto larger = harness.place(nested_of(2, 3, 3), 3);
    auto const refused = [&](char const* name, char const* value, auto const& call) {
      auto const e = harness.thrown_by(call);
      CHECK(e.code() == tessera::errc::shape_mismatch);
      CHECK(e.value(name) == value);
    };
    refused("argument", "in", [&] { tessera::add_vectors(exec, longer.jagged(), dense.matrix(), in.jagged()); });
    refused("argument", "other", [&] { tessera::multiply_vectors(exec, in.jagged(), wide.jagged(), in.jagged()); });
    refused("matrix rows", "3", [&] { tessera::multiply_vectors(exec, in.jagged(), odd.matrix(), in.jagged()); });
    refused("expected", "4",
            [&] { tessera::multiply_vectors_backward(exec, in.jagged(), dense.matrix(), in.jagged(), in.jagged(), larger.matrix()); });
    refused("argument", "gradient",
            [&] { tessera::multiply_vectors_backward(exec, in.jagged(), dense.matrix(), longer.jagged(), in.jagged(), dense.matrix()); });
    refused("argument", "other_gradient",
            [&] { tessera::multiply_vectors_backward(exec, in.jagged(), in.jagged(), in.jagged(), in.jagged(), longer.jagged()); });
  }
}

}  // namespace tessera_tests
