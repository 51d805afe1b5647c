// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/bag_units.cuh>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/row_order.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind pooled_id_out_of_range{
    errc::out_of_range, "pooled_lookup: id out of range", {"feature", "table", "row", "position", "id", "rows"}};

/// What a lookup does with ids that have no row, on a device.
struct absent_ids {
  fault_reporter refuse;
  std::int64_t* count;  // or nullptr
  bool refused;

  template <class Exec>
  absent_ids(Exec const& exec, fault_kind const& kind, lookup_options const& options)
      : refuse(exec.faults(kind)), count(options.out_of_range_count), refused(options.out_of_range == out_of_range_ids::refuse) {}
};

template <class Rows>
struct pooled_part {
  bag_unit_range units;
  Rows rows;
  float* out;
  std::int64_t out_stride;
  std::int64_t feature;
  pooling mode;
  bool rows_by_four, out_by_four;
};

// A group of threads sums the rows of a bag, each thread four columns in registers, in the order of positions; `ahead` rows are under way at
// once. Per position 8 bytes of id, which a group's threads read together, and the row.
template <class Rows>
struct pool_bags_kernel {
  static constexpr int threads = bag_unit_range::threads;
  static constexpr int ahead = 4;
  using element = typename Rows::element;

  parts_on_device<pooled_part<Rows>> parts;
  batch_on_device batch;
  std::int64_t const* slots;  // one a value from the batch's first on, or nullptr: the ids
  absent_ids absent;
  fault_reporter report_decreasing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    parts.for_each_of_thread(block, [&](pooled_part<Rows> const& part, bag_unit const& unit) { pool(block, part, unit); });
  }

  template <class Block>
  TESSERA_DEVICE void pool(Block& block, pooled_part<Rows> const& part, bag_unit const& unit) const {
    auto const row = part.units.first_row + unit.bag;
    if (unit.leads && !batch.has_valid_offsets(row)) report_decreasing(block, row, row, batch.offsets[row], batch.offsets[row + 1]);
    auto const begin = batch.begin_of(row), end = batch.end_of(row);
    auto const* const slots_of = slots == nullptr ? batch.values : slots - batch.first_value();
    float sum[4] = {};
    std::int64_t lacking = 0;
    auto const column = unit.count > 0 ? unit.column : 0;  // a thread without columns reads along
    for (auto p = begin; p < end; p += ahead) {
      auto const n = end - p < ahead ? static_cast<int>(end - p) : ahead;
      std::int64_t slot[ahead];
      float weight[ahead];
      bool all_held = part.rows_by_four;
      for (int i = 0; i < ahead; ++i) {  // the first one again behind the last
        auto const from = p + (i < n ? i : 0);
        slot[i] = slots_of[from];
        weight[i] = batch.weights == nullptr ? 1.0F : batch.weights[from];
      }
      for (int i = 0; i < ahead; ++i) all_held = all_held && part.rows.holds(slot[i]);
      if (all_held) {  // reads without a branch between them, so that none waits for another
        four_elements<element> four[ahead];
        row_scale<element> scale[ahead];
        for (int i = 0; i < ahead; ++i) {
          auto const* const from = part.rows.row(slot[i]);
          scale[i] = row_scale<element>::of(from);
          four[i] = *aligned_pack<four_elements<element> const>(from + column);
        }
        for (int i = 0; i < ahead; ++i)
          if (i < n) add(sum, weight[i], scale[i], four[i]);
      } else {
        for (int i = 0; i < n; ++i)
          if (!add_one(block, part, unit, p + i, p + i - begin, slots_of[p + i], sum)) ++lacking;
      }
    }
    if (lacking > 0 && unit.leads && absent.count != nullptr) block.add(absent.count, lacking);
    auto const scale = pooling_scale(part.mode, end - begin);
    four_elements<float> pooled;
    for (int c = 0; c < 4; ++c) pooled[c] = sum[c] * scale;
    if (unit.count > 0) write_four(part.out + unit.bag * part.out_stride + unit.column, pooled, unit.count, part.out_by_four);
  }

 private:
  TESSERA_DEVICE static void add(float (&sum)[4], float weight, row_scale<element> const& scale, four_elements<element> const& four) {
    for (int c = 0; c < 4; ++c) sum[c] = multiply_add(weight, scale.value(four[c]), sum[c]);
  }

  // Adds the row of one position, or what it would begin with. False where its id has no row.
  template <class Block>
  TESSERA_DEVICE bool add_one(Block& block, pooled_part<Rows> const& part, bag_unit const& unit, std::int64_t position,
                              std::int64_t place_in_bag, std::int64_t slot, float (&sum)[4]) const {
    auto const weight = batch.weights == nullptr ? 1.0F : batch.weights[position];
    if (part.rows.holds(slot)) {
      auto const* const from = part.rows.row(slot);
      add(sum, weight, row_scale<element>::of(from), read_four(from + unit.column, unit.count, part.rows_by_four && unit.count > 0));
      return true;
    }
    auto const id = batch.values[position];
    if constexpr (!Rows::slots_are_ids) {
      if (part.rows.in_range(id)) {
        add(sum, weight, initial_scale<element>(part.rows.options()), initial_four<element>(part.rows.options(), id, unit.column));
        return true;
      }
    }
    if (unit.leads && absent.refused)
      absent.refuse(block, position, part.feature, part.rows.options().id.value, unit.bag, place_in_bag, id, part.rows.options().rows);
    return false;
  }
};

/// Pools the keys that are not sequences. `slots` are those of `pool_bags_kernel`.
template <class Exec, class Store, class Feature>
void pool_on_device(Exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features,
                    keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                    lookup_options const& options) {
  using rows_type = decltype(tables[0].device_rows());
  launch_parts<pooled_part<rows_type>> parts;
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    if (is_sequence(features[key])) continue;
    auto const& table = tables[features[key].table];
    auto const units = bag_unit_range::of(batch.first_row[key] - batch.first_row[0], batch.rows(key), table.dim(), parts.blocks());
    if (units.bags == 0) continue;
    auto const rows = table.device_rows();
    parts.add({units, rows, out[key].data(), out[key].stride(), feature_number(features[key], key), features[key].pooling,
               moves_by_four(rows.row(0), table.dim(), table.dim()), moves_by_four(out[key].data(), table.dim(), out[key].stride())});
  }
  if (parts.count() == 0) return;
  parts.on_device(exec, [&](auto const& device_parts) {
    exec.launch({.blocks = blocks_for(parts.blocks(), 1)},
                pool_bags_kernel<rows_type>{device_parts, batch_on_device(batch), slots, absent_ids(exec, pooled_id_out_of_range, options),
                                            exec.faults(decreasing_offsets)});
  });
}

template <device_execution Exec>
struct back_end<pooled_lookup_tag, Exec> {
  template <class Store>
  static void run(Exec const& exec, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                  keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                  lookup_options const& options, pooled_argmax*) {  // nothing pools by maximum here
    pool_on_device(exec, tables, features, batch, slots, out, options);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
