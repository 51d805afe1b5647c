// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/concat_vectors.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/select_vectors.hpp>
#include <tessera/train/session_pooling.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The sequences of a group of keys, put together row by row, and later their gradients. A single key's vectors are looked up where they stay,
/// and its gradients read where they are. Where rows are put together or expanded, vectors are first looked up into the memory of the gradients
/// to come, and gradients handed out in that of the vectors, which nobody needs by then: a group has no more than these two.
struct group_sequences {
  std::int64_t keys = 0;
  buffer<std::int64_t> offsets;             // of the rows that are pooled, from 0 as all here
  buffer<float> vectors;                    // theirs
  buffer<float> gradients;                  // as `vectors`
  buffer<std::int64_t> of_keys;             // of several keys: offsets of the rows of one key after the other
  buffer<std::int64_t> of_distinct;         // offsets of the distinct rows, where those that are pooled are expanded ones
  vector_view<std::int64_t const> inverse;  // the row of each sample; empty: a row a sample
  bool is_expanded = false;
  bool has_vectors = false;  // no longer when gradients have been handed out

  /// Makes room for the vectors of a group's keys; `out` (keys,): where those of each are to be looked up. `expands`: to a row a sample, where
  /// there is an inverse.
  void lay_out(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, vector_view<std::int64_t const> of_samples, bool expands,
               std::int64_t dim, vector_view<matrix_view<float>> out) {
    keys = batch.keys;
    inverse = of_samples;
    is_expanded = expands && !of_samples.empty();
    has_vectors = false;
    auto& starts = keys > 1 ? of_keys : is_expanded ? of_distinct : offsets;
    take_offsets(exec, batch, starts);
    auto& memory = stays_in_place() ? vectors : gradients;
    memory.resize(exec, last_of(starts) * dim);
    for (std::int64_t key = 0; key < keys; ++key) out[key] = vectors_of(rows_of_key(key, starts, memory.data(), dim));
  }

  /// Makes one row of each key's, once they are looked up.
  void put_together(host_exec const& exec, std::int64_t dim) {
    if (keys > 1 && !is_expanded) concat(exec, offsets, vectors, dim);
    if (is_expanded) {
      buffer<float> distinct;
      if (keys > 1) concat(exec, of_distinct, distinct, dim);
      auto const from = rows_in(of_distinct, keys > 1 ? distinct : gradients, dim);
      offsets.resize(exec, inverse.size() + 1);
      select_vectors_offsets(exec, from, inverse, offsets.view());
      vectors.resize(exec, last_of(offsets) * dim);
      select_vectors(exec, from, inverse, rows_in(offsets, vectors, dim));
    }
    has_vectors = true;
  }

  std::int64_t rows() const noexcept { return offsets.size() - 1; }
  std::int64_t size() const noexcept { return last_of(offsets); }
  shared_sequences get(std::int64_t dim) const noexcept {
    return {{{vectors.data(), size(), dim}, offsets.data(), rows()}, is_expanded ? vector_view<std::int64_t const>{} : inverse};
  }

  /// The gradients of each key's values: `batch` and `out` (keys,). `sums`: of the batch that was laid out, summed over the samples of each
  /// distinct row; else of the rows that were pooled, which are the batch's then. They live until the next call; the vectors are no more.
  void hand_out(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, bool sums, std::int64_t dim,
                vector_view<matrix_view<float const>> out) {
    has_vectors = false;
    jagged_vectors_view<float const> whole = rows_in(offsets, gradients, dim);
    buffer<float> distinct;
    if (is_expanded && sums) {
      auto& to = keys > 1 ? distinct : vectors;
      to.resize(exec, last_of(of_distinct) * dim);
      auto const of_rows = rows_in(of_distinct, to, dim);
      select_vectors_backward(exec, whole, inverse, of_rows);
      whole = of_rows;
    }
    if (keys == 1) {
      out[0] = whole.values;
      return;
    }
    take_offsets(exec, batch, of_keys);
    vectors.resize(exec, last_of(of_keys) * dim);
    buffer<jagged_vectors_view<float>> parts(exec, keys);
    for (std::int64_t key = 0; key < keys; ++key) {
      parts[key] = rows_of_key(key, of_keys, vectors.data(), dim);
      out[key] = vectors_of(parts[key]);
    }
    split_vectors(exec, whole, vector_view<jagged_vectors_view<float> const>(parts.view()));
  }

 private:
  bool stays_in_place() const noexcept { return keys == 1 && !is_expanded; }

  static std::int64_t last_of(buffer<std::int64_t> const& offsets) noexcept { return offsets[offsets.size() - 1]; }

  // A batch may be a part of another, whose first offset is not 0.
  static void take_offsets(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, buffer<std::int64_t>& to) {
    constexpr std::int64_t offsets_per_piece = 1 << 14;
    auto const from = batch.flat();
    to.resize(exec, from.rows + 1);
    to[0] = 0;
    for_each_index(exec, from.rows, offsets_per_piece, [&](std::int64_t row) { to[row + 1] = from.end_of(row) - from.offsets[0]; });
  }

  jagged_vectors_view<float> rows_of_key(std::int64_t key, buffer<std::int64_t> const& starts, float* memory,
                                         std::int64_t dim) const noexcept {
    auto const rows = (starts.size() - 1) / keys;
    return {{memory, last_of(starts), dim}, starts.data() + key * rows, rows};
  }
  static matrix_view<float> vectors_of(jagged_vectors_view<float> rows) { return rows.values.rows_from(rows.offsets[0], rows.size()); }
  static jagged_vectors_view<float> rows_in(buffer<std::int64_t> const& offsets, buffer<float>& vectors, std::int64_t dim) noexcept {
    return {{vectors.data(), last_of(offsets), dim}, offsets.data(), offsets.size() - 1};
  }

  void concat(host_exec const& exec, buffer<std::int64_t>& to_offsets, buffer<float>& to, std::int64_t dim) {
    buffer<jagged_vectors_view<float const>> parts(exec, keys);
    for (std::int64_t key = 0; key < keys; ++key) parts[key] = rows_of_key(key, of_keys, gradients.data(), dim);
    vector_view<jagged_vectors_view<float const> const> const in(parts.view());
    to_offsets.resize(exec, in[0].rows + 1);
    concat_vectors_offsets(exec, in, to_offsets.view());
    to.resize(exec, last_of(to_offsets) * dim);
    concat_vectors(exec, in, rows_in(to_offsets, to, dim));
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
