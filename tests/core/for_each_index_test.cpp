// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/for_each_index.hpp>

#include "hosts.hpp"

TEST_CASE("for_each_index calls each index once, whatever the grain") {
  tessera_tests::for_each_host([](tessera::host_exec const& exec, auto&) {
    for (std::int64_t const n : {0, 1, 2, 63, 64, 65, 1000})
      for (std::int64_t const grain : {1, 7, 64, 5000}) {
        std::vector<int> calls(static_cast<std::size_t>(n));
        tessera::for_each_index(exec, n, grain, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
        CHECK(calls == std::vector<int>(static_cast<std::size_t>(n), 1));
      }
  });
}

TEST_CASE("for_each_index refuses a negative number of indices and a grain below 1") {
  tessera_tests::serial_host host;
  auto const nothing = [](std::int64_t) { FAIL("called"); };
  CHECK_THROWS_WITH_AS(tessera::for_each_index(host.exec(), 3, 0, nothing),
                       "for_each_index: n indices by grains of 1 or more (n 3, grain 0)", tessera::error);
  CHECK_THROWS_AS(tessera::for_each_index(host.exec(), 0, -1, nothing), tessera::error);
  CHECK_THROWS_AS(tessera::for_each_index(host.exec(), -1, 1, nothing), tessera::error);
}
