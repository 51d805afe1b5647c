// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tensor/jagged_softmax.cuh>

#include "jagged_softmax_suite.hpp"
#include "vectors_device.hpp"

namespace tessera_tests {

template <class Exec>
void jagged_softmax_on_device(Exec const& exec) {
  jagged_softmax_suite<vectors_device<Exec>>(exec);

  SUBCASE("the host's bits") {
    auto const seed = draw_seed();
    CAPTURE(seed);
    for (std::int64_t const dim : {1, 4, 7, 32, 132}) {
      CHECK(near_host(exec, seed, [&](auto& harness) {
        auto const rows = harness.random(harness.lengths(60, 20), dim);
        return std::vector<nested>{softmax(harness, rows, dim)};
      }));
      CHECK(same_as_host(exec, seed, [&](auto& harness) {
        auto const lengths = harness.lengths(60, 20);
        auto const y = harness.random(lengths, dim), gradient = harness.random(lengths, dim);
        return std::vector<nested>{softmax_backward(harness, y, gradient, dim)};
      }));
    }
  }
  SUBCASE("offsets that are wrong are faults, and nothing is written") {
    vectors_device<Exec> harness(exec);
    for_each_invalid(harness, "jagged_softmax", [&](auto bad, auto rows, auto, auto const& refused) {
      refused("in", [&] { tessera::jagged_softmax(exec, bad, rows); });
      refused("out", [&] { tessera::jagged_softmax(exec, rows, bad); });
    });
    for_each_invalid(harness, "jagged_softmax_backward", [&](auto bad, auto rows, auto, auto const& refused) {
      refused("out", [&] { tessera::jagged_softmax_backward(exec, bad, rows, rows); });
      refused("gradient", [&] { tessera::jagged_softmax_backward(exec, rows, bad, rows); });
      refused("in_gradient", [&] { tessera::jagged_softmax_backward(exec, rows, rows, bad); });
    });
    other_lengths_are_refused(harness, "out", [&](auto rows, auto others) { tessera::jagged_softmax(exec, rows, others); });
  }
}

}  // namespace tessera_tests
