// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/embed/lookup_checks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void validate_batch(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch) {
  constexpr std::int64_t rows_per_piece = 1 << 13;
  validate_row_counts(batch);
  auto const all = batch.flat();
  std::atomic<bool> is_wrong = all.rows > 0 && (all.offsets == nullptr || all.offsets[0] < 0);
  if (!is_wrong)
    for_each_piece(exec, all.rows, rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      std::int64_t decreases = 0;
      for (auto row = first; row < last; ++row) decreases += all.end_of(row) < all.begin_of(row);
      if (decreases > 0) is_wrong = true;
    });
  auto const most = batch.room >= 0 ? batch.room : std::numeric_limits<std::int64_t>::max();
  if (is_wrong || (all.rows > 0 && all.offsets[all.rows] > most)) validate(batch, most);  // names the first that is
}

TESSERA_INLINE void check_lookup_matrix(char const* call, std::int64_t feature, std::int64_t rows, std::int64_t dim,
                                        matrix_view<float const> matrix) {
  if (matrix.rows() != rows || matrix.columns() != dim || matrix.stride() < dim)
    throw error(errc::shape_mismatch, std::string(call) + ": a matrix does not fit its feature",
                {{"feature", feature},
                 {"rows", matrix.rows()},
                 {"rows expected", rows},
                 {"columns", matrix.columns()},
                 {"dim", dim},
                 {"stride", matrix.stride()}});
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
