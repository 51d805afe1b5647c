// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/nn/gemm_eigen.hpp>

#include "ceiling.hpp"
#include "inputs.hpp"

namespace tessera_bench {

namespace detail {

// FLOP/s of one square product of 1,024 a thread, each thread on one of its own.
template <tessera::gemm_policy Gemm>
ceiling::loop gemm_loop(tessera::host_exec const& exec, Gemm const& gemm) {
  return [exec, gemm](int threads) {
    auto const n = smoke() ? std::int64_t{64} : std::int64_t{1024};
    std::vector<float> const a(static_cast<std::size_t>(n * n), 0.5F), b(static_cast<std::size_t>(n * n), 0.25F);
    std::vector<float> c(static_cast<std::size_t>(threads * n * n));
    auto const workspace = tessera::divide_up(gemm.workspace(n, n, n), 16) * 16;
    tessera::buffer<float> workspaces(exec, threads * workspace);
    auto const seconds = seconds_of([&] {
      exec.run(threads, [&](std::int64_t t) {
        gemm.multiply(tessera::matrix_view<float const>{a.data(), n, n}, tessera::matrix_view<float const>{b.data(), n, n},
                      {c.data() + t * n * n, n, n}, workspaces.data() + t * workspace);
      });
    });
    return 2.0 * static_cast<double>(n * n * n * threads) / seconds;
  };
}

}  // namespace detail

/// FLOP/s that products can reach: the better of the policy's and Eigen's.
template <tessera::gemm_policy Gemm>
ceiling gemm_ceiling(tessera::host_exec const& exec, Gemm const& gemm) {
  return {{detail::gemm_loop(exec, gemm), detail::gemm_loop(exec, tessera::eigen_gemm{})}, exec.threads()};
}

}  // namespace tessera_bench
