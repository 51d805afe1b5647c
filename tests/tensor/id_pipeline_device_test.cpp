// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/concat.cuh>
#include <tessera/tensor/transform_ids.cuh>
#include <tessera/tensor/truncate_rows.cuh>

#include "../support/emulated_verbs.hpp"
#include "id_pipeline_suite.hpp"

TEST_CASE("id_pipeline on an emulated device") {
  tessera_tests::emulated_device device;
  id_pipeline_suite(tensor_tests::rows_on_device(device.exec()));
}
