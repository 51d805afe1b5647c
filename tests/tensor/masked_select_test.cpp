// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "masked_select_suite.hpp"

#include <cstdint>
#include <string>
#include <vector>

using tensor_tests::rows_on_host;

TEST_CASE("masked_select on one thread") {
  tessera_tests::serial_host host;
  masked_select_suite(rows_on_host{host.exec()});
}
TEST_CASE("masked_select on 2 threads") {
  tessera_tests::pool_host<2> host;
  masked_select_suite(rows_on_host{host.exec()});
}
TEST_CASE("masked_select on 4 threads") {
  tessera_tests::pool_host<4> host;
  masked_select_suite(rows_on_host{host.exec()});
}

TEST_CASE("another number of bytes is refused") {
  tessera_tests::serial_host host;
  auto const batch = tensor_tests::named_batch(host.exec());
  auto const e = tensor_tests::error_of([&] { tessera::masked_select(host.exec(), batch, std::vector<std::uint8_t>(8)); });
  CHECK(std::string(e.what()) == "masked_select: one byte of mask a value (values 7, mask 8)");
}
