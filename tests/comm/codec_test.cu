// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "codec_device.hpp"

TEST_CASE("codec on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { tessera_tests::codec_on_device(exec); });
}
