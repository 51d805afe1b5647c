// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/masked_select.cuh>

#include "../support/emulated_verbs.hpp"
#include "masked_select_suite.hpp"

TEST_CASE("masked_select on an emulated device") {
  tessera_tests::emulated_device device;
  masked_select_suite(tensor_tests::rows_on_device(device.exec()));
}

TEST_CASE("a mask longer than the values, at any address") {
  using namespace tensor_tests;
  tessera_tests::emulated_device device;
  rows_on_device const harness(device.exec());
  tessera_tests::serial_host host;
  auto const given = named_batch(host.exec());
  auto const batch = harness.put(given);
  for (std::int64_t const first : {0, 1, 7}) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(first), 1);
    bytes.insert(bytes.end(), {0, 1, 1, 0, 0, 1, 2});
    bytes.resize(5000, 9);
    auto const device_bytes = harness.numbers(bytes);
    auto const mask = tessera::vector_view<std::uint8_t const>(device_bytes.data() + first, device_bytes.size() - first);
    CHECK(text(harness.get(tessera::masked_select(harness.exec, batch, mask))) ==
          "{user: [[2, 3], [], []] weights [[2, 3], [], []], item: [[6], [7]] weights [[6], [7]]}");
  }
}

TEST_CASE("kept values before a place, past 2^31") {
  using tessera::detail::mask_tile;
  constexpr std::int64_t tiles = (std::int64_t{1} << 32) / mask_tile;
  std::vector<std::int64_t> starts(tiles + 1);
  for (std::int64_t tile = 0; tile <= tiles; ++tile) starts[static_cast<std::size_t>(tile)] = tile * mask_tile;
  tessera::detail::kept_before const kept{nullptr, starts.data(), tiles * mask_tile};
  for (std::int64_t const tile : {std::int64_t{0}, std::int64_t{1}, tiles - 1, tiles}) CHECK(kept(tile * mask_tile) == tile * mask_tile);
  CHECK(kept(INT64_MAX) == std::int64_t{1} << 32);
}
