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
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Cuts rows to at most so many values, the first or the last of each, with their weights.
///
/// The result's memory is `exec`'s; on a device it has the input's room, or that of `most` values a row where this is less, and where the
/// input does not say its room, the call waits for the number of values unless `room` tells it. @throws tessera::error invalid_argument for
/// a negative `most`. Backward: `gather_backward`.
template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, jagged_view<T, Offset> in, std::int64_t most, kept_values kept,
                                                           result_room room = {});

/// The same number for the rows of every key; the result is unnamed.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t most,
                                                                 kept_values kept, result_room room = {});

/// A number a key: `most` (keys,), the host's. @throws tessera::error shape_mismatch, too.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                 vector_view<std::int64_t const> most, kept_values kept,
                                                                 result_room room = {});

/// The same number for every key, named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, std::int64_t most, kept_values kept,
                                            result_room room = {});

/// A number a key, named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::int64_t const> most,
                                            kept_values kept, result_room room = {});

namespace detail {

struct truncate_rows_tag {};

/// Where the kept values of a row [begin, end) begin.
template <class Offset>
TESSERA_HOST_DEVICE constexpr Offset kept_begin(Offset begin, Offset end, Offset length, kept_values kept) noexcept {
  return kept == kept_values::first ? begin : static_cast<Offset>(end - length);
}

template <>
struct back_end<truncate_rows_tag, host_exec> {
  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, jagged_view<T, Offset> in, std::int64_t most, kept_values kept,
                                                    result_room room) {
    check_rows("truncate_rows", "in", in);
    row_ranges<Offset> ranges(exec, in.rows);
    for_each_piece(exec, in.rows, copied_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) cut(in, row, most, kept, ranges, row);
    });
    return rows_of_ranges(exec, "truncate_rows", in, ranges, room);
  }

  // `most(key)`: values a row.
  template <class T, class Offset, class Most>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in, Most const& most,
                                                          kept_values kept, result_room room) {
    check_rows("truncate_rows", "in", in);
    row_ranges<Offset> ranges(exec, in.rows());
    auto const flat = in.flat();
    for_each_piece(exec, in.rows(), copied_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto key = key_of_row(in, first); first < last; ++key) {
        auto const end = std::min(last, in.first_row[key + 1] - in.first_row[0]);
        for (auto const limit = most(key); first < end; ++first) cut(flat, first, limit, kept, ranges, first);
      }
    });
    buffer<std::int64_t> rows_per_key(exec, in.keys);
    for (std::int64_t key = 0; key < in.keys; ++key) rows_per_key[key] = in.rows(key);
    return batch_of_ranges(exec, "truncate_rows", in, ranges, std::as_const(rows_per_key).view(), room);
  }

 private:
  template <class T, class Offset>
  static void cut(jagged_view<T, Offset> in, std::int64_t row, std::int64_t most, kept_values kept, row_ranges<Offset>& ranges,
                  std::int64_t to) {
    auto const length = static_cast<Offset>(std::min(in.length(row), most));
    ranges.lengths[to] = length;
    ranges.begins[to] = kept_begin(in.begin_of(row), in.end_of(row), length, kept);
  }
};

inline void check_most_values(std::int64_t most, std::vector<std::string> const* names, std::int64_t key) {
  if (most < 0)
    throw error(errc::invalid_argument, "truncate_rows: negative number of values",
                {{"key", key < 0 ? std::string("all") : key_label(names, key)}, {"most", most}});
}

// One number of values a key.
template <class Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_by_key(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                   vector_view<std::int64_t const> most, kept_values kept,
                                                                   std::vector<std::string> const* names, result_room room) {
  check_choice("truncate_rows", "kept", kept, kept_values::last);
  if (most.size() != in.keys)
    throw error(errc::shape_mismatch, "truncate_rows: one number of values a key", {{"keys", in.keys}, {"numbers", most.size()}});
  for (std::int64_t key = 0; key < in.keys; ++key) check_most_values(most[key], names, key);
  return back_end<truncate_rows_tag, Exec>::run(
      exec, in, [=](std::int64_t key) { return most[key]; }, kept, room);
}

}  // namespace detail

template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, jagged_view<T, Offset> in, std::int64_t most, kept_values kept,
                                                           result_room room) {
  detail::check_choice("truncate_rows", "kept", kept, kept_values::last);
  detail::check_most_values(most, nullptr, -1);
  return detail::back_end<detail::truncate_rows_tag, Exec>::run(exec, in, most, kept, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t most,
                                                                 kept_values kept, result_room room) {
  detail::check_choice("truncate_rows", "kept", kept, kept_values::last);
  detail::check_most_values(most, nullptr, -1);
  return detail::back_end<detail::truncate_rows_tag, Exec>::run(
      exec, in, [=](std::int64_t) { return most; }, kept, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                 vector_view<std::int64_t const> most, kept_values kept, result_room room) {
  return detail::truncate_by_key(exec, in, most, kept, nullptr, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, std::int64_t most, kept_values kept,
                                            result_room room) {
  return truncate_rows(exec, in.view(), most, kept, room).named(in.keys());
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::int64_t const> most,
                                            kept_values kept, result_room room) {
  return detail::truncate_by_key(exec, in.view(), most, kept, &in.keys(), room).named(in.keys());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
