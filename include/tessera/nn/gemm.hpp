// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera::inline TESSERA_ABI {

/// A factor of a matrix product: a view read as it is, or transposed.
struct gemm_operand {
  matrix_view<float const> stored;
  bool is_transposed = false;

  constexpr gemm_operand(matrix_view<float const> m, bool transposed = false) noexcept : stored(m), is_transposed(transposed) {}  // NOLINT: implicit
  constexpr gemm_operand(matrix_view<float> m) noexcept : stored(m) {}                                                            // NOLINT: implicit

  constexpr std::int64_t rows() const noexcept { return is_transposed ? stored.columns() : stored.rows(); }
  constexpr std::int64_t columns() const noexcept { return is_transposed ? stored.rows() : stored.columns(); }
  constexpr gemm_operand block(std::int64_t first_row, std::int64_t first_column, std::int64_t rows, std::int64_t columns) const noexcept {
    return is_transposed ? gemm_operand{stored.block(first_column, first_row, columns, rows), true}
                         : gemm_operand{stored.block(first_row, first_column, rows, columns), false};
  }
};

/// The transpose of a matrix as a factor; nothing is copied.
constexpr gemm_operand transposed(matrix_view<float const> m) noexcept { return {m, true}; }

/// Who multiplies. `multiply(a, b, c)` computes c = a b on the calling thread alone; a (m, k), b (k, n), c (m, n), k may be 0.
template <class G>
concept gemm_policy = requires(G const& policy, gemm_operand a, gemm_operand b, matrix_view<float> c) { policy.multiply(a, b, c); };

/// How a product is cut: into tiles of this size, each done by one thread. A function of the shape alone, so that the sums in an element
/// never depend on the number of threads.
struct gemm_tiling {
  std::int64_t rows, columns;

  /// Tiles of at most about 2^22 multiply-adds, near square, multiples of 16 where the shape allows.
  static constexpr gemm_tiling of(std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
    auto const fit = [](std::int64_t extent, std::int64_t most) {
      auto const parts = divide_up(extent, std::max<std::int64_t>(most, 16));
      return std::max<std::int64_t>(1, std::min(extent, divide_up(divide_up(extent, std::max<std::int64_t>(parts, 1)), 16) * 16));
    };
    constexpr std::int64_t multiply_adds = std::int64_t{1} << 22;
    auto const area = std::max<std::int64_t>(multiply_adds / std::max<std::int64_t>(k, 1), 16 * 16);
    auto const columns = fit(n, 256);
    return {fit(m, std::max<std::int64_t>(area / std::max<std::int64_t>(columns, 1), 32)), columns};
  }
};

/// Leaves a finished tile as it is.
struct no_epilogue {
  void operator()(matrix_view<float>, std::int64_t, std::int64_t) const noexcept {}
};

namespace detail {

template <class Exec>
struct gemm_impl {
  static_assert(dependent_false<Exec>, "gemm: no back end for this execution; for CUDA include <tessera/nn/gemm.cuh>");
};

template <>
struct gemm_impl<host_exec> {
  template <class Policy, class Epilogue>
  static void run(host_exec const& exec, Policy const& policy, gemm_operand a, gemm_operand b, matrix_view<float> c, Epilogue const& epilogue) {
    auto const k = a.columns();
    auto const tile = gemm_tiling::of(c.rows(), c.columns(), k);
    auto const tiles_across = divide_up(c.columns(), tile.columns);
    exec.run(divide_up(c.rows(), tile.rows) * tiles_across, [&](std::int64_t t) {
      auto const row = t / tiles_across * tile.rows;
      auto const column = t % tiles_across * tile.columns;
      auto const rows = std::min(tile.rows, c.rows() - row);
      auto const columns = std::min(tile.columns, c.columns() - column);
      auto const part = c.block(row, column, rows, columns);
      policy.multiply(a.block(row, 0, rows, k), b.block(0, column, k, columns), part);
      epilogue(part, row, column);
    });
  }
};

struct gemm_fn {
  template <execution Exec, gemm_policy Policy, class Epilogue = no_epilogue>
  void operator()(Exec const& exec, Policy const& policy, gemm_operand a, gemm_operand b, matrix_view<float> c, Epilogue const& epilogue = {}) const {
    if (a.columns() != b.rows() || c.rows() != a.rows() || c.columns() != b.columns())
      throw error(errc::shape_mismatch, "gemm: shapes do not fit",
                  {{"a rows", a.rows()}, {"a columns", a.columns()}, {"b rows", b.rows()}, {"b columns", b.columns()},
                   {"c rows", c.rows()}, {"c columns", c.columns()}});
    if (c.rows() == 0 || c.columns() == 0) return;
    gemm_impl<Exec>::run(exec, policy, a, b, c, epilogue);
  }
};

}  // namespace detail

/// c = a b, then `epilogue(tile of c, first row, first column)` on each finished tile while it is in the cache.
///
/// `gemm(exec, policy, a, b, c, epilogue)`: a (m, k), b (k, n), c (m, n), any row strides; `transposed(m)` for a transposed factor.
/// c overlaps neither a nor b. @throws tessera::error shape_mismatch. The thread count changes no bit.
inline constexpr detail::gemm_fn gemm{};

}  // namespace tessera::inline TESSERA_ABI
