// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_products.hpp>
#include <tessera/tensor/jagged_vectors.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr int product_tile_rows = 32;
inline constexpr int product_tile_columns = 64;

/// Up to `product_tile_rows` rows of a product: `left` (rows, k) times `right` (k, columns).
struct product_tile {
  product_operand left;
  product_operand right;
  std::int64_t rows;  // 0 or less where there is nothing to do
  std::int64_t k;
  float* to;
};

/// Cuts the vectors of each row into tiles, of which none has vectors of two rows. The tiles of row r begin at number r + (the vectors
/// before it) / (those of a tile). A row has enough tiles for its vectors, and at times one more, which is empty. So no pass over the rows
/// has to count them.
template <class Offset>
struct row_tiles {
  Offset const* offsets;
  std::int64_t rows;

  struct place {
    std::int64_t row;
    std::int64_t in_row;  // of the tile's first vector, which need not be there
  };

  TESSERA_HOST_DEVICE constexpr std::int64_t first_of(std::int64_t row) const noexcept {
    return row + (static_cast<std::int64_t>(offsets[row]) - static_cast<std::int64_t>(offsets[0])) / product_tile_rows;
  }
  TESSERA_HOST_DEVICE constexpr std::int64_t count() const noexcept { return first_of(rows); }
  TESSERA_HOST_DEVICE constexpr place place_of(std::int64_t tile) const noexcept {
    auto const row = count_first(rows, [&](std::int64_t r) { return first_of(r) <= tile; }) - 1;
    return {row, (tile - first_of(row)) * product_tile_rows};
  }
  /// How many there are at most for so many vectors.
  static constexpr std::int64_t most(std::int64_t rows, std::int64_t vectors) noexcept {
    return rows == 0 ? 0 : rows + vectors / product_tile_rows;
  }
};

/// Multiplies vectors of each row with a matrix of its own, (k, n), or the transpose of one, (n, k). Dense matrix r begins at row r *
/// dense_rows.
template <class Offset>
struct product_with_dense {
  jagged_vectors_view<float const, Offset> in;
  matrix_view<float const> dense;
  std::int64_t dense_rows, row_step, step;  // of element (k, n) of the right side
  jagged_vectors_view<float, Offset> out;

  TESSERA_DEVICE std::int64_t tiles() const { return row_tiles<Offset>{in.offsets, in.rows}.count(); }
  TESSERA_DEVICE product_tile tile(std::int64_t i) const {
    auto const at = row_tiles<Offset>{in.offsets, in.rows}.place_of(i);
    auto const left = in.length(at.row) - at.in_row;
    return {{in.values.data() + (in.begin_of(at.row) + at.in_row) * in.values.stride(), in.values.stride(), 1},
            {dense.data() + at.row * dense_rows * dense.stride(), row_step, step},
            left < product_tile_rows ? left : product_tile_rows,
            in.dim(),
            out.values.data() + (out.begin_of(at.row) + at.in_row) * out.values.stride()};
  }
};

/// The transpose of a row's vectors, (k, length), times another's, (length, n).
template <class Offset>
struct product_of_rows {
  jagged_vectors_view<float const, Offset> a;
  jagged_vectors_view<float const, Offset> b;
  std::int64_t tiles_per_row;
  matrix_view<float> out;

  TESSERA_DEVICE std::int64_t tiles() const { return a.rows * tiles_per_row; }
  TESSERA_DEVICE product_tile tile(std::int64_t i) const {
    auto const row = i / tiles_per_row, first = i % tiles_per_row * product_tile_rows, left = a.dim() - first;
    return {{a.values.data() + a.begin_of(row) * a.values.stride() + first, 1, a.values.stride()},
            {b.values.data() + b.begin_of(row) * b.values.stride(), b.values.stride(), 1},
            left < product_tile_rows ? left : product_tile_rows,
            a.length(row),
            out.data() + (row * a.dim() + first) * out.stride()};
  }
};

