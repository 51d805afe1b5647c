// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>
#include <tessera/tensor/truncate_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <class Offset, class Write>
struct cut_row {  // unproven
  Offset const* offsets;
  std::int64_t const* first_rows;  // (keys + 1,), or nullptr: no keys
  std::int64_t const* most_of_key;
  std::int64_t keys;
  std::int64_t most;  // where there are no keys
  kept_values kept;
  Write write;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t row) const {
    auto const limit = first_rows == nullptr ? most : most_of_key[range_of(first_rows, keys, row)];
    auto const begin = offsets[row], end = offsets[row + 1];
    auto const length = lesser(static_cast<std::int64_t>(end) - static_cast<std::int64_t>(begin), limit);
    write(block, row, kept_begin(begin, end, static_cast<Offset>(length), kept), length);
  }
};

template <device_execution Exec>
struct back_end<truncate_rows_tag, Exec> {
  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, jagged_view<T, Offset> in, std::int64_t most, kept_values kept,
                                                          result_room room) {
    auto const ranges = cut(exec, in, nullptr, nullptr, 0, most, kept);
    return rows_of_ranges<std::remove_const_t<T>>(exec, "truncate_rows", in.values, ranges, room, bound_of(in.rows, most, in.room));
  }

  template <class T, class Offset, class Most>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, keyed_jagged_view<T, Offset> in, Most const& most,
                                                                kept_values kept, result_room room) {
    std::vector<std::int64_t> limits;
    for (std::int64_t key = 0; key < in.keys; ++key) limits.push_back(most(key));
    auto const largest = limits.empty() ? 0 : *std::max_element(limits.begin(), limits.end());
    auto const rows = first_rows_of(in);
    auto const first_rows = to_device(exec, rows);
    auto const most_of_key = to_device(exec, limits);
    auto const ranges = cut(exec, in.flat(), first_rows.data(), most_of_key.data(), in.keys, 0, kept);
    return batch_of_ranges(exec, "truncate_rows", in, ranges, rows, room, bound_of(in.rows(), largest, in.room));
  }

 private:
  // Values at most, or negative where the input does not say its room.
  static std::int64_t bound_of(std::int64_t rows, std::int64_t most, std::int64_t room) noexcept {
    return rows == 0 || most <= room / rows ? rows * most : room;
  }

  template <class T, class Offset>
  static auto cut(Exec const& exec, jagged_view<T, Offset> in, std::int64_t const* first_rows, std::int64_t const* most_of_key,
                  std::int64_t keys, std::int64_t most, kept_values kept) {
    device_row_ranges<Offset, Offset, Exec> ranges(exec, in.rows);
    auto const write = ranges.write(exec);
    launch_for_each(exec, in.rows, cut_row<Offset, decltype(write)>{in.offsets, first_rows, most_of_key, keys, most, kept, write});
    return ranges;
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
