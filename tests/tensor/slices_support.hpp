// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/tensor/partial_inverse_keyed_jagged.hpp>

/// Slices of vectors, which overlap.
namespace tensor_tests {

using slice = tessera::run_slice<>;

struct slices_case {
  std::int64_t vectors, dim, first_value;
  std::vector<slice> slices;
  std::vector<std::int64_t> offsets;  // of the result

  std::size_t size() const { return static_cast<std::size_t>(offsets.back() * dim); }
};

inline slices_case random_case(std::mt19937_64& random, std::int64_t vectors, std::int64_t dim, std::size_t count, std::int64_t longest) {
  slices_case made{vectors, dim, static_cast<std::int64_t>(random() % 50), {}, {0}};
  for (std::size_t i = 0; i < count; ++i) {
    auto const length = vectors == 0 ? 0 : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(std::min(vectors, longest) + 1));
    auto const begin = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(vectors - length + 1));
    made.slices.push_back(length == 0 ? slice{-9, 0} : slice{begin + made.first_value, length});
    made.offsets.push_back(made.offsets.back() + length);
  }
  return made;
}

struct slices_shape {
  std::int64_t vectors, dim;
  std::size_t slices;
  std::int64_t longest;
};
inline std::vector<slices_shape> const slices_shapes{{0, 3, 0, 1},
                                                     {0, 3, 4, 1},
                                                     {1, 1, 3, 1},
                                                     {7, 5, 0, 3},
                                                     {50, 3, 40, 9},
                                                     {900, 64, 300, 600},
                                                     {40'000, 1, 900, 20'000},
                                                     {70, 1027, 60, 30},
                                                     {40, 1028, 30, 12},
                                                     {3000, 17, 6000, 40},
                                                     {5, 0, 4, 5}};

}  // namespace tensor_tests
