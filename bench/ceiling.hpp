// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>

/// What the machine can do at best, measured in the process that is being judged.
namespace tessera_bench {

/// Multiply-add rate in FLOP/s of square products of 1,024, each thread one of its own at a time: the best of five rounds.
inline double gemm_ceiling(tessera::host_exec const& exec) {
  constexpr std::int64_t n = 1024;
  auto const threads = static_cast<std::int64_t>(exec.threads());
  std::vector<float> a(n * n, 0.5F), b(n * n, 0.25F), c(static_cast<std::size_t>(threads) * n * n);
  auto const workspace = tessera::divide_up(tessera::eigen_gemm::workspace(n, n, n), 16) * 16;
  tessera::buffer<float> workspaces(exec, threads * workspace);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    auto const start = std::chrono::steady_clock::now();
    exec.run(threads, [&](std::int64_t t) {
      tessera::eigen_gemm{}.multiply(tessera::matrix_view<float const>{a.data(), n, n}, tessera::matrix_view<float const>{b.data(), n, n},
                                     {c.data() + t * n * n, n, n}, workspaces.data() + t * workspace);
    });
    auto const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2.0 * n * n * n * static_cast<double>(threads) / seconds);
  }
  return best;
}

}  // namespace tessera_bench
