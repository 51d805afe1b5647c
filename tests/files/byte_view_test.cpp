// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <tessera/files/byte_view.hpp>

TEST_CASE("as_bytes views the elements' own memory") {
  std::vector<std::uint32_t> values{0x04030201, 0x08070605};
  auto const bytes = tessera::as_bytes(tessera::vector_view(values));
  REQUIRE(bytes.size() == 8);
  for (std::int64_t i = 0; i < 8; ++i) CHECK(bytes[i] == static_cast<char>(i + 1));
  tessera::as_writable_bytes(tessera::vector_view(values))[4] = 9;
  CHECK(values[1] == 0x08070609);
  CHECK(tessera::as_bytes(tessera::vector_view<double const>()).empty());
}
