// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/distinct_rows.cuh>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>
#include <tessera/tensor/rows_from.cuh>
#include <tessera/tensor/select_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind no_row{errc::out_of_range, "select_rows: no such row", {"position", "index", "rows"}};
inline constexpr fault_kind no_sample{errc::out_of_range, "select_rows: no such sample", {"position", "index", "samples"}};
inline constexpr fault_kind no_row_of_inverse{
    errc::out_of_range, "select_rows: an inverse names no row", {"group", "sample", "row", "rows"}};
inline constexpr fault_kind no_row_of_key{errc::out_of_range, "select_rows: no such row", {"key", "position", "index", "rows"}};

// Row i of the result is row indices[i]; one of no values where there is none.
template <class Offset>
struct selected_row {
  Offset const* offsets;
  std::int64_t rows;
  std::int64_t const* indices;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE value_range<> operator()(Block& block, std::int64_t i) const {
    auto const index = indices[i];
    if (index >= 0 && index < rows)
      return {offsets[index], static_cast<std::int64_t>(offsets[index + 1]) - static_cast<std::int64_t>(offsets[index])};
    missing(block, i, i, index, rows);
    return {};
  }
};

/// A group of an IKJT: where its rows are counted among those of all groups.
struct selected_group {
  std::int64_t const* inverse;
  std::int64_t rows, first;
};

// Which row of its group a selected sample has, or -1, and of each row the first position that has it.
struct take_sample {
  selected_group const* groups;
  std::int64_t samples;
  std::int64_t const* indices;
  std::int64_t count;
  std::int64_t* rows;            // (groups, count)
  std::int64_t* first_position;  // of each row of each group
  fault_reporter missing, unnamed;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const number = i / count, position = i % count, index = indices[position];
    auto const& group = groups[number];
    rows[i] = -1;
    if (index < 0 || index >= samples) return missing(block, i, position, index, samples);
    auto const row = group.inverse[index];
    if (row < 0 || row >= group.rows) return unnamed(block, i, number, index, row, group.rows);
    rows[i] = row;
    block.minimum(first_position + group.first + row, position);
  }
};

struct lead_sample {
  selected_group const* groups;
  std::int64_t const* rows;
  std::int64_t const* first_position;
  std::int64_t count;
  std::int64_t* leaders;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    leaders[i] = rows[i] < 0 ? i % count : first_position[groups[i / count].first + rows[i]];
  }
};

template <device_execution Exec>
struct back_end<select_rows_tag, Exec> {
  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, jagged_view<T, Offset> in,
                                                          vector_view<std::int64_t const> indices, result_room room) {
    return rows_from(exec, in, indices.size(), selected_row<Offset>{in.offsets, in.rows, indices.data(), exec.faults(no_row)},
                     {room, "select_rows"});
  }

  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                vector_view<std::int64_t const> indices, std::vector<std::string> const*,
                                                                result_room room) {
    auto const n = indices.size();
    auto const first_rows = placed_numbers(exec, first_rows_view(in));
    auto const lists = to_device(exec, std::vector(static_cast<std::size_t>(in.keys), indices.data()));
    listed_row<Offset> const source{{in.offsets, first_rows.data()}, lists.data(), n, exec.faults(no_row_of_key)};
    return rows_from(exec, in, std::vector(static_cast<std::size_t>(in.keys), n), source, {room, "select_rows"});
  }

  template <class T, class Offset>
  static inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                                        vector_view<std::int64_t const> indices,
                                                                        std::vector<std::string> const*, result_room room) {
    auto const n = indices.size(), all = in.groups.size() * n;
    std::vector<selected_group> groups;
    std::vector<std::int64_t> keys_per_group;
    std::int64_t distinct = 0;
    for (auto const& group : in.groups) {
      groups.push_back({group.inverse, in.rows(group), distinct});
      keys_per_group.push_back(group.keys);
      distinct += in.rows(group);
    }
    auto const device_groups = to_device(exec, groups);
    buffer<std::int64_t, Exec> rows(exec, all), leaders(exec, all), first_position(exec, distinct);
    exec.fill(first_position.data(), 0x7F, static_cast<std::size_t>(distinct) * sizeof(std::int64_t));
    launch_for_each(exec, all,
                    take_sample{device_groups.data(), in.samples, indices.data(), n, rows.data(), first_position.data(),
                                exec.faults(no_sample), exec.faults(no_row_of_inverse)});
    launch_for_each(exec, all, lead_sample{device_groups.data(), rows.data(), first_position.data(), n, leaders.data()});
    return distinct_batch(exec, "select_rows", in.distinct, n, keys_per_group, sample_sources{leaders.data(), rows.data(), indices.data()},
                          exec.faults(no_row_of_key), room);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
