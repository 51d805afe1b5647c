// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/gemm_dnnl.hpp>

int dnnl_product(tessera::host_exec const& exec) {
  float const two = 2, three = 3;
  float six = 0;
  tessera::gemm(exec, tessera::dnnl_fp32_gemm{}, tessera::matrix_view<float const>(&two, 1, 1),
                tessera::matrix_view<float const>(&three, 1, 1), tessera::matrix_view<float>(&six, 1, 1));
  return six == 6 ? 0 : 1;
}
