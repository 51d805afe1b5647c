// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "pooled_lookup_device.hpp"

#include "../support/type_lists.hpp"
#include "cuda_device.cuh"

TEST_CASE_TEMPLATE("pooled_lookup on a GPU", Element, TESSERA_TEST_ELEMENTS) {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { embed_tests::pooled_lookup_device_suite<Element>(exec); });
}
