// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <tessera/nn/gemm_eigen.hpp>
#if TESSERA_BENCH_BLAS
#include <tessera/nn/gemm_blas.hpp>
#endif
#if TESSERA_BENCH_DNNL
#include <tessera/nn/gemm_dnnl.hpp>
#endif

namespace tessera_bench {

#if TESSERA_BENCH_DNNL
/// Whether oneDNN has products of bf16 for this processor.
inline bool has_bf16() {
  float const one = 1;
  float product = 0, workspace[48];
  tessera::matrix_view<float const> const factor(&one, 1, 1);
  try {
    tessera::dnnl_bf16_gemm::multiply(factor, factor, tessera::matrix_view<float>(&product, 1, 1), workspace);
  } catch (tessera::error const&) {
    return false;
  }
  return true;
}
#endif

/// Calls f(name, policy) for each library that may multiply: `name` is the fastest in float, and all have names that say which.
template <class F>
void for_each_gemm(std::string const& name, F const& f) {
#if TESSERA_BENCH_DNNL
  f(name, tessera::dnnl_fp32_gemm{});
  if (has_bf16()) f(name + "_bf16", tessera::dnnl_bf16_gemm{});
#else
  f(name, tessera::eigen_gemm{});
#endif
  f(name + "_eigen", tessera::eigen_gemm{});
#if TESSERA_BENCH_BLAS
  f(name + "_blas", tessera::blas_gemm{});
#endif
}

}  // namespace tessera_bench
