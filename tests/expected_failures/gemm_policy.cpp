// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/linear.hpp>

struct my_gemm {
#if CASE == 1  // says: policy.multiply\(a, b, c, workspace\)
  void multiply(tessera::gemm_operand, tessera::gemm_operand, tessera::matrix_view<float>) const {}
#else
  void multiply(tessera::gemm_operand, tessera::gemm_operand, tessera::matrix_view<float>, float*) const {}
#endif
#if CASE == 2  // says: policy.workspace\(extent, extent, extent\)
  int workspace(std::int64_t, std::int64_t, std::int64_t) const { return 0; }
#else
  std::int64_t workspace(std::int64_t, std::int64_t, std::int64_t) const { return 0; }
#endif
};

void use(tessera::host_exec const& exec, tessera::matrix_view<float> x, tessera::linear_view<float> layer) {
  tessera::linear_forward(exec, my_gemm{}, x, {layer.weight, layer.bias}, tessera::activation::relu, x);
}
