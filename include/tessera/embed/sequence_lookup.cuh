// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/bag_units.cuh>
#include <tessera/embed/pooled_lookup.cuh>
#include <tessera/embed/sequence_lookup.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind sequence_id_out_of_range{
    errc::out_of_range, "sequence_lookup: id out of range", {"feature", "table", "position", "id", "rows"}};
inline constexpr fault_kind sequence_matrix_too_small{
    errc::shape_mismatch, "sequence_lookup: a matrix does not fit its feature", {"feature", "rows", "rows expected"}};

struct check_offsets {
  batch_on_device batch;
  fault_reporter report_decreasing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t row) const {
    if (!batch.has_valid_offsets(row)) report_decreasing(block, row, row, batch.offsets[row], batch.offsets[row + 1]);
  }
};

template <class Rows>
struct sequence_part {
  bag_unit_range units;  // a bag: one row of the matrix
  Rows rows;
  std::int64_t key_rows;  // of the key, in the batch
  float* out;
  std::int64_t out_stride;
  std::int64_t feature;
  bool rows_by_four, out_by_four;
};

// Whether a key's matrix has a row for each of its values.
template <class Rows>
struct check_matrix_rows {
  sequence_part<Rows> const* parts;
  batch_on_device batch;
  fault_reporter too_small;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const& part = parts[i];
    auto const count = batch.offsets[part.units.first_row + part.key_rows] - batch.offsets[part.units.first_row];
    if (count > part.units.bags) too_small(block, i, part.feature, part.units.bags, count);
  }
};

// A group of threads copies the row of a value, each thread four columns.
template <class Rows>
struct copy_rows_kernel {
  static constexpr int threads = bag_unit_range::threads;
  using element = typename Rows::element;

  parts_on_device<sequence_part<Rows>> parts;
  batch_on_device batch;
  std::int64_t const* slots;  // one a value from the batch's first on, or nullptr: the ids
  absent_ids absent;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    parts.for_each_of_thread(block, [&](sequence_part<Rows> const& part, bag_unit const& unit) { copy(block, part, unit); });
  }

  template <class Block>
  TESSERA_DEVICE void copy(Block& block, sequence_part<Rows> const& part, bag_unit const& unit) const {
    auto const first = batch.offsets[part.units.first_row], count = batch.offsets[part.units.first_row + part.key_rows] - first;
    auto const p = first + unit.bag;
    if (unit.bag >= count || first < 0 || (batch.room >= 0 && p >= batch.room)) return;
    auto const slot = slots == nullptr ? batch.values[p] : slots[p - batch.first_value()];
    four_elements<element> four{};
    row_scale<element> scale{};
    bool may_appear = false;
    if constexpr (!Rows::slots_are_ids) may_appear = part.rows.in_range(batch.values[p]);
    if (part.rows.holds(slot)) {
      auto const* const row = part.rows.row(slot);
      scale = row_scale<element>::of(row);
      four = read_four(row + unit.column, unit.count, part.rows_by_four && unit.count > 0);
    } else if (may_appear) {
      scale = initial_scale<element>(part.rows.options());
      four = initial_four<element>(part.rows.options(), batch.values[p], unit.column);
    } else if (unit.leads) {
      if (absent.refused)
        absent.refuse(block, p, part.feature, part.rows.options().id.value, unit.bag, batch.values[p], part.rows.options().rows);
      if (absent.count != nullptr) block.add(absent.count, std::int64_t{1});
    }
    four_elements<float> vector;
    for (int c = 0; c < 4; ++c) vector[c] = scale.value(four[c]);
    if (unit.count > 0) write_four(part.out + unit.bag * part.out_stride + unit.column, vector, unit.count, part.out_by_four);
  }
};

/// Copies the rows of the keys that are sequences. `slots` are those of `copy_rows_kernel`.
template <class Exec, class Store, class Feature>
void read_sequences_on_device(Exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features,
                              keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
                              vector_view<matrix_view<float> const> out, lookup_options const& options) {
  using rows_type = decltype(tables[0].device_rows());
  launch_parts<sequence_part<rows_type>> parts;
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    if (!is_sequence(features[key]) || batch.rows(key) == 0) continue;
    auto const& table = tables[table_of(features[key])];
    auto const& matrix = out[key];
    auto const units = bag_unit_range::of(batch.first_row[key] - batch.first_row[0], matrix.rows(), table.dim(), parts.blocks());
    auto const rows = table.device_rows();
    parts.add({units, rows, batch.rows(key), matrix.data(), matrix.stride(), feature_number(features[key], key),
               moves_by_four(rows.row(0), table.dim(), table.dim()), moves_by_four(matrix.data(), table.dim(), matrix.stride())});
  }
  if (parts.count() == 0) return;
  parts.on_device(exec, [&](auto const& device_parts) {
    batch_on_device const rows(batch);
    launch_for_each(exec, rows.rows, check_offsets{rows, exec.faults(decreasing_offsets)});
    launch_for_each(exec, device_parts.count,
                    check_matrix_rows<rows_type>{device_parts.parts, rows, exec.faults(sequence_matrix_too_small)});
    if (parts.blocks() > 0)
      exec.launch({.blocks = blocks_for(parts.blocks(), 1)},
                  copy_rows_kernel<rows_type>{device_parts, rows, slots, absent_ids(exec, sequence_id_out_of_range, options)});
  });
}

template <device_execution Exec>
struct back_end<sequence_lookup_tag, Exec> {
  // How many values a key has, a device alone knows: what its matrix has no row for is left out, and told.
  static std::int64_t rows_expected(keyed_jagged_view<std::int64_t const>, std::int64_t, matrix_view<float const> matrix) {
    return matrix.rows();
  }

  template <class Store>
  static void run(Exec const& exec, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                  keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                  lookup_options const& options) {
    read_sequences_on_device(exec, tables, features, batch, slots, out, options);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
