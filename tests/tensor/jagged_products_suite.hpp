// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include <tessera/tensor/jagged_products.hpp>

#include "vectors_harness.hpp"

namespace tessera_tests {

/// Row by row a times b, either transposed; (m, k) and (k, n) after that, none of which is 0 but where m or k is a row's length.
inline nested reference_products(nested const& a, bool transpose_a, nested const& b, bool transpose_b, std::vector<std::int64_t> const& m,
                                 std::int64_t n) {
  auto result = nested_of(m, n);
  for (std::size_t i = 0; i < result.size(); ++i)
    for (std::size_t r = 0; r < result[i].size(); ++r)
      for (std::size_t c = 0; c < static_cast<std::size_t>(n); ++c) {
        auto const depth = transpose_a ? a[i].size() : a[i][r].size();
        for (std::size_t k = 0; k < depth; ++k)
          result[i][r][c] += (transpose_a ? a[i][k][r] : a[i][r][k]) * (transpose_b ? b[i][c][k] : b[i][k][c]);
      }
  return result;
}

/// Both products of rows (length, k), (length, n) and dense (k, n), with their backwards.
template <class Harness>
struct products {
  Harness& harness;
  std::vector<std::int64_t> lengths;
  std::int64_t k, n;

  nested of_k() { return harness.random(lengths, k); }
  nested of_n() { return harness.random(lengths, n); }
  nested dense() { return harness.random(lengths.size(), k, n); }

  nested reference_with_dense(nested const& in, nested const& dense) const {
    return reference_products(in, false, dense, false, lengths, n);
  }
  nested reference_of_rows(nested const& a, nested const& b) const {
    return reference_products(a, true, b, false, std::vector<std::int64_t>(lengths.size(), k), n);
  }
  nested reference_with_transposed(nested const& in, nested const& dense) const {
    return reference_products(in, false, dense, true, lengths, k);
  }

