// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tensor/padded_vectors.cuh>

#include "padded_vectors_suite.hpp"
#include "vectors_device.hpp"

namespace tessera_tests {

template <class Exec>
void padded_vectors_on_device(Exec const& exec) {
  padded_vectors_suite<vectors_device<Exec>>(exec);

  SUBCASE("the host's bits") {
    auto const seed = draw_seed();
    CAPTURE(seed);
    for (auto const keep : {tessera::kept_values::first, tessera::kept_values::last})
      for (std::int64_t const dim : {1, 4, 7, 32, 132})
        CHECK(same_as_host(exec, seed, [&](auto& harness) {
          auto const lengths = harness.lengths(60, 8);
          auto const rows = harness.random(lengths, dim), dense = harness.random(60, 7, dim);
          return std::vector{padded(harness, rows, 7, dim, {.padding = 0.1F, .keep = keep}),
                             unpadded(harness, dense, lengths, dim, {.keep = keep})};
        }));
  }
  SUBCASE("offsets that are wrong are faults, and nothing is written") {
    vectors_device<Exec> harness(exec);
    for_each_invalid(harness, "to_padded_vectors", [&](auto bad, auto, auto dense, auto const& refused) {
      refused("in", [&] { tessera::to_padded_vectors(exec, bad, dense); });
    });
    for_each_invalid(harness, "from_padded_vectors", [&](auto bad, auto, auto dense, auto const& refused) {
      refused("out", [&] { tessera::from_padded_vectors(exec, dense, bad); });
    });
  }
}

}  // namespace tessera_tests
