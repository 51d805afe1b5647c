// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Puts keys into another order: key i of the result is key order[i] of the input. Weights travel with the values.
///
/// `order` (keys of the result,), the host's, may leave keys out, and name one again; the result is unnamed. The result's memory is
/// `exec`'s. On a device it has the input's room. Where a key comes again, or the input gives no room, the call waits for the number of
/// values unless `room` gives one. @post with inverse[order[i]] = i, permute_keys(permute_keys(x, order), inverse) == x; of a gradient that
/// is the backward of a permutation, else `gather_backward`. @throws tessera::error out_of_range naming a position whose key is none, or
/// values that an Offset does not count.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> permute_keys(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                vector_view<std::int64_t const> order, result_room room = {});

/// Puts the keys of a batch with names into another order; the names go along. @throws tessera::error invalid_argument, too, for a named
/// key twice.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> permute_keys(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::int64_t const> order,
                                           result_room room = {});

namespace detail {

struct permute_keys_tag {};

inline void check_order(std::int64_t keys, vector_view<std::int64_t const> order) {
  for (std::int64_t i = 0; i < order.size(); ++i)
    if (order[i] < 0 || order[i] >= keys)
      throw error(errc::out_of_range, "permute_keys: no such key", {{"position", i}, {"key", order[i]}, {"keys", keys}});
}

template <>
struct back_end<permute_keys_tag, host_exec> {
  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in,
                                                          vector_view<std::int64_t const> order, result_room room) {
    check_rows("permute_keys", "in", in);
    check_order(in.keys, order);
    buffer<row_run<std::remove_const_t<T>, Offset>> runs(exec, order.size());
    for (std::int64_t i = 0; i < order.size(); ++i) runs[i] = {in.key(order[i]), in.weights};
    return batch_of_runs(exec, "permute_keys", runs.view(), order.size(), room);
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> permute_keys(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                vector_view<std::int64_t const> order, result_room room) {
  return detail::back_end<detail::permute_keys_tag, Exec>::run(exec, in, order, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> permute_keys(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::int64_t const> order,
                                           result_room room) {
  auto result = detail::back_end<detail::permute_keys_tag, Exec>::run(exec, in.view(), order, room);
  std::vector<std::string> names;
  if (!in.keys().empty())
    for (auto const key : order) names.push_back(in.keys()[static_cast<std::size_t>(key)]);
  return std::move(result).named(std::move(names));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
