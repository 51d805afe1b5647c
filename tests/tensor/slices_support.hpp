// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <tessera/tensor/jagged.hpp>

/// Slices of vectors, which overlap.
namespace tensor_tests {

using slice = tessera::value_range<>;

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

/// `refuse(slices, offsets)`: what is said of slices of 4 vectors, the first of which is number 10, as rows with these offsets.
template <class Refused>
void check_refused_slices(Refused const& refuse) {
  auto const refused = [&](std::vector<slice> const& slices, std::vector<std::int64_t> const& offsets) { return refuse(slices, offsets); };
  CHECK(refused({{10, 4}, {12, 3}}, {0, 4, 7}) ==
        "select_slices: a slice that reaches past the vectors (slice 1, begin 12, length 3, first value 10, vectors 4)");
  CHECK(refused({{9, 1}}, {0, 1}).find("begin 9") != std::string::npos);
  CHECK(refused({{10, -1}}, {0, 0}).find("length -1") != std::string::npos);
  constexpr auto least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  CHECK(refused({{least, 1}}, {0, 1}).find("begin " + std::to_string(least)) != std::string::npos);
  CHECK(refused({{most, 1}}, {0, 1}).find("begin " + std::to_string(most)) != std::string::npos);
  CHECK(refused({{10, most}}, {0, 1}).find("length " + std::to_string(most)) != std::string::npos);
  CHECK(refused({{least, 0}, {9, 1}}, {0, 0, 1}).find("slice 1") != std::string::npos);  // an empty one begins anywhere
  CHECK(refused({{10, 4}, {12, 2}}, {0, 4, 5}) ==
        "select_slices: a row of another length than its slice (slice 1, length 1, length expected 2)");
  CHECK(refused({{10, 3}, {9, 1}}, {0, 2, 3}) ==
        "select_slices: a row of another length than its slice (slice 0, length 2, length expected 3)");
  CHECK(refused({{9, 1}, {10, 3}}, {0, 1, 2}).find("slice 0, begin 9") != std::string::npos);
}

}  // namespace tensor_tests
