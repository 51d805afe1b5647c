// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/expand.cuh>
#include <tessera/tensor/select_rows.cuh>

#include "../support/emulated_verbs.hpp"
#include "inverse_suite.hpp"
#include "select_rows_suite.hpp"

TEST_CASE("select_rows on an emulated device") {
  tessera_tests::emulated_device device;
  select_rows_suite(tensor_tests::rows_on_device(device.exec()));
}

TEST_CASE("samples of an IKJT on an emulated device") {
  tessera_tests::emulated_device device;
  select_samples_suite(tensor_tests::rows_on_device(device.exec()), 400);
}
