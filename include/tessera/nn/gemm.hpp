// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <thread>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A factor of a matrix product: a view read as it is, or transposed.
struct gemm_operand {
  matrix_view<float const> stored;
  bool is_transposed = false;

  /// A matrix as a factor, perhaps transposed.
  constexpr gemm_operand(matrix_view<float const> m, bool transposed = false) noexcept
      : stored(m), is_transposed(transposed) {}  // NOLINT: implicit
  /// A matrix as a factor.
  constexpr gemm_operand(matrix_view<float> m) noexcept : stored(m) {}  // NOLINT: implicit

  constexpr std::int64_t rows() const noexcept { return is_transposed ? stored.columns() : stored.rows(); }
  constexpr std::int64_t columns() const noexcept { return is_transposed ? stored.rows() : stored.columns(); }
  /// A block of the factor, by rows and columns of the factor as it is read.
  constexpr gemm_operand block(std::int64_t first_row, std::int64_t first_column, std::int64_t rows, std::int64_t columns) const noexcept {
    return is_transposed ? gemm_operand{stored.block(first_column, first_row, columns, rows), true}
                         : gemm_operand{stored.block(first_row, first_column, rows, columns), false};
  }
};

/// The transpose of a matrix as a factor; nothing is copied.
constexpr gemm_operand transposed(matrix_view<float const> m) noexcept { return {m, true}; }

/// A policy that multiplies matrices. `multiply(a, b, c, workspace)` computes c = a b on the calling thread alone. a (m, k), b (k, n), c
/// (m, n); k may be 0. Rows do not overlap each other, but a single row may have any stride. `workspace(m, n, k)` is how many floats,
/// aligned to 64 bytes, a product of exactly that shape needs; a smaller product may need more.
template <class G>
concept gemm_policy = requires(G const& policy, gemm_operand a, gemm_operand b, matrix_view<float> c, std::int64_t extent,
                               float* workspace) {
  policy.multiply(a, b, c, workspace);
  { policy.workspace(extent, extent, extent) } -> std::same_as<std::int64_t>;
};

/// How a product is cut into tiles, each done by one thread. It is a function of the shape alone, so that the sums in an element never
/// depend on the number of threads.
struct gemm_tiling {
  std::int64_t rows, columns;

  /// Tiles of at most 256 x 256. They are smaller where that leaves few for the threads, as long as each is worth a thread's time. Extents
  /// are multiples of 16 unless they span the matrix.
  static constexpr gemm_tiling of(std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
    constexpr std::int64_t largest = 256, smallest = 64, least_tiles = 4;
    constexpr double least_multiply_adds = 1 << 20;
    gemm_tiling tile{part(m, largest), part(n, largest)};
    auto const is_few = [&] {
      auto const down = divide_up(m, tile.rows), across = divide_up(n, tile.columns);
      return down < least_tiles && across < least_tiles && down * across < least_tiles;
    };
    while (is_few()) {
      auto& longer = tile.rows >= tile.columns ? tile.rows : tile.columns;
      auto const work = static_cast<double>(tile.rows) * static_cast<double>(tile.columns) * static_cast<double>(k);
      if (longer < 2 * smallest || work < 2 * least_multiply_adds) break;
      longer = part(longer, divide_up(longer, 2));
    }
    return tile;
  }

 private:
  // The largest piece when an extent is cut evenly into pieces of at most `most`, rounded up to 16.
  static constexpr std::int64_t part(std::int64_t extent, std::int64_t most) noexcept {
    auto const even = divide_up(extent, std::max<std::int64_t>(divide_up(extent, most), 1));
    return std::max<std::int64_t>(1, std::min(extent, divide_up(even, 16) * 16));
  }
};

/// Leaves a finished tile as it is.
struct no_epilogue {
  void operator()(matrix_view<float>, std::int64_t, std::int64_t) const noexcept {}
};

/// Computes c = a b, then calls `epilogue(tile of c, first row, first column)` on each finished tile while it is in the cache.
///
/// a (m, k), b (k, n), c (m, n), with strides of a row or more; `transposed(m)` is a transposed factor. c overlaps neither a nor b.
/// Workspace, from `exec`'s memory: what the policy asks for, for each thread. The number of threads changes no bit.
/// @throws tessera::error shape_mismatch for extents that do not fit, or a matrix whose rows overlap each other.
template <gemm_policy Policy, class Epilogue = no_epilogue>
void gemm(host_exec const& exec, Policy const& policy, gemm_operand a, gemm_operand b, matrix_view<float> c, Epilogue const& epilogue = {});

