// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind no_distinct_row{errc::out_of_range, "expand: no such row", {"key", "sample", "row", "rows"}};

template <class Offset, class Write>
struct find_distinct_row {  // unproven
  Offset const* offsets;
  std::int64_t const* first_rows;       // (keys + 1,)
  std::int64_t const* const* inverses;  // (keys,), nullptr: sample i has row i
  std::int64_t samples;
  Write write;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const key = i / samples, sample = i % samples;
    auto const row = inverses[key] == nullptr ? sample : inverses[key][sample];
    auto const first = first_rows[key], rows = first_rows[key + 1] - first;
    if (row < 0 || row >= rows) {
      missing(block, i, key, sample, row, rows);
      return write(block, i, Offset{}, 0);
    }
    auto const begin = offsets[first + row];
    write(block, i, begin, static_cast<std::int64_t>(offsets[first + row + 1]) - static_cast<std::int64_t>(begin));
  }
};

template <device_execution Exec>
struct back_end<expand_tag, Exec> {
  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                                std::vector<std::string> const*, result_room room) {
    auto const n = in.samples, keys = in.keys();
    std::vector<std::int64_t const*> inverses;
    std::vector<std::int64_t> result_rows{0};
    for (std::int64_t key = 0; key < keys; ++key) {
      inverses.push_back(in.inverse(key).data());
      result_rows.push_back(result_rows.back() + n);
    }
    auto const inverses_there = to_device(exec, inverses);
    auto const first_rows = to_device(exec, first_rows_of(in.distinct));
    device_row_ranges<Offset, Offset, Exec> ranges(exec, keys * n);
    auto const write = ranges.write(exec);
    launch_for_each(exec, keys * n,
                    find_distinct_row<Offset, decltype(write)>{in.distinct.flat().offsets, first_rows.data(), inverses_there.data(), n,
                                                               write, exec.faults(no_distinct_row)});
    return batch_of_ranges(exec, "expand", in.distinct, ranges, result_rows, room, keys * n == 0 ? 0 : -1);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
