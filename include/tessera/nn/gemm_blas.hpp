// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __has_include(<cblas.h>)
#include <cblas.h>
#elif __has_include(<mkl_cblas.h>)
#include <mkl_cblas.h>
#else
#error "tessera/nn/gemm_blas.hpp: no cblas.h here; link tessera::blas (CMake option TESSERA_BLAS), or add a CBLAS's include folder"
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/core/error.hpp>
#include <tessera/nn/gemm.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {
// The integer of this CBLAS's interface, 32 or 64 bits wide.
template <class Order, class Transpose, class Integer, class... Rest>
Integer blas_integer_of(void (*)(Order, Transpose, Transpose, Integer, Rest...));
}  // namespace detail

/// Products by the CBLAS that target tessera::blas found: OpenBLAS, MKL, BLIS or any other. It makes one `cblas_sgemm` a tile and takes no
/// workspace; the library keeps buffers of its own.
///
/// A library's number of threads is global state of the process. The program or its environment sets it before the first product; this
/// header never does. With threads of its own, a library's products are right, but compete with the execution's threads, and their bits may
/// depend on the number.
/// - OpenBLAS: OPENBLAS_NUM_THREADS=1 and a build with threads (Debian's libopenblas0-pthread), or a build with USE_THREAD=0 USE_LOCKING=1.
///   Without USE_LOCKING=1 (Debian's libopenblas0-serial 0.3.21) two threads share a buffer and products come out wrong. One older than the
///   processor may use slow kernels for lack of wide registers: OPENBLAS_CORETYPE (SkylakeX for AVX-512, Haswell for AVX2) names others.
///   OPENBLAS_VERBOSE=2 shows which it took.
/// - MKL: its sequential layer, or MKL_NUM_THREADS=1.
/// - BLIS: as it is, unless BLIS_NUM_THREADS or OMP_NUM_THREADS asks for more.
///
/// @pre the library may be called from several threads at once, and each call stays on its thread
/// @throws tessera::error out_of_range where an extent or a stride does not fit the library's integer.
struct blas_gemm {
  static constexpr std::int64_t workspace(std::int64_t, std::int64_t, std::int64_t) noexcept { return 0; }

  static void multiply(gemm_operand a, gemm_operand b, matrix_view<float> c, float*) {
    auto const k = a.columns();
    if (k == 0) {
      for (std::int64_t r = 0; r < c.rows(); ++r) std::fill_n(c.row(r), c.columns(), 0.0F);
      return;
    }
    cblas_sgemm(CblasRowMajor, a.is_transposed ? CblasTrans : CblasNoTrans, b.is_transposed ? CblasTrans : CblasNoTrans,
                narrow("rows", c.rows()), narrow("columns", c.columns()), narrow("inner extent", k), 1.0F, a.stored.data(),
                stride(a.stored), b.stored.data(), stride(b.stored), 0.0F, c.data(), stride(c));
  }

 private:
  using integer = decltype(detail::blas_integer_of(&cblas_sgemm));

  // A single row may have any stride, but a BLAS wants one that fits, and otherwise computes nothing and says so to nobody.
  static integer stride(matrix_view<float const> m) {
    return narrow("stride", std::max<std::int64_t>(m.rows() > 1 ? m.stride() : m.columns(), 1));
  }

  static integer narrow(char const* what, std::int64_t extent) {
    if (extent > static_cast<std::int64_t>(std::numeric_limits<integer>::max()))
      throw error(errc::out_of_range, "blas_gemm: past the range of the library's integer",
                  {{what, extent}, {"most", static_cast<std::int64_t>(std::numeric_limits<integer>::max())}});
    return static_cast<integer>(extent);
  }
};
static_assert(gemm_policy<blas_gemm>);

}  // namespace TESSERA_ABI
}  // namespace tessera
