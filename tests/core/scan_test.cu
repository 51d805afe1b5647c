// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "scan_device.hpp"
#include "scan_suite.hpp"

TEST_CASE("scan on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { scan_suite(device_scan<tessera::cuda_exec>{exec}); });
}
