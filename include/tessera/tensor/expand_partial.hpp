// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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
#include <tessera/tensor/partial_inverse_keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Every sample's lists again: the KJT that `deduplicate_partial` made this partial IKJT of, bit for bit, with its weights, of a row a
/// sample in every key. The result is unnamed of a view, and has the names of an owner.
///
/// @throws tessera::error out_of_range naming key and sample of a slice that reaches past the runs of its key (in a checked build, past any
/// run), or where the values become more than an Offset counts. On a device, which does not look for runs, such a slice becomes an empty
/// list, what is wrong is thrown when the execution synchronises, and the call waits for the number of values unless `room` tells it.
/// Vectors of the runs' ids are expanded by `select_slices`.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> expand_partial(Exec const& exec, partial_inverse_keyed_jagged_view<T, Offset> in,
                                                                  result_room room = {});
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> expand_partial(Exec const& exec, partial_inverse_keyed_jagged<T, Offset, Exec> const& in,
                                             result_room room = {});

namespace detail {

struct expand_partial_tag {};

template <>
struct back_end<expand_partial_tag, host_exec> {
  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, partial_inverse_keyed_jagged_view<T, Offset> in,
                                                          std::vector<std::string> const* names, result_room room) {
    check_rows("expand_partial", "in", in.runs);
    if constexpr (checked) check_slices("expand_partial", in, names);
    auto const n = in.samples, keys = in.keys();
    row_ranges<Offset> ranges(exec, keys * n);
    for_each_piece(exec, keys * n, copied_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto key = first / n; key * n < last; ++key) {
        auto const runs = in.runs.key(key);
        std::int64_t const begin = runs.first_value(), end = begin + runs.size();
        for (auto i = std::max(first, key * n); i < std::min(last, (key + 1) * n); ++i) {
          auto const slice = in.slices[i];
          if (slice.length < 0 || (slice.length > 0 && (slice.begin < begin || slice.begin > end - slice.length)))
            throw error(errc::out_of_range, "expand_partial: a slice that no run holds",
                        {{"key", key_label(names, key)},
                         {"sample", i - key * n},
                         {"begin", slice.begin},
                         {"length", slice.length},
                         {"runs", runs.rows}});
          ranges.begins[i] = slice.length == 0 ? Offset{} : slice.begin;
          ranges.lengths[i] = slice.length;
        }
      }
    });
    buffer<std::int64_t> rows_per_key(exec, keys);
    std::fill(rows_per_key.begin(), rows_per_key.end(), n);
    return batch_of_ranges(exec, "expand_partial", in.runs, ranges, std::as_const(rows_per_key).view(), room);
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> expand_partial(Exec const& exec, partial_inverse_keyed_jagged_view<T, Offset> in,
                                                                  result_room room) {
  detail::check_has_slices("expand_partial", in);
  return detail::back_end<detail::expand_partial_tag, Exec>::run(exec, in, nullptr, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> expand_partial(Exec const& exec, partial_inverse_keyed_jagged<T, Offset, Exec> const& in, result_room room) {
  return detail::back_end<detail::expand_partial_tag, Exec>::run(exec, in.view(), &in.keys(), room).named(in.keys());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