  nested with_dense(nested const& in, nested const& dense) {
    auto left = harness.place(in, k), right = harness.place(dense, n), out = harness.place_for(nested_of(lengths, n), n);
    tessera::jagged_dense_product(harness.exec(), left.jagged(), right.matrix(), out.jagged());
    return out.values();
  }
  std::pair<nested, nested> with_dense_backward(nested const& in, nested const& dense, nested const& gradient) {
    auto left = harness.place(in, k), right = harness.place(dense, n), from = harness.place(gradient, n);
    auto to_left = harness.place_for(in, k), to_right = harness.place_for(dense, n);
    tessera::jagged_dense_product_backward(harness.exec(), left.jagged(), right.matrix(), from.jagged(), to_left.jagged(),
                                           to_right.matrix());
    return {to_left.values(), to_right.values()};
  }
  nested of_rows(nested const& a, nested const& b) {
    auto left = harness.place(a, k), right = harness.place(b, n), out = harness.place_for(nested_of(lengths.size(), k, n), n);
    tessera::jagged_jagged_product(harness.exec(), left.jagged(), right.jagged(), out.matrix());
    return out.values();
  }
  std::pair<nested, nested> of_rows_backward(nested const& a, nested const& b, nested const& gradient) {
    auto left = harness.place(a, k), right = harness.place(b, n), from = harness.place(gradient, n);
    auto to_left = harness.place_for(a, k), to_right = harness.place_for(b, n);
    tessera::jagged_jagged_product_backward(harness.exec(), left.jagged(), right.jagged(), from.matrix(), to_left.jagged(),
                                            to_right.jagged());
    return {to_left.values(), to_right.values()};
  }
};

/// What every execution must show.
template <class Harness, class... Arguments>
void jagged_products_suite(Arguments const&... arguments) {
  Harness harness(arguments...);
  auto const seed = draw_seed();
  CAPTURE(seed);
  harness.seed(seed);

  SUBCASE("by hand") {
    products<Harness> calls{harness, {2, 0, 1}, 2, 3};
    nested const in{{{1, 2}, {3, 4}}, {}, {{1, -1}}};
    nested const dense{{{1, 0, 2}, {0, 1, 3}}, {{9, 9, 9}, {9, 9, 9}}, {{5, 6, 7}, {1, 1, 1}}};
    auto const out = calls.with_dense(in, dense);
    CHECK(out == nested{{{1, 2, 8}, {3, 4, 18}}, {}, {{4, 5, 6}}});
    CHECK(calls.of_rows(in, out) == nested{{{10, 14, 62}, {14, 20, 88}}, {{0, 0, 0}, {0, 0, 0}}, {{4, 5, 6}, {-4, -5, -6}}});
  }
  SUBCASE("every shape, forward and backward") {
    struct shape {
      std::size_t rows;
      double mean;
      std::int64_t k, n;
    };
    for (auto const& s : std::vector<shape>{{0, 0, 3, 2},
                                            {1, 1, 1, 1},
                                            {5, 0, 4, 3},
                                            {9, 6, 1, 17},
                                            {9, 6, 17, 1},
                                            {7, 5, 3, 130},
                                            {7, 5, 130, 3},
                                            {4, 3, 17, 1027},
                                            {4, 3, 1027, 16},
                                            {20, 9, 32, 64},
                                            {600, 9, 5, 33},
                                            {3, 0.5, 7, 15}}) {
      CAPTURE(s.rows);
      CAPTURE(s.k);
      CAPTURE(s.n);
      products<Harness> calls{harness, harness.lengths(s.rows, s.mean), s.k, s.n};
      auto const a = calls.of_k(), b = calls.of_n(), dense = calls.dense();
      REQUIRE(worst_difference(calls.with_dense(a, dense), calls.reference_with_dense(a, dense)) < 3e-6);
      REQUIRE(worst_difference(calls.of_rows(a, b), calls.reference_of_rows(a, b)) < 3e-6);
      auto const by_dense = calls.with_dense_backward(a, dense, b);
      REQUIRE(worst_difference(by_dense.first, calls.reference_with_transposed(b, dense)) < 3e-6);
      REQUIRE(worst_difference(by_dense.second, calls.reference_of_rows(a, b)) < 3e-6);
      auto const by_rows = calls.of_rows_backward(a, b, dense);
      REQUIRE(worst_difference(by_rows.first, calls.reference_with_transposed(b, dense)) < 3e-6);
      REQUIRE(worst_difference(by_rows.second, calls.reference_with_dense(a, dense)) < 3e-6);
      REQUIRE(adjoint(calls.with_dense(a, dense), b, a, by_dense.first));
      REQUIRE(adjoint(calls.with_dense(a, dense), b, dense, by_dense.second));
      REQUIRE(adjoint(calls.of_rows(a, b), dense, a, by_rows.first));
      REQUIRE(adjoint(calls.of_rows(a, b), dense, b, by_rows.second));
    }
  }
  SUBCASE("a sum of nothing is 0") {
    products<Harness> none_deep{harness, {2, 0, 1}, 0, 3};
    CHECK(none_deep.with_dense(none_deep.of_k(), none_deep.dense()) == nested_of({2, 0, 1}, 3));
    products<Harness> none_wide{harness, {2, 0, 1}, 3, 0};
    CHECK(none_wide.of_rows_backward(none_wide.of_k(), none_wide.of_n(), none_wide.dense()).first == nested_of({2, 0, 1}, 3));
    CHECK(none_wide.of_rows(none_wide.of_k(), none_wide.of_n()) == nested_of(3, 3, 0));
  }
  SUBCASE("gradients match central differences") {
    products<Harness> calls{harness, {3, 0, 2, 1}, 3, 4};
    auto a = calls.of_k(), b = calls.of_n(), dense = calls.dense();
    auto const jagged_gradient = calls.of_n(), dense_gradient = calls.dense();
    auto const with_dense = [&] { return calls.reference_with_dense(a, dense); };
    auto const by_dense = calls.with_dense_backward(a, dense, jagged_gradient);
    CHECK(worst_difference(by_dense.first, numeric_gradient(a, jagged_gradient, with_dense)) < 3e-6);
    CHECK(worst_difference(by_dense.second, numeric_gradient(dense, jagged_gradient, with_dense)) < 3e-6);
    auto const of_rows = [&] { return calls.reference_of_rows(a, b); };
    auto const by_rows = calls.of_rows_backward(a, b, dense_gradient);
    CHECK(worst_difference(by_rows.first, numeric_gradient(a, dense_gradient, of_rows)) < 3e-6);
    CHECK(worst_difference(by_rows.second, numeric_gradient(b, dense_gradient, of_rows)) < 3e-6);
  }
  SUBCASE("what does not fit") {
    auto const exec = harness.exec();
    auto in = harness.place(nested_of({2, 1}, 3), 3), other = harness.place(nested_of({2, 2}, 4), 4);
    auto dense = harness.place(nested_of(2, 3, 4), 4), out = harness.place(nested_of({2, 1}, 4), 4);
    auto flat = harness.place(nested_of(2, 2, 4), 4);
    auto const refused = [&](char const* argument, auto const& call) {
      auto const e = harness.thrown_by(call);
      CHECK(e.code() == tessera::errc::shape_mismatch);
      CHECK(e.value("argument") == argument);
    };
    refused("out", [&] { tessera::jagged_dense_product(exec, in.jagged(), dense.matrix(), other.jagged()); });
    refused("dense", [&] { tessera::jagged_dense_product(exec, in.jagged(), flat.matrix(), out.jagged()); });
    refused("dense", [&] { tessera::jagged_dense_product(exec, in.jagged(), dense.matrix(), in.jagged()); });
    refused("b", [&] { tessera::jagged_jagged_product(exec, in.jagged(), other.jagged(), dense.matrix()); });
    refused("out", [&] { tessera::jagged_jagged_product(exec, in.jagged(), out.jagged(), flat.matrix()); });
    refused("in_gradient",
            [&] { tessera::jagged_dense_product_backward(exec, in.jagged(), dense.matrix(), out.jagged(), out.jagged(), dense.matrix()); });
    refused("dense_gradient",
            [&] { tessera::jagged_dense_product_backward(exec, in.jagged(), dense.matrix(), out.jagged(), in.jagged(), flat.matrix()); });
    refused("gradient",
            [&] { tessera::jagged_jagged_product_backward(exec, in.jagged(), out.jagged(), flat.matrix(), in.jagged(), out.jagged()); });
    refused("b_gradient",
            [&] { tessera::jagged_jagged_product_backward(exec, in.jagged(), out.jagged(), dense.matrix(), in.jagged(), in.jagged()); });
  }
}

}  // namespace tessera_tests
