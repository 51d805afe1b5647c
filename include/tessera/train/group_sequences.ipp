// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/train/group_sequences.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void group_sequences::lay_out(host_exec const& exec, keyed_jagged_view<std::int64_t const> rows_of_keys,
                                             vector_view<std::int64_t const> of_samples, bool expands, std::int64_t width,
                                             vector_view<matrix_view<float>> out) {
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

TESSERA_INLINE void group_sequences::put_together(host_exec const& exec) {
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

TESSERA_INLINE void group_sequences::hand_out(host_exec const& exec, bool by_sample, vector_view<matrix_view<float const>> out) {
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

TESSERA_INLINE void group_sequences::take_offsets(host_exec const& exec, buffer<std::int64_t>& to) const {
  constexpr std::int64_t offsets_per_piece = 1 << 14;
  auto const from = batch.flat();
  to.resize(exec, from.rows + 1);
  to[0] = 0;
  for_each_index(exec, from.rows, offsets_per_piece, [&](std::int64_t row) { to[row + 1] = from.end_of(row) - from.offsets[0]; });
}

TESSERA_INLINE void group_sequences::take_expanded_offsets(host_exec const& exec, buffer<std::int64_t>& to) const {
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

TESSERA_INLINE void group_sequences::concat(host_exec const& exec, buffer<std::int64_t>& to_offsets, buffer<float>& to) {
  buffer<jagged_vectors_view<float const>> parts(exec, keys);
  for (std::int64_t key = 0; key < keys; ++key) parts[key] = rows_of_key(key, of_keys, gradients.data());
  vector_view<jagged_vectors_view<float const> const> const in(parts.view());
  to_offsets.resize(exec, in[0].rows + 1);
  concat_vectors_offsets(exec, in, to_offsets.view());
  to.resize(exec, last_of(to_offsets) * dim);
  concat_vectors(exec, in, rows_in(to_offsets, to));
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
