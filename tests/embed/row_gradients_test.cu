// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "row_gradients_device.hpp"

#include "../support/type_lists.hpp"
#include "cuda_device.cuh"

TEST_CASE_TEMPLATE("row_gradients on a GPU", Element, TESSERA_TEST_SOME_ELEMENTS) {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { embed_tests::row_gradients_device_suite<Element>(exec); });
}
