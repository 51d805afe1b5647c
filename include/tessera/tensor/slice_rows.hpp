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

namespace detail {

template <class Exec>
struct slice_rows_impl {
  static_assert(dependent_false<Exec>, "slice_rows: no back end for this execution; for CUDA include <tessera/tensor/slice_rows.cuh>");
};

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
struct slice_rows_impl<host_exec> {
  template <class T, class Offset, class Range>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in, Range const& range,
                                                          std::vector<std::string> const* names, result_room room) {
    check_rows("slice_rows", "in", in);
    buffer<row_run<std::remove_const_t<T>, Offset>> runs(exec, in.keys);
    slices_of(in, range, names, runs.view());
    return batch_of_runs(exec, "slice_rows", runs.view(), in.keys, room);
  }
};

struct slice_rows_fn {
  template <execution Exec, class T, class Offset>
  auto operator()(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t first, std::int64_t count, result_room room = {}) const {
    return same_range(exec, in, first, count, nullptr, room);
  }
  template <execution Exec, class T, class Offset>
  auto operator()(Exec const& exec, keyed_jagged_view<T, Offset> in, vector_view<std::int64_t const> first,
                  vector_view<std::int64_t const> count, result_room room = {}) const {
    return own_ranges(exec, in, first, count, nullptr, room);
  }
  template <execution Exec, class T, class Offset>
  auto operator()(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, std::int64_t first, std::int64_t count,
                  result_room room = {}) const {
    return same_range(exec, in.view(), first, count, &in.keys(), room).named(in.keys());
  }
  template <execution Exec, class T, class Offset>
  auto operator()(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::int64_t const> first,
                  vector_view<std::int64_t const> count, result_room room = {}) const {
    return own_ranges(exec, in.view(), first, count, &in.keys(), room).named(in.keys());
  }

 private:
  template <class Exec, class View>
  static auto same_range(Exec const& exec, View in, std::int64_t first, std::int64_t count, std::vector<std::string> const* names,
                         result_room room) {
    return slice_rows_impl<Exec>::run(
        exec, in, [=](std::int64_t) { return std::pair(first, count); }, names, room);
  }
  template <class Exec, class View>
  static auto own_ranges(Exec const& exec, View in, vector_view<std::int64_t const> first, vector_view<std::int64_t const> count,
                         std::vector<std::string> const* names, result_room room) {
    if (first.size() != in.keys || count.size() != in.keys)
      throw error(errc::shape_mismatch, "slice_rows: one first row and one count a key",
                  {{"keys", in.keys}, {"first rows", first.size()}, {"counts", count.size()}});
    return slice_rows_impl<Exec>::run(
        exec, in, [=](std::int64_t key) { return std::pair(first[key], count[key]); }, names, room);
  }
};

}  // namespace detail

/// Rows [first, first + count) of each key, with their weights; of one feature, `jagged_view::slice` copies nothing.
///
/// `slice_rows(exec, keyed_jagged_view, first, count, room)` and `slice_rows(exec, keyed_jagged, first, count, room) -> keyed_jagged`,
/// unnamed and named: `first` and `count` are one number for every key, or (keys,) each, the host's. The result's memory is `exec`'s; on a
/// device it has the input's room, and where the input does not say that, the call waits for the number of values unless `room` tells it.
/// @throws tessera::error
/// out_of_range naming a key without these rows, shape_mismatch. Backward: `gather_backward`.
inline constexpr detail::slice_rows_fn slice_rows{};

}  // namespace TESSERA_ABI
}  // namespace tessera
