// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include "row_cache_device.hpp"

#include "emulated_verbs.hpp"

TEST_CASE_TEMPLATE("row_cache on an emulated device", Eviction, tessera::evict_lru, tessera::evict_lfu) {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  embed_tests::row_cache_device_suite<float, Eviction>(exec, exec);
}
TEST_CASE_TEMPLATE("row_cache on an emulated device: rows of fewer bits", Element, tessera::bfloat16, tessera::scaled_int8) {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  embed_tests::row_cache_device_suite<Element, tessera::evict_lru>(exec, exec);
}
