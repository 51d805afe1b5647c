// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/comm/codec.cuh>

#include "../support/device_arrays.hpp"
#include "codec_suite.hpp"

namespace tessera_tests {

/// The suite's harness on a device.
template <class Exec>
struct codec_device {
  Exec exec;

  wire_bytes encode(tessera::codec with, wire_rows const& from) {
    auto rows = put(exec, from.values);
    auto out = put(exec, wire_bytes(static_cast<std::size_t>(from.bytes(with)), std::byte{0xCC}));
    tessera::encode(exec, with, tessera::matrix_view<float const>(from.view(rows.data())), out.view());
    return get(exec, out);
  }
  wire_rows decode(tessera::codec with, wire_bytes const& in, wire_rows to, bool adds = false) {
    auto const bytes = put(exec, in);
    auto rows = put(exec, to.values);
    if (adds)
      tessera::decode_add(exec, with, bytes.view(), to.view(rows.data()));
    else
      tessera::decode(exec, with, bytes.view(), to.view(rows.data()));
    to.values = get(exec, rows);
    return to;
  }
};

template <class Exec>
void codec_on_device(Exec const& exec) {
  codec_device<Exec> harness{exec};
  codec_suite(harness, {1, 3, 4, 16, 33, 128, 1030});

  SUBCASE("the host's bits, also of bytes that begin at no whole four") {
    auto const seed = draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    codec_host<serial_host> host;
    for (std::int64_t const width : {1, 6, 16, 132})
      for (auto const with : tessera::all_codecs) {
        auto const codec = tessera::name(with);
        CAPTURE(codec);
        CAPTURE(width);
        auto const from = random_wire_rows(random, 70, width, width + width % 3, drawn::any_magnitude);
        auto const bytes = host.encode(with, from);
        CHECK(harness.encode(with, from) == bytes);
        CHECK(bits_of(harness.decode(with, bytes, from)) == bits_of(host.decode(with, bytes, from)));
        CHECK(bits_of(harness.decode(with, bytes, from, true)) == bits_of(host.decode(with, bytes, from, true)));

        auto rows = put(exec, from.values);
        auto shifted = put(exec, wire_bytes(bytes.size() + 4, std::byte{0xCC}));
        auto const part = shifted.view().slice(4, static_cast<std::int64_t>(bytes.size()));
        tessera::encode(exec, with, tessera::matrix_view<float const>(from.view(rows.data())), part);
        auto expected = wire_bytes(4, std::byte{0xCC});
        expected.insert(expected.end(), bytes.begin(), bytes.end());
        CHECK(get(exec, shifted) == expected);
        tessera::decode(exec, with, part, from.view(rows.data()));
        CHECK(get(exec, rows) == host.decode(with, bytes, from).values);
      }
  }
}

}  // namespace tessera_tests
