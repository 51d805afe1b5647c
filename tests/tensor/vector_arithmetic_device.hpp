// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tensor/padded_vectors.cuh>
#include <tessera/tensor/vector_arithmetic.cuh>

#include "vector_arithmetic_suite.hpp"
#include "vectors_device.hpp"

namespace tessera_tests {

template <class Exec>
void vector_arithmetic_on_device(Exec const& exec) {
  vector_arithmetic_suite<vectors_device<Exec>>(exec);

  SUBCASE("the host's bits") {
    auto const seed = draw_seed();
    CAPTURE(seed);
    for (std::int64_t const dim : {1, 4, 7, 32, 132})
      CHECK(same_as_host(exec, seed, [&](auto& harness) {
        arithmetic<std::remove_reference_t<decltype(harness)>> calls{harness, dim};
        auto const lengths = harness.lengths(60, 8);
        auto const rows = harness.random(lengths, dim), gradient = harness.random(lengths, dim), dense = harness.random(60, 7, dim);
        auto const by_dense = calls.product_backward(rows, dense, gradient, true);
        auto const by_rows = calls.product_backward(rows, rows, gradient, false);
        return std::vector{calls.sum(rows, dense, true),
                           calls.sum(rows, gradient, false),
                           calls.product(rows, dense, true),
                           calls.product(rows, gradient, false),
                           by_dense.first,
                           by_dense.second,
                           by_rows.first,
                           by_rows.second};
      }));
  }
  SUBCASE("offsets that are wrong are faults, and nothing is written") {
    vectors_device<Exec> harness(exec);
    for_each_invalid(harness, "add_vectors", [&](auto bad, auto rows, auto dense, auto const& refused) {
      refused("out", [&] { tessera::add_vectors(exec, rows, dense, bad); });
      refused("in", [&] { tessera::add_vectors(exec, bad, dense, rows); });
      refused("other", [&] { tessera::add_vectors(exec, rows, bad, rows); });
    });
    for_each_invalid(harness, "multiply_vectors_backward", [&](auto bad, auto rows, auto dense, auto const& refused) {
      refused("in", [&] { tessera::multiply_vectors_backward(exec, bad, dense, rows, rows, dense); });
      refused("gradient", [&] { tessera::multiply_vectors_backward(exec, rows, dense, bad, rows, dense); });
      refused("in_gradient", [&] { tessera::multiply_vectors_backward(exec, rows, rows, rows, bad, rows); });
      refused("other_gradient", [&] { tessera::multiply_vectors_backward(exec, rows, rows, rows, rows, bad); });
    });
    other_lengths_are_refused(harness, "in", [&](auto rows, auto others) { tessera::multiply_vectors(exec, others, others, rows); });
  }
}

}  // namespace tessera_tests
