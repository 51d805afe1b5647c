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
#include <tessera/train/sequence_pooler.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The sequences of a sequence group for one batch, joined row by row, and later their gradients. A step calls, in this order, `lay_out`,
/// `put_together`, `get`, `make_gradients` and `hand_out`.
///
/// The vectors of a single key are looked up where they stay, and its gradients are read where they are. Where rows are joined or expanded,
/// a lookup writes into the memory of `gradients`. Gradients are then handed out in the memory of `vectors`, which nobody needs by then.
/// So a group has no more than these two buffers of vectors.
struct group_sequences {
  std::int64_t keys = 0;                        ///< keys of the group
  std::int64_t dim = 0;                         ///< elements of a vector
  keyed_jagged_view<std::int64_t const> batch;  ///< the rows of these keys, as `lay_out` got them
  buffer<std::int64_t> offsets;                 ///< (rows() + 1,): of the rows that are pooled, from 0 as all offsets here
  buffer<float> vectors;                        ///< (size(), dim): of the rows that are pooled
  buffer<float> gradients;                      ///< (size(), dim): of `vectors`
  buffer<std::int64_t> of_keys;                 ///< with several keys: offsets of their rows, one key after the other
  buffer<std::int64_t> of_distinct;             ///< where `is_expanded`: offsets of the distinct rows
  vector_view<std::int64_t const> inverse;      ///< (samples,): the row of each sample; empty: sample i has row i
  bool is_expanded = false;                     ///< whether the rows that are pooled were distinct ones, expanded to one a sample
  bool has_vectors = false;                     ///< from `put_together` to `hand_out`

  /// Makes room for the vectors of a batch; `out` (keys,) gets the matrix (values of the key, width) that each lookup shall fill.
  /// `of_samples` (samples,) says which row a sample has, or is empty where sample i has row i. Both views must outlive the step.
  /// `expands`: whether rows that samples share become one row a sample.
  void lay_out(host_exec const& exec, keyed_jagged_view<std::int64_t const> rows_of_keys, vector_view<std::int64_t const> of_samples,
               bool expands, std::int64_t width, vector_view<matrix_view<float>> out);

  /// Joins row i of every key to one row, in the order of the keys. It then expands the rows to samples, where `is_expanded`.
  /// @pre The lookups have filled the matrices that `lay_out` gave.
  void put_together(host_exec const& exec);

  /// How many rows are pooled.
  std::int64_t rows() const noexcept { return offsets.size() - 1; }
  /// How many vectors these rows have.
  std::int64_t size() const noexcept { return last_of(offsets); }
  /// What a pooling reads. It lives until `hand_out`.
  shared_sequences get() const noexcept {
    return {{{vectors.data(), size(), dim}, offsets.data(), rows()}, is_expanded ? vector_view<std::int64_t const>{} : inverse};
  }
  /// The same of samples [first, last). @pre They are all, or each has a row of its own.
  shared_sequences get(std::int64_t first, std::int64_t last) const noexcept {
    auto part = get();
    if (part.inverse.empty()) part.rows = rows_between(part.rows, first, last);
    return part;
  }

  /// The rows of vectors that are pooled, which the caller may change before. @pre has_vectors.
  jagged_vectors_view<float> vector_rows() noexcept { return rows_in(offsets, vectors); }
  /// The gradients of these rows. @pre The caller has filled what `make_gradients` gave.
  jagged_vectors_view<float> gradient_rows() noexcept { return rows_in(offsets, gradients); }
  /// Those of samples [first, last), as `get` has them.
  jagged_vectors_view<float> gradient_rows(std::int64_t first, std::int64_t last) noexcept {
    return get().inverse.empty() ? rows_between(gradient_rows(), first, last) : gradient_rows();
  }

  /// Makes room for the gradients of the vectors, (size(), dim), which the caller fills.
  void make_gradients(host_exec const& exec) { gradients.resize(exec, size() * dim); }

  /// Gives the gradients of each key's values; `out` (keys,) gets a matrix (values, dim) each, which lives until the next call.
  /// Values are those that `lay_out` saw, and gradients are summed over the samples of a row.
  /// With `by_sample`, where rows are expanded, values are those of each sample's row instead.
  /// @pre The caller has filled what `make_gradients` gave. @post The vectors are gone, and so `has_vectors` is false.
  void hand_out(host_exec const& exec, bool by_sample, vector_view<matrix_view<float const>> out);

 private:
  template <class T>
  static jagged_vectors_view<T> rows_between(jagged_vectors_view<T> rows, std::int64_t first, std::int64_t last) noexcept {
    return {rows.values, rows.offsets + first, last - first};
  }

  bool stays_in_place() const noexcept { return keys == 1 && !is_expanded; }

  static std::int64_t last_of(buffer<std::int64_t> const& offsets) noexcept { return offsets[offsets.size() - 1]; }

  // A batch may be a part of another, whose first offset is not 0.
  void take_offsets(host_exec const& exec, buffer<std::int64_t>& to) const;

  // Of a row a sample, one key after the other.
  void take_expanded_offsets(host_exec const& exec, buffer<std::int64_t>& to) const;

  jagged_vectors_view<float> rows_of_key(std::int64_t key, buffer<std::int64_t> const& starts, float* memory) const noexcept {
    auto const rows = (starts.size() - 1) / keys;
    return {{memory, last_of(starts), dim}, starts.data() + key * rows, rows};
  }
  static matrix_view<float> vectors_of(jagged_vectors_view<float> rows) { return rows.values.rows_from(rows.offsets[0], rows.size()); }
  jagged_vectors_view<float> rows_in(buffer<std::int64_t> const& starts, buffer<float>& memory) const noexcept {
    return {{memory.data(), last_of(starts), dim}, starts.data(), starts.size() - 1};
  }

  void concat(host_exec const& exec, buffer<std::int64_t>& to_offsets, buffer<float>& to);
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/train/group_sequences.ipp>
#endif
