// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Eigen 3.4 has unused variables and extensions, and g++ 12 takes the deliberately undefined operands inside its own AVX-512 intrinsics for mistakes.
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif
#include <Eigen/Core>
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif

#include <algorithm>
#include <cstdint>

#include <tessera/nn/gemm.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Products by Eigen's blocked kernel, on the calling thread alone, also where Eigen was given threads of its own. The workspace holds its
/// packing buffers, so that it allocates nothing.
struct eigen_gemm {
  static std::int64_t workspace(std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
    if (k == 0) return 0;
    blocking const sizes(m, n, k, nullptr);
    return blocking::padded(sizes.kc() * sizes.mc()) + blocking::padded(sizes.kc() * sizes.nc());
  }

  static void multiply(gemm_operand a, gemm_operand b, matrix_view<float> c, float* workspace) {
    for (std::int64_t r = 0; r < c.rows(); ++r) std::fill_n(c.row(r), c.columns(), 0.0F);
    if (a.columns() == 0) return;
    // Row-major c = a b is column-major c^T = b^T a^T; a row-major factor that is not transposed is its transpose, column-major.
    auto const run = b.is_transposed
                         ? (a.is_transposed ? product<Eigen::RowMajor, Eigen::RowMajor> : product<Eigen::RowMajor, Eigen::ColMajor>)
                         : (a.is_transposed ? product<Eigen::ColMajor, Eigen::RowMajor> : product<Eigen::ColMajor, Eigen::ColMajor>);
    run(b, a, c, workspace);
  }

 private:
  // Eigen's block sizes, with its buffers in the caller's workspace.
  struct blocking : Eigen::internal::level3_blocking<float, float> {
    blocking(std::int64_t m, std::int64_t n, std::int64_t k, float* workspace) {
      m_mc = n;
      m_nc = m;
      m_kc = k;
      Eigen::internal::computeProductBlockingSizes<float, float, 1, Eigen::Index>(m_kc, m_mc, m_nc);
      m_blockA = workspace;
      m_blockB = workspace == nullptr ? nullptr : workspace + padded(m_kc * m_mc);
    }
    static constexpr std::int64_t padded(std::int64_t floats) noexcept { return divide_up(floats, 16) * 16; }
  };

  template <int LeftOrder, int RightOrder>
  static void product(gemm_operand left, gemm_operand right, matrix_view<float> c, float* workspace) {
    blocking sizes(c.rows(), c.columns(), left.rows(), workspace);
    Eigen::internal::general_matrix_matrix_product<Eigen::Index, float, LeftOrder, false, float, RightOrder, false, Eigen::ColMajor,
                                                   1>::run(c.columns(), c.rows(), left.rows(), left.stored.data(), left.stored.stride(),
                                                           right.stored.data(), right.stored.stride(), c.data(), 1, c.stride(), 1.0F, sizes,
                                                           nullptr);
  }
};
static_assert(gemm_policy<eigen_gemm>);

}  // namespace TESSERA_ABI
}  // namespace tessera
