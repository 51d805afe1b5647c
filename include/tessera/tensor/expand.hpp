// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/rows_from.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Gives every sample its rows again: the KJT that the IKJT stands for, with a row a sample in every key, with its weights.
///
/// The result is unnamed. Its memory is `exec`'s; on a device the call waits for the number of values unless `room` gives one.
/// @post expand(deduplicate(x)) == x, bit for bit. Rows of vectors are expanded by `select_vectors`, whose indices are the inverse.
/// @throws tessera::error out_of_range naming key, sample and row where an inverse names no row. The same where the values become more than
/// an Offset counts. invalid_argument, shape_mismatch for groups that do not fit.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> expand(Exec const& exec, inverse_keyed_jagged_view<T, Offset> in, result_room room = {});
/// Gives every sample of an owner its rows again; the result is named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> expand(Exec const& exec, inverse_keyed_jagged<T, Offset, Exec> const& in, result_room room = {});

namespace detail {

struct expand_tag {};

template <>
struct back_end<expand_tag, host_exec> {
  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                          std::vector<std::string> const* names, result_room room) {
    auto const keys = in.keys();
    buffer<std::int64_t> rows_per_key(exec, keys);
    buffer<std::int64_t const*> inverses(exec, keys);
    std::fill(rows_per_key.begin(), rows_per_key.end(), in.samples);
    for (std::int64_t key = 0; key < keys; ++key) inverses[key] = in.inverse(key).data();
    key_ranges<Offset> const ranges{in.distinct.offsets, in.distinct.first_row};
    auto const source = [=, inverse_of = inverses.view()](std::int64_t key, std::int64_t sample) {
      auto const row = inverse_of[key] == nullptr ? sample : inverse_of[key][sample];
      if (ranges.has(key, row)) return ranges(key, row);
      throw error(errc::out_of_range, "expand: no such row",
                  {{"key", key_label(names, key)}, {"sample", sample}, {"row", row}, {"rows", ranges.rows(key)}});
    };
    return rows_from(exec, in.distinct, rows_per_key.view(), source, {room, "expand"});
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> expand(Exec const& exec, inverse_keyed_jagged_view<T, Offset> in, result_room room) {
  detail::check_groups("expand", in);
  return detail::back_end<detail::expand_tag, Exec>::run(exec, in, nullptr, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> expand(Exec const& exec, inverse_keyed_jagged<T, Offset, Exec> const& in, result_room room) {
  return detail::back_end<detail::expand_tag, Exec>::run(exec, in.view(), &in.keys(), room).named(in.keys());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
