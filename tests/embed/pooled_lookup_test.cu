// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "pooled_lookup_device.hpp"

#include "cuda_device.cuh"

TEST_CASE_TEMPLATE("pooled_lookup on a GPU", Element, float, tessera::float16, tessera::bfloat16, tessera::float8_e4m3,
                   tessera::float8_e5m2, tessera::scaled_int8) {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { embed_tests::pooled_lookup_device_suite<Element>(exec); });
}
