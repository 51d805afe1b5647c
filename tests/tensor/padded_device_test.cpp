// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/padded.cuh>

#include "../support/emulated_verbs.hpp"
#include "padded_suite.hpp"

TEST_CASE("padded on an emulated device") {
  tessera_tests::emulated_device device;
  padded_suite(tensor_tests::rows_on_device(device.exec()));
}

TEST_CASE("threads of a row of a matrix, and its chunks") {
  using tessera::detail::padded_layout_of;
  CHECK(padded_layout_of(1, 4).lanes_bits == 0);
  CHECK(padded_layout_of(5, 4).lanes_bits == 1);
  CHECK(padded_layout_of(128, 4).lanes_bits == 5);
  CHECK(padded_layout_of(129, 4).lanes_bits == 5);
  CHECK(padded_layout_of(512, 4).chunks == 1);
  CHECK(padded_layout_of(513, 4).chunks == 2);
  CHECK(padded_layout_of(512, 4).chunk_columns(4) == 512);
  CHECK(padded_layout_of(4, 4).blocks(256) == 1);
  CHECK(padded_layout_of(4, 4).blocks(257) == 2);
  CHECK(padded_layout_of(128, 4).blocks(9) == 2);
  constexpr std::int64_t columns = (std::int64_t{1} << 33) + 1;
  CHECK(padded_layout_of(columns, 4).chunks == (std::int64_t{1} << 24) + 1);
  CHECK(padded_layout_of(columns, 4).blocks(1 << 10) == tessera::detail::most_blocks);
}
