// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

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
