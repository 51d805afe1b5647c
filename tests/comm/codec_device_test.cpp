// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "codec_device.hpp"
#include "../support/emulated_device.hpp"

using namespace tessera_tests;

TEST_CASE("codec on an emulated device") {
  emulated_device device;
  device.seed(draw_seed());
  codec_on_device(device.exec());
}

TEST_CASE("codec on an emulated device: the host never waits, and one launch does all rows") {
  emulated_device device;
  auto const exec = device.exec();
  auto rows = put(exec, std::vector<float>(600, 1.0F));
  tessera::matrix_view<float> const matrix(rows.data(), 100, 6);
  for (auto const with : tessera::all_codecs) {
    tessera::buffer<std::byte, emulated_exec> bytes(exec, tessera::encoded_bytes(with, 100, 6));
    auto const waits = device.waits, launches = device.launches;
    tessera::encode(exec, with, tessera::matrix_view<float const>(matrix), bytes.view());
    tessera::decode(exec, with, bytes.view(), matrix);
    tessera::decode_add(exec, with, bytes.view(), matrix);
    CHECK(device.waits == waits);
    CHECK(device.launches == launches + 3);
  }
}
