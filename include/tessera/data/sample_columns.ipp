// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/sample_columns.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE sample_shape sample_shape::of(sample_schema const& schema) {
  sample_shape shape{static_cast<std::int64_t>(schema.dense.size()),
                     static_cast<std::int64_t>(schema.sparse.size()),
                     !schema.session.empty(),
                     !schema.time.empty(),
                     !schema.weight.empty(),
                     static_cast<std::int64_t>(schema.other_labels.size())};
  if (!schema.single.empty())
    for (auto const& name : schema.sparse) shape.single.push_back(schema.is_single(name));
  return shape;
}

namespace detail {

TESSERA_INLINE void check_columns(char const* call, sample_shape const& shape, sample_columns_view const& samples,
                                  std::vector<error_value> named) {
  if (shape.fits(samples)) return;
  named.insert(named.end(), {{"dense", samples.dense.rows()},
                             {"dense expected", shape.dense},
                             {"sparse", samples.sparse.size()},
                             {"sparse expected", shape.sparse},
                             {"sessions", samples.sessions.size()},
                             {"times", samples.times.size()},
                             {"weights", samples.weights.size()},
                             {"other labels", samples.other_labels.rows()},
                             {"samples", samples.size()}});
  throw error(errc::shape_mismatch, std::string(call) + ": samples with other columns", std::move(named));
}

}  // namespace detail

TESSERA_INLINE sample_columns::sample_columns(sample_shape shape)
    : shape_(std::move(shape)), sparse_(static_cast<std::size_t>(shape_.sparse)), rows_(sparse_.size()) {
  for (std::int64_t c = 0; c < shape_.sparse; ++c)
    if (single(c)) of(c).single_row = singles_++;
}

TESSERA_INLINE void sample_columns::append(host_exec const& exec, sample_columns_view from, std::int64_t first, std::int64_t count) {
  check(from);
  if (first < 0 || count < 0 || first > from.size() - count)
    throw error(errc::out_of_range, "sample_columns: no such samples", {{"first", first}, {"count", count}, {"samples", from.size()}});
  append(exec, {&from, 1}, count, [=](std::int64_t i) { return sample_place{0, first + i}; });
}

TESSERA_INLINE void sample_columns::append(host_exec const& exec, sample_columns_view from, vector_view<std::int64_t const> indices) {
  check(from);
  for (auto const index : indices) check(from, index);
  append(exec, {&from, 1}, indices.size(), [=](std::int64_t i) { return sample_place{0, indices[i]}; });
}

TESSERA_INLINE void sample_columns::append(host_exec const& exec, vector_view<sample_columns_view const> from,
                                           vector_view<sample_place const> places) {
  for (auto const& samples : from) check(samples);
  for (auto const& place : places) {
    if (place.source < 0 || place.source >= from.size())
      throw error(errc::out_of_range, "sample_columns: no such samples", {{"source", place.source}, {"sources", from.size()}});
    check(from[place.source], place.row);
  }
  append(exec, from, places.size(), [=](std::int64_t i) { return places[i]; });
}

TESSERA_INLINE vector_view<std::int64_t> sample_columns::ids(host_exec const& exec, std::int64_t column) {
  auto& list = of(column);
  auto const values = list.offsets[size_];
  grow(exec, list.ids, values);
  show(column);
  return {list.ids.data(), values};
}

TESSERA_INLINE void sample_columns::room(host_exec const& exec, std::int64_t column, std::int64_t values) {
  auto& list = of(column);
  if (values > list.ids.size()) list.ids.resize(exec, values);
  show(column);
}

TESSERA_INLINE void sample_columns::reserve(host_exec const& exec, std::int64_t rows) {
  if (has_room_ && rows <= capacity_) return;
  auto const capacity = capacity_ == 0 ? rows : std::max(rows, 2 * capacity_);
  auto const stride = column_stride(capacity);
  auto dense = copied_rows(exec, dense_, shape_.dense, stride);
  auto other_labels = copied_rows(exec, other_labels_, shape_.other_labels, stride);
  auto single_ids = copied_rows(exec, single_ids_, singles_, stride);
  grow_to(exec, labels_, capacity);
  if (shape_.sessions) grow_to(exec, sessions_, capacity);
  if (shape_.times) grow_to(exec, times_, capacity);
  if (shape_.weights) grow_to(exec, weights_, capacity);
  if (!shape_.single.empty() && positions_.size() < capacity + 1) {
    buffer<std::int64_t> positions(exec, capacity + 1);
    std::iota(positions.begin(), positions.end(), std::int64_t{0});
    positions_ = std::move(positions);
  }
  for (std::int64_t c = 0; c < shape_.sparse; ++c) {
    if (single(c)) continue;
    auto& offsets = of(c).offsets;
    bool const is_new = offsets.empty();
    grow_to(exec, offsets, capacity + 1);
    if (is_new) offsets[0] = 0;
  }
  dense_ = std::move(dense);
  other_labels_ = std::move(other_labels);
  single_ids_ = std::move(single_ids);
  stride_ = stride;
  capacity_ = capacity;
  has_room_ = true;
  for (std::int64_t c = 0; c < shape_.sparse; ++c) show(c);
}

TESSERA_INLINE sample_columns sorted_by(host_exec const& exec, sample_columns const& samples, vector_view<std::int64_t const> keys) {
  if (keys.size() != samples.size())
    throw error(errc::shape_mismatch, "sorted_by: a key for each sample", {{"keys", keys.size()}, {"samples", samples.size()}});
  std::vector<std::int64_t> order(static_cast<std::size_t>(keys.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [keys](std::int64_t a, std::int64_t b) { return keys[a] < keys[b]; });
  sample_columns sorted(samples.shape());
  sorted.append(exec, samples.view(), order);
  return sorted;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
