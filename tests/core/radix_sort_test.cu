// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "radix_sort_device.hpp"
#include "radix_sort_suite.hpp"

TEST_CASE("radix_sort on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { radix_sort_suite(device_radix_sort<tessera::cuda_exec>{exec}); });
}
