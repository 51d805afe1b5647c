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

#include <tessera/nn/gemm.hpp>

namespace tessera::inline TESSERA_ABI {

/// Products by Eigen, each tile on one thread. A program that turns on OpenMP for Eigen should call Eigen::setNbThreads(1): threads inside
/// a tile would make its bits depend on their number.
struct eigen_gemm {
  void multiply(gemm_operand a, gemm_operand b, matrix_view<float> c) const {
    map out(c.data(), c.rows(), c.columns(), Eigen::OuterStride<>(c.stride()));
    auto const left = stored(a), right = stored(b);
    if (a.is_transposed && b.is_transposed)
      out.noalias() = left.transpose() * right.transpose();
    else if (a.is_transposed)
      out.noalias() = left.transpose() * right;
    else if (b.is_transposed)
      out.noalias() = left * right.transpose();
    else
      out.noalias() = left * right;
  }

 private:
  using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using map = Eigen::Map<matrix, Eigen::Unaligned, Eigen::OuterStride<>>;
  using const_map = Eigen::Map<matrix const, Eigen::Unaligned, Eigen::OuterStride<>>;

  static const_map stored(gemm_operand o) noexcept {
    return {o.stored.data(), o.stored.rows(), o.stored.columns(), Eigen::OuterStride<>(o.stored.stride())};
  }
};
static_assert(gemm_policy<eigen_gemm>);

}  // namespace tessera::inline TESSERA_ABI
