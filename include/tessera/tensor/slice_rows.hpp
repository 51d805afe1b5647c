// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Copies rows [first, first + count) of each key, with their weights. Of one feature, `jagged_view::slice` copies nothing.
///
/// The result is unnamed, and its memory is `exec`'s. On a device it has the input's room; the call waits for the number of values where
/// neither the input nor `room` gives one. @post `concat_rows` of the slices [0, n) and [n, rows) is the batch. The backward is
/// `gather_backward`. @throws tessera::error out_of_range naming a key without these rows.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> slice_rows(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t first,
                                                              std::int64_t count, result_room room = {});

/// Copies a range of rows of each key: `first` and `count` (keys,) each, the host's. @throws tessera::error shape_mismatch, too.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> slice_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                              vector_view<std::int64_t const> first, vector_view<std::int64_t const> count,
                                                              result_room room = {});

/// Copies the same rows of each key; the result is named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> slice_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, std::int64_t first, std::int64_t count,
                                         result_room room = {});

/// Copies a range of rows of each key; the result is named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> slice_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::int64_t const> first,
                                         vector_view<std::int64_t const> count, result_room room = {});

namespace detail {

struct slice_rows_tag {};

// `range(key)`: first row and number of rows. `runs` (keys,).
template <class T, class Offset, class Range>
void slices_of(keyed_jagged_view<T, Offset> in, Range const& range, std::vector<std::string> const* names,
               vector_view<row_run<std::remove_const_t<T>, Offset>> runs) {
  for (std::int64_t key = 0; key < in.keys; ++key) {
    std::int64_t const first = range(key).first, count = range(key).second;
    if (first < 0 || count < 0 || first > in.rows(key) - count)
      throw error(errc::out_of_range, "slice_rows: no such rows",
                  {{"key", key_label(names, key)}, {"first", first}, {"count", count}, {"rows", in.rows(key)}});
    runs[key] = {count == 0 ? jagged_view<T, Offset>{} : in.key(key).slice(first, count), in.weights};
  }
}

template <>
struct back_end<slice_rows_tag, host_exec> {
  template <class T, class Offset, class Range>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in, Range const& range,
                                                          std::vector<std::string> const* names, result_room room) {
    check_rows("slice_rows", "in", in);
    buffer<row_run<std::remove_const_t<T>, Offset>> runs(exec, in.keys);
    slices_of(in, range, names, runs.view());
    return batch_of_runs(exec, "slice_rows", runs.view(), in.keys, room);
  }
};

// One range for every key.
template <class Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> slice_same_rows(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t first,
                                                                   std::int64_t count, std::vector<std::string> const* names,
                                                                   result_room room) {
  return back_end<slice_rows_tag, Exec>::run(
      exec, in, [=](std::int64_t) { return std::pair(first, count); }, names, room);
}

// One range a key.
template <class Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> slice_own_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                  vector_view<std::int64_t const> first,
                                                                  vector_view<std::int64_t const> count,
                                                                  std::vector<std::string> const* names, result_room room) {
  if (first.size() != in.keys || count.size() != in.keys)
    throw error(errc::shape_mismatch, "slice_rows: one first row and one count a key",
                {{"keys", in.keys}, {"first rows", first.size()}, {"counts", count.size()}});
  return back_end<slice_rows_tag, Exec>::run(
      exec, in, [=](std::int64_t key) { return std::pair(first[key], count[key]); }, names, room);
}

}  // namespace detail

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> slice_rows(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t first,
                                                              std::int64_t count, result_room room) {
  return detail::slice_same_rows(exec, in, first, count, nullptr, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> slice_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                              vector_view<std::int64_t const> first, vector_view<std::int64_t const> count,
                                                              result_room room) {
  return detail::slice_own_rows(exec, in, first, count, nullptr, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> slice_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, std::int64_t first, std::int64_t count,
                                         result_room room) {
  return detail::slice_same_rows(exec, in.view(), first, count, &in.keys(), room).named(in.keys());
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> slice_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::int64_t const> first,
                                         vector_view<std::int64_t const> count, result_room room) {
  return detail::slice_own_rows(exec, in.view(), first, count, &in.keys(), room).named(in.keys());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
