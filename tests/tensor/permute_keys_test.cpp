// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "permute_keys_suite.hpp"

#include <cstdint>
#include <string>

using namespace tensor_tests;

TEST_CASE("permute_keys on one thread") {
  tessera_tests::serial_host host;
  permute_keys_suite(rows_on_host{host.exec()});
}
TEST_CASE("permute_keys on 2 threads") {
  tessera_tests::pool_host<2> host;
  permute_keys_suite(rows_on_host{host.exec()});
}
TEST_CASE("permute_keys on 4 threads") {
  tessera_tests::pool_host<4> host;
  permute_keys_suite(rows_on_host{host.exec()});
}

TEST_CASE("a checked build refuses offsets that decrease") {
  if constexpr (tessera::checked) {
    tessera_tests::serial_host host;
    ids const values{1, 2, 3}, offsets{0, 3, 1}, first_row{0, 1, 2};
    tessera::keyed_jagged_view<std::int64_t const> const view{values.data(), nullptr, offsets.data(), first_row.data(), 2};
    auto const e = error_of([&] { tessera::permute_keys(host.exec(), view, ids{0}); });
    CHECK(std::string(e.what()) == "permute_keys: in: jagged: offsets decrease (row 1, offset 3, next offset 1)");
  }
}
