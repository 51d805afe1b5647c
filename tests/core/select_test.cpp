// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "select_suite.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../support/hosts.hpp"

using tessera::vector_view;

namespace {

struct host_select {
  tessera::host_exec exec;

  template <class T, class Flag>
  std::vector<T> select(std::vector<T> const& values, std::vector<Flag> const& flags, std::size_t room) const {
    std::vector<T> out(room);
    auto const count = tessera::select_flagged(exec, vector_view<T const>(values), vector_view<Flag const>(flags), out);
    REQUIRE(static_cast<std::size_t>(count) <= room);
    out.resize(static_cast<std::size_t>(count));
    return out;
  }
};

}  // namespace

TEST_CASE("select on one thread") {
  tessera_tests::serial_host host;
  select_suite(host_select{host.exec()});
}
TEST_CASE("select on 2 threads") {
  tessera_tests::pool_host<2> host;
  select_suite(host_select{host.exec()});
}
TEST_CASE("select on 4 threads") {
  tessera_tests::pool_host<4> host;
  select_suite(host_select{host.exec()});
}

TEST_CASE("select writes only what it selects; flags may be bool; the count may go to memory") {
  tessera_tests::serial_host host;
  std::vector<int> values{4, 5, 6}, out(5, -7);
  bool const flags[] = {true, false, true};
  std::int64_t count = -1;
  tessera::select_flagged(host.exec(), vector_view<int>(values), vector_view<bool const>(flags, 3), out,
                          vector_view<std::int64_t>(&count, 1));
  CHECK(count == 2);
  CHECK(out == std::vector<int>{4, 6, -7, -7, -7});
  CHECK_THROWS_WITH_AS(tessera::select_flagged(host.exec(), vector_view<int>(values), vector_view<bool const>(flags, 3), out,
                                               vector_view<std::int64_t>(&count, 0)),
                       "select_flagged: one element for the count (elements 0)", tessera::error);
}
