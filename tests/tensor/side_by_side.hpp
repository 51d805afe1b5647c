// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/view.hpp>

#include "keyed_support.hpp"

namespace tensor_tests {

/// Matrices in one array, side by side in rows wider than they are by `gap` a matrix, as views of any memory.
struct side_by_side {
  std::int64_t rows, gap, width = 0;
  ids dims;

  side_by_side(std::int64_t rows, ids const& dims, std::int64_t gap) : rows(rows), gap(gap), dims(dims) {
    for (auto const dim : dims) width += dim + gap;
  }
  floats random(std::mt19937_64& engine) const { return tessera_tests::random_floats(engine, static_cast<std::size_t>(rows * width)); }
  template <class T>
  std::vector<tessera::matrix_view<T>> views(T* values) const {
    std::vector<tessera::matrix_view<T>> result;
    std::int64_t first = 0;
    for (auto const dim : dims) {
      result.emplace_back(values ? values + first : nullptr, rows, dim, width);
      first += dim + gap;
    }
    return result;
  }
};

}  // namespace tensor_tests
