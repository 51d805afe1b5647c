// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include "deduplicated_lookup_device.hpp"

#include "emulated_verbs.hpp"

using namespace embed_tests;
using tessera_tests::emulated_exec;

TEST_CASE_TEMPLATE("deduplicated_lookup on an emulated device: dense tables", Element, float, tessera::bfloat16) {
  tessera_tests::emulated_device device;
  deduplicated_lookup_device_suite<tessera::dense_table<Element>, tessera::dense_table<Element, emulated_exec>>(device.exec());
}
TEST_CASE("deduplicated_lookup on an emulated device: hashed tables") {
  tessera_tests::emulated_device device;
  deduplicated_lookup_device_suite<tessera::hash_table<>, tessera::bucket_table<float, emulated_exec>>(device.exec());
}
TEST_CASE("deduplicated_lookup on an emulated device: edges") {
  tessera_tests::emulated_device device;
  deduplicated_lookup_device_edges(device.exec());
}
