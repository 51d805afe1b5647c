// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>

/// How rectangles make up a table: bands of rows, and in each the blocks side by side.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Rows [first_row, end_row), among which no block begins or ends, and the numbers of the blocks that have them, in the order of columns.
struct row_band {
  std::int64_t first_row = 0, end_row = 0;
  std::vector<std::size_t> blocks;
};

/// Cuts rows [first_row, end_row) wherever a block begins or ends. No rows are one band, of the blocks that begin and end around it.
template <class Block>
std::vector<row_band> row_bands(std::vector<Block> const& blocks, std::int64_t first_row, std::int64_t end_row) {
  std::vector<std::int64_t> cuts{first_row};
  auto const cut_at = [&](std::int64_t row) {
    if (row > first_row && row < end_row) cuts.push_back(row);
  };
  for (auto const& block : blocks) {
    cut_at(block.first_row);
    cut_at(block.first_row + block.rows);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<row_band> bands;
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    auto& band = bands.emplace_back(row_band{cuts[c], c + 1 < cuts.size() ? cuts[c + 1] : end_row, {}});
    for (std::size_t b = 0; b < blocks.size(); ++b)
      if (blocks[b].first_row <= band.first_row && band.end_row <= blocks[b].first_row + blocks[b].rows) band.blocks.push_back(b);
    std::sort(band.blocks.begin(), band.blocks.end(), [&](auto a, auto b) { return blocks[a].first_column < blocks[b].first_column; });
  }
  return bands;
}

/// Where the last block of a band ends, whose blocks have columns [first, end) and maybe others. Calls refuse(what, column) for the first
/// column that no block has, or that two have.
template <class Block, class Refuse>
std::int64_t check_band(row_band const& band, std::vector<Block> const& blocks, std::int64_t first, std::int64_t end,
                        Refuse const& refuse) {
  auto next = first;
  for (auto const b : band.blocks) {
    auto const& block = blocks[b];
    if (block.first_column > next) refuse("leave a gap", next);
    if (b != band.blocks.front() && block.first_column < next) refuse("overlap", block.first_column);
    next = block.first_column + block.columns;
  }
  if (next < end) refuse("leave a gap", next);
  return next;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
