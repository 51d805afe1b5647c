// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/concat.cuh>
#include <tessera/tensor/slice_rows.cuh>

#include "../support/emulated_verbs.hpp"
#include "concat_suite.hpp"

TEST_CASE("concat on an emulated device") {
  tessera_tests::emulated_device device;
  concat_suite(tensor_tests::rows_on_device(device.exec()));
}
