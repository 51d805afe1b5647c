// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tensor/pool_segments.cuh>

#include "pool_segments_suite.hpp"
#include "vectors_device.hpp"

namespace tessera_tests {

template <class Exec>
void pool_segments_on_device(Exec const& exec) {
  pool_segments_suite<vectors_device<Exec>>(exec);

  SUBCASE("the host's bits") {
    auto const seed = draw_seed();
    CAPTURE(seed);
    for (std::int64_t const dim : {1, 4, 7, 32, 132})
      CHECK(same_as_host(exec, seed, [&](auto& harness) {
        auto const rows = harness.random(harness.lengths(60, 20), dim), gradient = harness.random(60, 1, dim);
        std::vector<nested> results;
        for (auto const mode : all_modes) {
          results.push_back(pooled(harness, rows, mode, dim));
          results.push_back(unpooled(harness, rows, mode, gradient, dim));
        }
        return results;
      }));
  }
  SUBCASE("offsets that are wrong are faults, and nothing is written") {
    vectors_device<Exec> harness(exec);
    for_each_invalid(harness, "pool_segments", [&](auto bad, auto, auto dense, auto const& refused) {
      refused("in", [&] { tessera::pool_segments(exec, bad, segment_pooling::sum, dense.rows_from(0, 3)); });
    });
    for_each_invalid(harness, "pool_segments_backward", [&](auto bad, auto rows, auto dense, auto const& refused) {
      for (auto const mode : all_modes) {
        refused("in_gradient", [&] { tessera::pool_segments_backward(exec, rows, mode, dense.rows_from(0, 3), bad); });
        refused("in", [&] { tessera::pool_segments_backward(exec, bad, mode, dense.rows_from(0, 3), rows); });
      }
    });
    auto gradient = harness.place(nested_of(3, 1, 2), 2);
    other_lengths_are_refused(harness, "in_gradient", [&](auto const& rows, auto const& others) {
      tessera::pool_segments_backward(exec, rows, segment_pooling::sum, gradient.matrix(), others);
    });
  }
}

}  // namespace tessera_tests
