// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/permute_keys.hpp>
#include <tessera/tensor/row_copies.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <device_execution Exec>
struct back_end<permute_keys_tag, Exec> {
  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                vector_view<std::int64_t const> order, result_room room) {
    check_order(in.keys, order);
    using value = std::remove_const_t<T>;
    std::vector<row_run<value, Offset>> runs;
    std::vector<char> seen(static_cast<std::size_t>(in.keys), 0);
    bool again = false;
    for (auto const key : order) {
      runs.push_back({in.key(key), in.weights});
      again = again || seen[static_cast<std::size_t>(key)]++ != 0;
    }
    return batch_of_runs<value, Offset>(exec, "permute_keys", runs, order.size(), room, again ? -1 : in.room);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
