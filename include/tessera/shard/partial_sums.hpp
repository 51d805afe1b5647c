// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Sums of the ids of some rows that lie in one range of a table's rows: row i of `from` belongs to row rows[i] of `to`.
struct partial_sums {
  std::int64_t first_row = 0;  ///< of the range
  matrix_view<float const> from;
  matrix_view<float> to;  ///< the columns of the key's vectors that `from` has
  std::int64_t const* rows = nullptr;
};

/// Adds up the sums of one key, those of the first range first, and multiplies row r by means[r] where `means` has numbers. Rows of no sum
/// become zeros. `to` (rows of the key, dim) is all that the parts' `to` are columns of.
inline void join_partial_sums(std::vector<partial_sums>& parts, vector_view<float const> means, matrix_view<float> to) {
  std::stable_sort(parts.begin(), parts.end(), [](auto const& a, auto const& b) { return a.first_row < b.first_row; });
  for (std::int64_t row = 0; row < to.rows(); ++row) std::fill_n(to.row(row), to.columns(), 0.0F);
  for (auto const& part : parts)
    for (std::int64_t i = 0; i < part.from.rows(); ++i) {
      auto const* const from = part.from.row(i);
      auto* const sum = part.to.row(part.rows[i]);
      for (std::int64_t c = 0; c < part.from.columns(); ++c) sum[c] += from[c];
    }
  for (std::int64_t row = 0; row < means.size(); ++row)
    for (std::int64_t c = 0; c < to.columns(); ++c) to(row, c) *= means[row];
}

/// As above for all keys: `parts` (keys,) of each; keys without parts are left as they are. `means_of(key)`.
template <class MeansOf>
void join_partial_sums(host_exec const& exec, std::vector<std::vector<partial_sums>>& parts, MeansOf const& means_of,
                       vector_view<matrix_view<float> const> out) {
  exec.run(static_cast<std::int64_t>(parts.size()), [&](std::int64_t number) {
    auto const key = static_cast<std::size_t>(number);
    if (!parts[key].empty()) join_partial_sums(parts[key], means_of(key), out[number]);
  });
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
