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
#include <tessera/tensor/expand_partial.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/partial_inverse_keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind no_run_holds{
    errc::out_of_range, "expand_partial: a slice that no run holds", {"key", "sample", "begin", "length", "runs"}};

template <class Offset, class Write>
struct find_slice {  // unproven
  Offset const* offsets;
  std::int64_t const* first_rows;  // of the keys' runs, (keys + 1,)
  run_slice<Offset> const* slices;
  std::int64_t samples;
  Write write;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const key = i / samples, first = first_rows[key], last = first_rows[key + 1];
    auto const slice = slices[i];
    if (slice.length != 0 && (slice.length < 0 || first == last || slice.begin < offsets[first] || slice.begin > offsets[last] ||
                              slice.length > offsets[last] - slice.begin)) {
      missing(block, i, key, i % samples, slice.begin, slice.length, last - first);
      return write(block, i, Offset{}, 0);
    }
    write(block, i, slice.begin, static_cast<std::int64_t>(slice.length));
  }
};

template <device_execution Exec>
struct back_end<expand_partial_tag, Exec> {
  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, partial_inverse_keyed_jagged_view<T, Offset> in,
                                                                std::vector<std::string> const*, result_room room) {
    auto const n = in.samples, keys = in.keys();
    std::vector<std::int64_t> result_rows;
    for (std::int64_t key = 0; key <= keys; ++key) result_rows.push_back(key * n);
    auto const first_rows = to_device(exec, first_rows_of(in.runs));
    device_row_ranges<Offset, Offset, Exec> ranges(exec, keys * n);
    auto const write = ranges.write(exec);
    launch_for_each(
        exec, keys * n,
        find_slice<Offset, decltype(write)>{in.runs.flat().offsets, first_rows.data(), in.slices, n, write, exec.faults(no_run_holds)});
    return batch_of_ranges(exec, "expand_partial", in.runs, ranges, result_rows, room, keys * n == 0 ? 0 : -1);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
