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
  std::int64_t dim = 0;                         // of the vectors
  keyed_jagged_view<std::int64_t const> batch;  // its keys, as they were laid out
  buffer<std::int64_t> offsets;                 // of the rows that are pooled, from 0 as all here
  buffer<float> vectors;                        // theirs
  buffer<float> gradients;                      // as `vectors`
  buffer<std::int64_t> of_keys;                 // of several keys: offsets of the rows of one key after the other
  buffer<std::int64_t> of_distinct;             // offsets of the distinct rows, where those that are pooled are expanded ones
  vector_view<std::int64_t const> inverse;      // the row of each sample; empty: a row a sample
  bool is_expanded = false;
  bool has_vectors = false;  // no longer when gradients have been handed out

  /// Makes room for the vectors of a group's keys; `out` (keys,): where those of each are to be looked up. `expands`: to a row a sample, where
  /// there is an inverse.
  void lay_out(host_exec const& exec, keyed_jagged_view<std::int64_t const> rows_of_keys, vector_view<std::int64_t const> of_samples,
               bool expands, std::int64_t width, vector_view<matrix_view<float>> out) {
    batch = rows_of_keys;
    keys = batch.keys;
    dim = width;
    inverse = of_samples;
    is_expanded = expands && !of_samples.empty();
    has_vectors = false;
    auto& starts = keys > 1 ? of_keys : is_expanded ? of_distinct : offsets;
    take_offsets(exec, starts);
    auto& memory = stays_in_place() ? vectors : gradients;
    memory.resize(exec, last_of(starts) * dim);
    for (std::int64_t key = 0; key < keys; ++key) out[key] = vectors_of(rows_of_key(key, starts, memory.data()));
  }

  /// Makes one row of each key's, once they are looked up.
  void put_together(host_exec const& exec) {
    if (keys > 1 && !is_expanded) concat(exec, offsets, vectors);
    if (is_expanded) {
      buffer<float> distinct;
      if (keys > 1) concat(exec, of_distinct, distinct);
      auto const from = rows_in(of_distinct, keys > 1 ? distinct : gradients);
      offsets.resize(exec, inverse.size() + 1);
      select_vectors_offsets(exec, from, inverse, offsets.view());
      vectors.resize(exec, last_of(offsets) * dim);
      select_vectors(exec, from, inverse, rows_in(offsets, vectors));
    }
    has_vectors = true;
  }

  std::int64_t rows() const noexcept { return offsets.size() - 1; }
  std::int64_t size() const noexcept { return last_of(offsets); }
  shared_sequences get() const noexcept {
    return {{{vectors.data(), size(), dim}, offsets.data(), rows()}, is_expanded ? vector_view<std::int64_t const>{} : inverse};
  }

  /// Room for the gradients of the vectors, to be filled.
  matrix_view<float> make_gradients(host_exec const& exec) {
    gradients.resize(exec, size() * dim);
    return {gradients.data(), size(), dim};
  }

  /// The gradients of each key's values, `out` (keys,): those of each sample's row where they are to be `by_sample`, else of the rows that
  /// were laid out, summed over the samples of each. They live until the next call; the vectors are no more.
  void hand_out(host_exec const& exec, bool by_sample, vector_view<matrix_view<float const>> out) {
    has_vectors = false;
    jagged_vectors_view<float const> whole = rows_in(offsets, gradients);
    buffer<float> distinct;
    if (is_expanded && !by_sample) {
      auto& to = keys > 1 ? distinct : vectors;
      to.resize(exec, last_of(of_distinct) * dim);
      auto const of_rows = rows_in(of_distinct, to);
      select_vectors_backward(exec, whole, inverse, of_rows);
      whole = of_rows;
    }
    if (keys == 1) {
      out[0] = whole.values;
      return;
    }
    if (is_expanded && by_sample)
      take_expanded_offsets(exec, of_keys);
    else
      take_offsets(exec, of_keys);
    vectors.resize(exec, last_of(of_keys) * dim);
    buffer<jagged_vectors_view<float>> parts(exec, keys);
    for (std::int64_t key = 0; key < keys; ++key) {
      parts[key] = rows_of_key(key, of_keys, vectors.data());
      out[key] = vectors_of(parts[key]);
    }
    split_vectors(exec, whole, vector_view<jagged_vectors_view<float> const>(parts.view()));
  }

 private:
  bool stays_in_place() const noexcept { return keys == 1 && !is_expanded; }

  static std::int64_t last_of(buffer<std::int64_t> const& offsets) noexcept { return offsets[offsets.size() - 1]; }

  // A batch may be a part of another, whose first offset is not 0.
  void take_offsets(host_exec const& exec, buffer<std::int64_t>& to) const {
    constexpr std::int64_t offsets_per_piece = 1 << 14;
    auto const from = batch.flat();
    to.resize(exec, from.rows + 1);
    to[0] = 0;
    for_each_index(exec, from.rows, offsets_per_piece, [&](std::int64_t row) { to[row + 1] = from.end_of(row) - from.offsets[0]; });
  }

  // Of a row a sample, one key after the other.
  void take_expanded_offsets(host_exec const& exec, buffer<std::int64_t>& to) const {
    auto const samples = inverse.size();
    to.resize(exec, keys * samples + 1);
    std::int64_t sum = 0;
    for (std::int64_t key = 0; key < keys; ++key) {
      auto const rows = batch.key(key);
      for (std::int64_t i = 0; i < samples; ++i) {
        to[key * samples + i] = sum;
        sum += rows.length(inverse[i]);
      }
    }
    to[keys * samples] = sum;
  }

  jagged_vectors_view<float> rows_of_key(std::int64_t key, buffer<std::int64_t> const& starts, float* memory) const noexcept {
    auto const rows = (starts.size() - 1) / keys;
    return {{memory, last_of(starts), dim}, starts.data() + key * rows, rows};
  }
  static matrix_view<float> vectors_of(jagged_vectors_view<float> rows) { return rows.values.rows_from(rows.offsets[0], rows.size()); }
  jagged_vectors_view<float> rows_in(buffer<std::int64_t> const& starts, buffer<float>& memory) const noexcept {
    return {{memory.data(), last_of(starts), dim}, starts.data(), starts.size() - 1};
  }

  void concat(host_exec const& exec, buffer<std::int64_t>& to_offsets, buffer<float>& to) {
    buffer<jagged_vectors_view<float const>> parts(exec, keys);
    for (std::int64_t key = 0; key < keys; ++key) parts[key] = rows_of_key(key, of_keys, gradients.data());
    vector_view<jagged_vectors_view<float const> const> const in(parts.view());
    to_offsets.resize(exec, in[0].rows + 1);
    concat_vectors_offsets(exec, in, to_offsets.view());
    to.resize(exec, last_of(to_offsets) * dim);
    concat_vectors(exec, in, rows_in(to_offsets, to));
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
