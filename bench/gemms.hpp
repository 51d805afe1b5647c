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

/// Calls f(name, policy) for each library that may multiply: `name` is the fastest in float, and all have names that say which.
template <class F>
void for_each_gemm(std::string const& name, F const& f) {
#if TESSERA_BENCH_DNNL
  f(name, tessera::dnnl_fp32_gemm{});
  f(name + "_bf16", tessera::dnnl_bf16_gemm{});
#else
  f(name, tessera::eigen_gemm{});
#endif
  f(name + "_eigen", tessera::eigen_gemm{});
#if TESSERA_BENCH_BLAS
  f(name + "_blas", tessera::blas_gemm{});
#endif
}

}  // namespace tessera_bench
