// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "masked_select_suite.hpp"

#include <cstdint>
#include <string>
#include <vector>

TEST_CASE_TEMPLATE("masked_select", Host, TESSERA_TEST_HOSTS) {
  Host host;
  masked_select_suite(tensor_tests::rows_on_host{host.exec()});
}

TEST_CASE("another number of bytes is refused") {
  tessera_tests::serial_host host;
  auto const batch = tensor_tests::named_batch(host.exec());
  CHECK(tensor_tests::refusal_of([&] { tessera::masked_select(host.exec(), batch, std::vector<std::uint8_t>(8)); }) ==
        "masked_select: one byte of mask a value (values 7, mask 8)");
}
