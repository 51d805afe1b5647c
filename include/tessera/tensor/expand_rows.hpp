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
#include <tessera/core/scan.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/rows_from.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Repeats rows: row i of the input comes repeats[i] times, one after the other. A row with 0 repeats is dropped.
///
/// `repeats` (rows,). The result's memory is `exec`'s. On a device the call waits for the numbers of rows and values. The backward is
/// `gather_backward`. @post with repeats of 1 the result equals `in`. @throws tessera::error invalid_argument naming a negative repeat,
/// shape_mismatch, out_of_range where rows or values become too many to count.
template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> expand_rows(Exec const& exec, jagged_view<T, Offset> in,
                                                         vector_view<std::int64_t const> repeats, result_room room = {});
/// Repeats rows of a batch, with their weights; the result is unnamed.
///
/// `repeats` (rows of all keys,), or (rows of each key,) where all keys have as many: then every key's rows repeat alike. On a device
/// errors number the keys.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> expand_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                               vector_view<std::int64_t const> repeats, result_room room = {});
/// Repeats rows of a batch, with their weights; the result is named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> expand_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in,
                                          vector_view<std::int64_t const> repeats, result_room room = {});

namespace detail {

struct expand_rows_tag {};

template <>
struct back_end<expand_rows_tag, host_exec> {
  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, jagged_view<T, Offset> in,
                                                    vector_view<std::int64_t const> repeats, result_room room) {
    check_rows("expand_rows", "in", in);
    buffer<std::int64_t> starts(exec, in.rows + 1);
    for (std::int64_t row = 0; row < in.rows; ++row)
      if (repeats[row] < 0) throw error(errc::invalid_argument, "expand_rows: negative repeat", {{"row", row}, {"repeat", repeats[row]}});
    lengths_to_offsets(exec, repeats, starts.view());
    repeated_row<T, Offset> source{in, starts.data()};
    return rows_from(exec, in, starts[in.rows], source, {room, "expand_rows"});
  }

  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in,
                                                          vector_view<std::int64_t const> repeats, std::vector<std::string> const* names,
                                                          result_room room) {
    check_rows("expand_rows", "in", in);
    bool const each_row = repeats.size() == in.rows();
    buffer<std::int64_t> counts(exec, in.rows());
    for (std::int64_t key = 0, row = 0; key < in.keys; ++key)
      for (std::int64_t i = 0; i < in.rows(key); ++i, ++row) {
        counts[row] = repeats[each_row ? row : i];
        if (counts[row] < 0)
          throw error(errc::invalid_argument, "expand_rows: negative repeat",
                      {{"key", key_label(names, key)}, {"row", i}, {"repeat", counts[row]}});
      }
    buffer<std::int64_t> starts(exec, in.rows() + 1);
    lengths_to_offsets(exec, counts.view(), starts.view());
    buffer<std::int64_t> rows_per_key(exec, in.keys);
    for (std::int64_t key = 0; key < in.keys; ++key)
      rows_per_key[key] = starts[in.first_row[key + 1] - in.first_row[0]] - starts[in.first_row[key] - in.first_row[0]];
    auto const source = [in, rows = repeated_row<T, Offset>{in.flat(), starts.data()}](std::int64_t key, std::int64_t i) mutable {
      return rows(rows.starts[in.first_row[key] - in.first_row[0]] + i);
    };
    return rows_from(exec, in, rows_per_key.view(), source, {room, "expand_rows"});
  }

 private:
  // Row r of the input is rows [starts[r], starts[r + 1]) of the result, which are asked for in order.
  template <class T, class Offset>
  struct repeated_row {
    jagged_view<T, Offset> in;
    std::int64_t const* starts;
    std::int64_t row = -1;

    value_range<> operator()(std::int64_t at) {
      if (row < 0) row = range_of(starts, in.rows, at);
      while (starts[row + 1] <= at) ++row;
      return {in.begin_of(row), in.length(row)};
    }
  };
};

template <class T, class Offset>
void check_repeats_of_keys(keyed_jagged_view<T, Offset> in, vector_view<std::int64_t const> repeats,
                           std::vector<std::string> const* names) {
  for (std::int64_t key = 0; key < in.keys && repeats.size() != in.rows(); ++key)
    if (in.rows(key) != repeats.size())
      throw error(errc::shape_mismatch, "expand_rows: one repeat a row of all keys, or of each key",
                  {{"rows of all keys", in.rows()}, {"key", key_label(names, key)}, {"rows", in.rows(key)}, {"repeats", repeats.size()}});
}

}  // namespace detail

template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> expand_rows(Exec const& exec, jagged_view<T, Offset> in,
                                                         vector_view<std::int64_t const> repeats, result_room room) {
  if (repeats.size() != in.rows)
    throw error(errc::shape_mismatch, "expand_rows: one repeat a row", {{"rows", in.rows}, {"repeats", repeats.size()}});
  return detail::back_end<detail::expand_rows_tag, Exec>::run(exec, in, repeats, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> expand_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                               vector_view<std::int64_t const> repeats, result_room room) {
  detail::check_repeats_of_keys(in, repeats, nullptr);
  return detail::back_end<detail::expand_rows_tag, Exec>::run(exec, in, repeats, nullptr, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> expand_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in,
                                          vector_view<std::int64_t const> repeats, result_room room) {
  detail::check_repeats_of_keys(in.view(), repeats, &in.keys());
  return detail::back_end<detail::expand_rows_tag, Exec>::run(exec, in.view(), repeats, &in.keys(), room).named(in.keys());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
