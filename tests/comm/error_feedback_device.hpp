// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

#include <tessera/comm/error_feedback.cuh>

#include "codec_device.hpp"
#include "error_feedback_suite.hpp"

namespace tessera_tests {

/// One sender on a device.
template <class Exec>
struct feedback_device : codec_device<Exec> {
  wire_bytes send(tessera::codec with, wire_rows const& values, wire_rows& residual) {
    auto const& exec = this->exec;
    auto from = put(exec, values.values), left = put(exec, residual.values);
    auto out = put(exec, wire_bytes(static_cast<std::size_t>(values.bytes(with)), std::byte{0xCC}));
    tessera::encode_with_feedback(exec, with, tessera::matrix_view<float const>(values.view(from.data())), residual.view(left.data()),
                                  out.view());
    residual.values = get(exec, left);
    return get(exec, out);
  }
};

template <class Exec>
void error_feedback_on_device(Exec const& exec) {
  feedback_device<Exec> harness{{exec}};
  error_feedback_suite(harness, 20);

  SUBCASE("the host's bits") {
    auto const seed = draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    feedback_host<serial_host> host;
    for (std::int64_t const width : {1, 6, 128})
      for (auto const with : tessera::all_codecs) {
        auto const values = random_wire_rows(random, 70, width, width + 1, drawn::any_magnitude);
        auto left = random_wire_rows(random, 70, width, width, drawn::normal), of_host = left;
        for (int step = 0; step < 2; ++step) {
          CHECK(harness.send(with, values, left) == host.send(with, values, of_host));
          CHECK(bits_of(left) == bits_of(of_host));
        }
      }
  }
}

}  // namespace tessera_tests
