// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/pool_segments.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How the vectors of a sequence become one; an empty sequence becomes zeros.
enum class sequence_pooling : std::uint8_t { mean, sum, last };

/// Pools each row to one vector: out (rows, dim). Sums are in float, in order.
/// @throws tessera::error shape_mismatch; out_of_range for offsets past the values; invalid_argument for a mode that is none.
template <class Offset>
void pool_sequences(host_exec const& exec, jagged_vectors_view<float const, Offset> in, sequence_pooling mode, matrix_view<float> out);

/// Overwrites the gradients of the vectors, from that of what was pooled.
template <class Offset>
void pool_sequences_backward(host_exec const& exec, matrix_view<float const> gradient, sequence_pooling mode,
                             jagged_vectors_view<float, Offset> in_gradient);

namespace detail {

inline constexpr std::int64_t pooled_rows_per_piece = 64;

constexpr segment_pooling as_segments(sequence_pooling mode) noexcept {
  return mode == sequence_pooling::mean ? segment_pooling::mean : segment_pooling::sum;
}

inline void check_sequence_pooling(char const* call, sequence_pooling mode) { check_choice(call, "pooling", mode, sequence_pooling::last); }

// As pool_segments does.
inline void check_pool_sequences(char const* call, std::int64_t rows, std::int64_t dim, matrix_view<float const> pooled) {
  if (pooled.rows() != rows || pooled.columns() != dim || pooled.stride() < dim)
    throw error(errc::shape_mismatch, std::string(call) + ": pooled vectors (rows, dim) of another shape",
                {{"matrix rows", pooled.rows()}, {"rows", rows}, {"columns", pooled.columns()}, {"dim", dim}, {"stride", pooled.stride()}});
}

}  // namespace detail

template <class Offset>
void pool_sequences(host_exec const& exec, jagged_vectors_view<float const, Offset> in, sequence_pooling mode, matrix_view<float> out) {
  detail::check_sequence_pooling("pool_sequences", mode);
  if (mode != sequence_pooling::last) return pool_segments(exec, in, detail::as_segments(mode), out);
  detail::check_jagged_vectors("pool_sequences", "in", in);
  detail::check_pool_sequences("pool_sequences", in.rows, in.dim(), out);
  for_each_index(exec, in.rows, detail::pooled_rows_per_piece, [=](std::int64_t row) {
    if (in.length(row) == 0)
      std::fill_n(out.row(row), out.columns(), 0.0F);
    else
      std::copy_n(in.values.row(in.end_of(row) - 1), out.columns(), out.row(row));
  });
}

template <class Offset>
void pool_sequences_backward(host_exec const& exec, matrix_view<float const> gradient, sequence_pooling mode,
                             jagged_vectors_view<float, Offset> in_gradient) {
  detail::check_sequence_pooling("pool_sequences_backward", mode);
  if (mode != sequence_pooling::last)
    return pool_segments_backward(exec, jagged_vectors_view<float const, Offset>(in_gradient), detail::as_segments(mode), gradient,
                                  in_gradient);
  detail::check_jagged_vectors("pool_sequences_backward", "in_gradient", in_gradient);
  detail::check_pool_sequences("pool_sequences_backward", in_gradient.rows, in_gradient.dim(), gradient);
  for_each_index(exec, in_gradient.rows, detail::pooled_rows_per_piece, [=](std::int64_t row) {
    for (auto i = in_gradient.begin_of(row); i < in_gradient.end_of(row); ++i)
      if (i + 1 < in_gradient.end_of(row))
        std::fill_n(in_gradient.values.row(i), in_gradient.dim(), 0.0F);
      else
        std::copy_n(gradient.row(row), in_gradient.dim(), in_gradient.values.row(i));
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
