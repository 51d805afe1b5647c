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
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Every sample's rows again: the KJT that `deduplicate` made this IKJT of, bit for bit, with its weights, of a row a sample in every key.
/// The result is unnamed of a view, and has the names of an owner.
///
/// The result's memory is `exec`'s. @throws tessera::error out_of_range naming key, sample and row where an inverse names no row, or where
/// the values become more than an Offset counts; invalid_argument, shape_mismatch for groups that do not fit. Rows of vectors are expanded
/// by `select_vectors`, whose indices are the inverse.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> expand(Exec const& exec, inverse_keyed_jagged_view<T, Offset> in, result_room room = {});
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> expand(Exec const& exec, inverse_keyed_jagged<T, Offset, Exec> const& in, result_room room = {});

namespace detail {

struct expand_tag {};

template <>
struct back_end<expand_tag, host_exec> {
  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                          std::vector<std::string> const* names, result_room room) {
    check_rows("expand", "in", in.distinct);
    auto const n = in.samples, keys = in.keys();
    row_ranges<Offset> ranges(exec, keys * n);
    for_each_piece(exec, keys * n, copied_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto key = first / n; key * n < last; ++key) {
        auto const rows = in.distinct.key(key);
        auto const inverse = in.inverse(key);
        for (auto i = std::max(first, key * n); i < std::min(last, (key + 1) * n); ++i) {
          auto const sample = i - key * n;
          auto const row = inverse.empty() ? sample : inverse[sample];
          if (row < 0 || row >= rows.rows)
            throw error(errc::out_of_range, "expand: no such row",
                        {{"key", key_label(names, key)}, {"sample", sample}, {"row", row}, {"rows", rows.rows}});
          ranges.begins[i] = rows.begin_of(row);
          ranges.lengths[i] = static_cast<Offset>(rows.length(row));
        }
      }
    });
    buffer<std::int64_t> rows_per_key(exec, keys);
    std::fill(rows_per_key.begin(), rows_per_key.end(), n);
    return batch_of_ranges(exec, "expand", in.distinct, ranges, std::as_const(rows_per_key).view(), room);
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
