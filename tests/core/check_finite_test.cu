// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "../support/type_lists.hpp"
#include "check_finite_device.hpp"
#include "check_finite_suite.hpp"

TEST_CASE_TEMPLATE("check_finite on a GPU", T, float, tessera::bfloat16 TESSERA_TEST_MORE_TYPES(, double, tessera::float16)) {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { check_finite_suite<T>(device_check_finite<tessera::cuda_exec>{exec}); });
}
