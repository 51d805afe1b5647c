// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include "bucket_lookup_device.hpp"

#include "../support/type_lists.hpp"
#include "emulated_verbs.hpp"

using namespace embed_tests;

TEST_CASE_TEMPLATE("bucket_table on an emulated device: pooled lookups forward and backward", Element, TESSERA_TEST_SOME_ELEMENTS) {
  tessera_tests::emulated_device device;
  SUBCASE("rowwise_adagrad") { bucket_lookup_suite<Element>(device.exec(), tessera::rowwise_adagrad{.learning_rate = 0.1F}); }
  SUBCASE("adam") { bucket_lookup_suite<Element>(device.exec(), tessera::adam{.learning_rate = 0.1F}); }
}

TEST_CASE("bucket_table on an emulated device: lookups at the edges") {
  tessera_tests::emulated_device device;
  bucket_lookup_edges(device.exec());
}
