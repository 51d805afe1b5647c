// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/tensor/concat_vectors.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/select_vectors.hpp>
#include <tessera/train/session_pooling.hpp>

namespace tessera::inline TESSERA_ABI::detail {

/// A vector for each value of a batch's keys, key after key, as `sequence_lookup` writes and its backward reads them.
class key_vectors {
 public:
  key_vectors(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, std::int64_t dim)
      : memory_(exec, batch.size() * dim), matrices_(exec, batch.keys), rows_(exec, batch.keys) {
    auto const base = first_value(batch);
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      auto const values = batch.key(key);
      matrices_[key] = {memory_.data() + (values.first_value() - (values.rows == 0 ? 0 : base)) * dim, values.size(), dim};
      rows_[key] = {{memory_.data() - base * dim, base + batch.size(), dim}, values.offsets, values.rows};
    }
  }

  /// (keys,): (values of the key, dim).
  vector_view<matrix_view<float> const> matrices() const noexcept { return matrices_.view(); }
  /// The rows of some keys.
  vector_view<jagged_vectors_view<float> const> rows(std::int64_t first, std::int64_t keys) const {
    return rows_.view().slice(first, keys);
  }

 private:
  buffer<float> memory_;
  buffer<matrix_view<float>> matrices_;
  buffer<jagged_vectors_view<float>> rows_;
};

/// The sequences of a group of keys, put together row by row, and later their gradients.
struct group_sequences {
  buffer<std::int64_t> offsets;             // of the rows that are pooled
  buffer<float> vectors;                    // theirs
  buffer<float> gradients;                  // as `vectors`
  buffer<std::int64_t> of_distinct;         // offsets of the distinct rows, where those that are pooled are expanded ones
  vector_view<std::int64_t const> inverse;  // the row of each sample; empty: a row a sample
  bool is_expanded = false;

  /// `expands`: to a row a sample, where there is an inverse.
  void put_together(host_exec const& exec, vector_view<jagged_vectors_view<float> const> keys, vector_view<std::int64_t const> of_samples,
                    bool expands, std::int64_t dim) {
    buffer<jagged_vectors_view<float const>> parts(exec, keys.size());
    for (std::int64_t key = 0; key < keys.size(); ++key) parts[key] = keys[key];
    vector_view<jagged_vectors_view<float const> const> const in(parts.view());
    auto const concat = [&](buffer<std::int64_t>& to_offsets, buffer<float>& to) {
      to_offsets.resize(exec, keys[0].rows + 1);
      concat_vectors_offsets(exec, in, to_offsets.view());
      to.resize(exec, to_offsets[keys[0].rows] * dim);
      concat_vectors(exec, in, rows_in(to_offsets, to, dim));
    };
    inverse = of_samples;
    is_expanded = expands && !of_samples.empty();
    if (!is_expanded) return concat(offsets, vectors);
    buffer<float> distinct;
    concat(of_distinct, distinct);
    auto const from = rows_in(of_distinct, distinct, dim);
    offsets.resize(exec, of_samples.size() + 1);
    select_vectors_offsets(exec, from, of_samples, offsets.view());
    vectors.resize(exec, offsets[of_samples.size()] * dim);
    select_vectors(exec, from, of_samples, rows_in(offsets, vectors, dim));
  }

  std::int64_t rows() const noexcept { return offsets.size() - 1; }
  std::int64_t size() const noexcept { return offsets[rows()]; }
  shared_sequences get(std::int64_t dim) const noexcept {
    return {{{vectors.data(), size(), dim}, offsets.data(), rows()}, is_expanded ? vector_view<std::int64_t const>{} : inverse};
  }

  /// Calls f(rows of gradients): of the rows that were pooled, or summed over the samples of each distinct row.
  template <class F>
  void with_gradients(host_exec const& exec, bool of_distinct_rows, std::int64_t dim, F const& f) const {
    jagged_vectors_view<float const> const pooled{{gradients.data(), size(), dim}, offsets.data(), rows()};
    if (!is_expanded || !of_distinct_rows) return f(pooled);
    buffer<float> sums(exec, of_distinct[of_distinct.size() - 1] * dim);
    auto const to = rows_in(of_distinct, sums, dim);
    select_vectors_backward(exec, pooled, inverse, to);
    f(jagged_vectors_view<float const>(to));
  }

 private:
  static jagged_vectors_view<float> rows_in(buffer<std::int64_t> const& offsets, buffer<float>& vectors, std::int64_t dim) noexcept {
    auto const rows = offsets.size() - 1;
    return {{vectors.data(), offsets[rows], dim}, offsets.data(), rows};
  }
};

}  // namespace tessera::inline TESSERA_ABI::detail