namespace detail {

/// At most 64 workspaces, which the threads of one region take in turn. A thread finds a free one without waiting, unless more threads ask
/// than the team said.
class workspace_slots {
 public:
  workspace_slots(host_exec const& exec, std::int64_t floats, std::int64_t most)
      : stride_(divide_up(floats, 16) * 16),
        count_(std::min<std::int64_t>({static_cast<std::int64_t>(exec.threads()), most, 64})),
        memory_(exec, count_ * stride_),
        free_(~std::uint64_t{0} >> (64 - count_)) {}

  template <class F>
  void with(F const& f) {
    auto mask = free_.load(std::memory_order_relaxed);
    while (mask == 0 || !free_.compare_exchange_weak(mask, mask & (mask - 1), std::memory_order_acquire)) {
      if (mask == 0) {
        std::this_thread::yield();
        mask = free_.load(std::memory_order_relaxed);
      }
    }
    struct lease {
      std::atomic<std::uint64_t>& free;
      std::uint64_t mine;
      ~lease() { free.fetch_or(mine, std::memory_order_release); }
    } const held{free_, mask & ~(mask - 1)};
    f(memory_.data() + std::countr_zero(held.mine) * stride_);
  }

 private:
  std::int64_t stride_;
  std::int64_t count_;  // at least 1
  buffer<float> memory_;
  std::atomic<std::uint64_t> free_;
};

// Of the tiles in the middle, along the two edges and in the corner.
template <class Policy>
std::int64_t largest_workspace(Policy const& policy, gemm_tiling tile, gemm_tiling corner, std::int64_t k) {
  std::int64_t const sizes[] = {policy.workspace(tile.rows, tile.columns, k), policy.workspace(tile.rows, corner.columns, k),
                                policy.workspace(corner.rows, tile.columns, k), policy.workspace(corner.rows, corner.columns, k)};
  return *std::max_element(std::begin(sizes), std::end(sizes));
}

inline void check_gemm_stride(char const* matrix, matrix_view<float const> m) {
  if (m.rows() > 1 && m.stride() < m.columns())
    throw error(errc::shape_mismatch, "gemm: rows overlap", {{"matrix", matrix}, {"columns", m.columns()}, {"stride", m.stride()}});
}

}  // namespace detail

template <gemm_policy Policy, class Epilogue>
void gemm(host_exec const& exec, Policy const& policy, gemm_operand a, gemm_operand b, matrix_view<float> c, Epilogue const& epilogue) {
  if (a.columns() != b.rows() || c.rows() != a.rows() || c.columns() != b.columns())
    throw error(errc::shape_mismatch, "gemm: shapes do not fit",
                {{"a rows", a.rows()},
                 {"a columns", a.columns()},
                 {"b rows", b.rows()},
                 {"b columns", b.columns()},
                 {"c rows", c.rows()},
                 {"c columns", c.columns()}});
  detail::check_gemm_stride("a", a.stored);
  detail::check_gemm_stride("b", b.stored);
  detail::check_gemm_stride("c", c);
  if (c.rows() == 0 || c.columns() == 0) return;
  auto const k = a.columns();
  auto const tile = gemm_tiling::of(c.rows(), c.columns(), k);
  auto const tiles_down = divide_up(c.rows(), tile.rows), tiles_across = divide_up(c.columns(), tile.columns);
  auto const tiles = tiles_down * tiles_across;
  detail::workspace_slots workspaces(
      exec,
      detail::largest_workspace(policy, tile, {c.rows() - (tiles_down - 1) * tile.rows, c.columns() - (tiles_across - 1) * tile.columns},
                                k),
      tiles);
  exec.run(tiles, [&](std::int64_t t) {
    auto const row = t / tiles_across * tile.rows;
    auto const column = t % tiles_across * tile.columns;
    auto const rows = std::min(tile.rows, c.rows() - row);
    auto const columns = std::min(tile.columns, c.columns() - column);
    auto const part = c.block(row, column, rows, columns);
    workspaces.with([&](float* workspace) { policy.multiply(a.block(row, 0, rows, k), b.block(0, column, k, columns), part, workspace); });
    epilogue(part, row, column);
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
