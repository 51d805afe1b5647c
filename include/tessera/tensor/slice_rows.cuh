// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>
#include <tessera/tensor/slice_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <device_execution Exec>
struct back_end<slice_rows_tag, Exec> {
  template <class T, class Offset, class Range>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, keyed_jagged_view<T, Offset> in, Range const& range,
                                                                std::vector<std::string> const* names, result_room room) {
    std::vector<row_run<std::remove_const_t<T>, Offset>> runs(static_cast<std::size_t>(in.keys));
    slices_of(in, range, names, vector_view<row_run<std::remove_const_t<T>, Offset>>(runs));
    return batch_of_runs<std::remove_const_t<T>, Offset>(exec, "slice_rows", runs, in.keys, room, in.room);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
