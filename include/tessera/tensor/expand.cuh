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
#include <tessera/tensor/rows_from.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind no_distinct_row{errc::out_of_range, "expand: no such row", {"key", "sample", "row", "rows"}};

template <device_execution Exec>
struct back_end<expand_tag, Exec> {
  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                                std::vector<std::string> const*, result_room room) {
    std::vector<std::int64_t const*> inverses;
    for (std::int64_t key = 0; key < in.keys(); ++key) inverses.push_back(in.inverse(key).data());
    auto const device_inverses = to_device(exec, inverses);
    auto const first_rows = placed_numbers(exec, first_rows_view(in.distinct));
    listed_row<Offset> const source{
        {in.distinct.offsets, first_rows.data()}, device_inverses.data(), in.samples, exec.faults(no_distinct_row)};
    return rows_from(exec, in.distinct, std::vector(inverses.size(), in.samples), source, {room, "expand"});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
