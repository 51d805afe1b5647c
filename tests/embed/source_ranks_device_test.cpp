// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 8
#include "source_ranks_device.hpp"

#include "emulated_verbs.hpp"

using namespace embed_tests;
using tessera_tests::emulated_exec;

TEST_CASE("source ranks on an emulated device: lookups in dense tables have the bits of one batch on the host") {
  tessera_tests::emulated_device device;
  source_ranks_device_suite<tessera::dense_table<>, tessera::dense_table<float, emulated_exec>>(device.exec());
}
TEST_CASE("source ranks on an emulated device: lookups in bucket tables have the bits of one batch on the host") {
  tessera_tests::emulated_device device;
  source_ranks_device_suite<tessera::hash_table<>, tessera::bucket_table<float, emulated_exec>>(device.exec());
}
TEST_CASE("source ranks on an emulated device: device_tables of three kinds have the bits of one batch on the host") {
  tessera_tests::emulated_device device;
  source_ranks_device_tables(device.exec());
}
