// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "word_copies_device.hpp"

#include <emulated_device.hpp>

TEST_CASE("word_copies on an emulated device") {
  tessera_tests::emulated_device device;
  shard_tests::word_copies_suite(device.exec());
}
TEST_CASE("ends of rows on an emulated device") {
  tessera_tests::emulated_device device;
  shard_tests::ends_of_rows_suite(device.exec());
}