// A block multiplies a tile of 32 rows by 64 columns, 4 by 4 a thread, whose sums stay in registers and run over k in order. Both sides
// pass through shared memory in panels of 32: so that neighbours read neighbours, it matters in which direction the sides lie in memory.
template <bool LeftByK, bool RightByK, class Product>
struct products_kernel {
  static constexpr int threads = 128;
  static constexpr int panel = 32;
  static constexpr int left_stride = product_tile_rows + 4, right_stride = product_tile_columns;
  static constexpr std::int64_t shared_bytes = panel * (left_stride + right_stride) * 4;
  Product product;
  std::int64_t columns, column_tiles, to_stride;
  bool stores_by_four;
  std::uint32_t const* invalid;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    if (*invalid != 0) return;
    for_each_unit(block, product.tiles() * column_tiles, 1, 0, [&](std::int64_t i) {
      auto const tile = product.tile(i / column_tiles);
      if (tile.rows > 0) multiply(block, tile, i % column_tiles * product_tile_columns);
    });
  }

 private:
  template <class Block>
  TESSERA_DEVICE void multiply(Block& block, product_tile const& tile, std::int64_t column) const {
    float* const left = block.template shared<float>();
    float* const right = left + panel * left_stride;
    int const own_row = block.thread() / 16 * 4, own_column = block.thread() % 16 * 4;
    auto const n = columns - column;
    float sum[4][4] = {};
    for (std::int64_t k = 0; k < tile.k; k += panel) {
      auto const depth = tile.k - k < panel ? tile.k - k : panel;
      block.sync();  // the others have read the panel before
      load<LeftByK, product_tile_rows>(block.thread(), tile.left.data + k * tile.left.step, tile.left.row_step, tile.left.step, tile.rows,
                                       depth, left);
      load<RightByK, product_tile_columns>(block.thread(), tile.right.data + column * tile.right.step + k * tile.right.row_step,
                                           tile.right.step, tile.right.row_step, n, depth, right);
      block.sync();
      for (int j = 0; j < depth; ++j) {
        auto const a = read_four(left + j * left_stride + own_row, 4, true), b = read_four(right + j * right_stride + own_column, 4, true);
        for (int r = 0; r < 4; ++r)
          for (int c = 0; c < 4; ++c) sum[r][c] = multiply_add(a[r], b[c], sum[r][c]);
      }
    }
    for (int r = 0; r < 4; ++r)
      if (own_row + r < tile.rows && own_column < n)
        write_four(tile.to + (own_row + r) * to_stride + column + own_column,
                   four_elements<float>{{sum[r][0], sum[r][1], sum[r][2], sum[r][3]}}, n - own_column, stores_by_four);
  }

  // A panel (k, `Width`) of one side, whose element (i, k) is from[i * item_step + k * step]: i of [0, items), 0 from there on, k of
  // [0, depth). `ByK`: neighbours in k lie beside each other. A thread has one k, or else one i, and goes along the other.
  template <bool ByK, int Width>
  TESSERA_DEVICE static void load(int thread, float const* from, std::int64_t item_step, std::int64_t step, std::int64_t items,
                                  std::int64_t depth, float* to) {
    constexpr int beside = ByK ? panel : Width, each = threads / beside, loads = panel * Width / threads;
    constexpr int to_stride = Width == product_tile_rows ? left_stride : right_stride;
    int const own = thread % beside, first = thread / beside;
    std::int64_t const along = ByK ? item_step : step, own_step = ByK ? step : item_step;
    auto const limit = own < (ByK ? depth : items) ? (ByK ? items : depth) : 0;
    from += own * own_step + first * along;
    to += ByK ? own * to_stride + first : first * to_stride + own;
    float read[std::size_t{loads}];
    for (int n = 0; n < loads; ++n, from += each * along) read[n] = first + n * each < limit ? *from : 0.0F;
    for (int n = 0; n < loads; ++n) to[n * each * (ByK ? 1 : to_stride)] = read[n];
  }
};

template <device_execution Exec>
struct back_end<jagged_products_tag, Exec> {
  template <class Offset>
  static void with_dense(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> in,
                         matrix_view<float const> dense, jagged_vectors_view<float, Offset> out) {
    launch<true, false>(exec, rows.verdict(), row_tiles<Offset>::most(in.rows, in.values.rows()), out.values,
                        product_with_dense<Offset>{in, dense, in.dim(), dense.stride(), 1, out});
  }

  template <class Offset>
  static void with_transposed(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> in,
                              matrix_view<float const> dense, jagged_vectors_view<float, Offset> out) {
    launch<true, true>(exec, rows.verdict(), row_tiles<Offset>::most(in.rows, in.values.rows()), out.values,
                       product_with_dense<Offset>{in, dense, out.dim(), 1, dense.stride(), out});
  }

  template <class Offset>
  static void of_rows(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> a,
                      jagged_vectors_view<float const, Offset> b, matrix_view<float> out) {
    auto const tiles_per_row = divide_up(a.dim(), product_tile_rows);
    launch<false, false>(exec, rows.verdict(), a.rows * tiles_per_row, out, product_of_rows<Offset>{a, b, tiles_per_row, out});
  }

 private:
  // At most so many tiles of rows; how many there are, the device knows.
  template <bool LeftByK, bool RightByK, class Product>
  static void launch(Exec const& exec, std::uint32_t const* invalid, std::int64_t tiles, matrix_view<float> out, Product const& product) {
    using kernel = products_kernel<LeftByK, RightByK, Product>;
    auto const column_tiles = divide_up(out.columns(), product_tile_columns);
    if (out.rows() == 0 || tiles == 0 || column_tiles == 0) return;
    exec.launch({.blocks = blocks_for_packs(tiles, column_tiles, 1), .shared_bytes = kernel::shared_bytes},
                kernel{product, out.columns(), column_tiles, out.stride(), moves_by_four(out), invalid});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
