// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tensor/jagged_products.cuh>

#include "jagged_products_suite.hpp"
#include "vectors_device.hpp"

namespace tessera_tests {

template <class Exec>
void jagged_products_on_device(Exec const& exec) {
  jagged_products_suite<vectors_device<Exec>>(exec);

  SUBCASE("the host's bits") {
    auto const seed = draw_seed();
    CAPTURE(seed);
    struct shape {
      double mean;
      std::int64_t k, n;
    };
    for (auto const& s : {shape{4, 3, 5}, shape{70, 36, 68}, shape{2, 100, 64}})
      CHECK(near_host(exec, seed, [&](auto& harness) {
        products<std::remove_reference_t<decltype(harness)>> calls{harness, harness.lengths(9, s.mean), s.k, s.n};
        auto const a = calls.of_k(), b = calls.of_n(), dense = calls.dense();
        auto const by_dense = calls.with_dense_backward(a, dense, b);
        return std::vector{calls.with_dense(a, dense), calls.of_rows(a, b), by_dense.first, by_dense.second};
      }));
  }
  SUBCASE("no rows at all have no offsets") {
    vectors_device<Exec> harness(exec);
    auto values = harness.put(std::vector<float>(200, 4.0F));
    tessera::jagged_vectors_view<float> const none{{values.data(), 100, 2}, nullptr, 0};
    tessera::jagged_dense_product(exec, none, tessera::matrix_view<float>(nullptr, 0, 2), none);
    tessera::jagged_jagged_product(exec, none, none, tessera::matrix_view<float>(nullptr, 0, 2));
    CHECK(harness.get(values) == std::vector<float>(200, 4.0F));
  }
  SUBCASE("offsets that are wrong are faults, and nothing is written") {
    vectors_device<Exec> harness(exec);
    for_each_invalid(harness, "jagged_dense_product", [&](auto bad, auto rows, auto dense, auto const& refused) {
      refused("in", [&] { tessera::jagged_dense_product(exec, bad, dense, rows); });
      refused("out", [&] { tessera::jagged_dense_product(exec, rows, dense, bad); });
    });
    for_each_invalid(harness, "jagged_dense_product_backward", [&](auto bad, auto rows, auto dense, auto const& refused) {
      refused("in", [&] { tessera::jagged_dense_product_backward(exec, bad, dense, rows, rows, dense); });
      refused("gradient", [&] { tessera::jagged_dense_product_backward(exec, rows, dense, bad, rows, dense); });
      refused("in_gradient", [&] { tessera::jagged_dense_product_backward(exec, rows, dense, rows, bad, dense); });
    });
    for_each_invalid(harness, "jagged_jagged_product", [&](auto bad, auto rows, auto dense, auto const& refused) {
      refused("a", [&] { tessera::jagged_jagged_product(exec, bad, rows, dense); });
      refused("b", [&] { tessera::jagged_jagged_product(exec, rows, bad, dense); });
    });
    for_each_invalid(harness, "jagged_jagged_product_backward", [&](auto bad, auto rows, auto dense, auto const& refused) {
      refused("a", [&] { tessera::jagged_jagged_product_backward(exec, bad, rows, dense, rows, rows); });
      refused("b", [&] { tessera::jagged_jagged_product_backward(exec, rows, bad, dense, rows, rows); });
      refused("a_gradient", [&] { tessera::jagged_jagged_product_backward(exec, rows, rows, dense, bad, rows); });
      refused("b_gradient", [&] { tessera::jagged_jagged_product_backward(exec, rows, rows, dense, rows, bad); });
    });
    auto dense = harness.place(nested_of(3, 2, 2), 2);
    other_lengths_are_refused(harness, "out",
                              [&](auto rows, auto others) { tessera::jagged_dense_product(exec, rows, dense.matrix(), others); });
  }
}

}  // namespace tessera_tests
