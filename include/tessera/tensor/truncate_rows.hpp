// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/call_list.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/rows_from.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Cuts rows to at most `most` values, the first or the last of each row, with their weights.
///
/// The result's memory is `exec`'s. On a device it has the input's room, or that of `most` values a row where this is less. The call waits
/// for the number of values where neither the input nor `room` gives one. @post truncate_rows(truncate_rows(x, n), n) == truncate_rows(x,
/// n). The backward is `gather_backward`. @throws tessera::error invalid_argument for a negative `most`.
template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, jagged_view<T, Offset> in, std::int64_t most, kept_values kept,
                                                           result_room room = {});

/// Cuts the rows of every key to the same number; the result is unnamed.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t most,
                                                                 kept_values kept, result_room room = {});

/// Cuts the rows of each key to a number of its own: `most` (keys,), the host's. @throws tessera::error shape_mismatch, too.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                 vector_view<std::int64_t const> most, kept_values kept,
                                                                 result_room room = {});

/// Cuts the rows of every key to the same number; the result is named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, std::int64_t most, kept_values kept,
                                            result_room room = {});

/// Cuts the rows of each key to a number of its own; the result is named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::int64_t const> most,
                                            kept_values kept, result_room room = {});

namespace detail {

/// The kept values of a row [begin, end), of at most so many.
template <class Offset>
TESSERA_HOST_DEVICE constexpr value_range<> kept_range(Offset begin, Offset end, std::int64_t most, kept_values kept) noexcept {
  auto const size = static_cast<std::int64_t>(end) - static_cast<std::int64_t>(begin), length = size < most ? size : most;
  return {kept == kept_values::first ? begin : static_cast<std::int64_t>(end) - length, length};
}

/// As a source of rows, for all keys alike.
template <class Offset>
struct truncated_row {
  Offset const* offsets;
  std::int64_t most;
  kept_values kept;

  TESSERA_HOST_DEVICE constexpr value_range<> operator()(std::int64_t row) const noexcept {
    return kept_range(offsets[row], offsets[row + 1], most, kept);
  }
};

/// As a source of rows of keys.
template <class Offset>
struct truncated_row_of_key {
  key_ranges<Offset> in;
  std::int64_t const* most;  // (keys,)
  kept_values kept;

  TESSERA_HOST_DEVICE constexpr value_range<> operator()(std::int64_t key, std::int64_t row) const noexcept {
    auto const whole = in(key, row);
    return kept_range(whole.begin, whole.begin + whole.length, most[key], kept);
  }
};

/// Room for as many values as requested; else for as many as there are at most, if the input gives its room.
constexpr result_room truncated_room(std::int64_t rows, std::int64_t most, std::int64_t room, result_room requested) noexcept {
  if (requested.most_values >= 0) return requested;
  return {rows == 0 || most <= room / rows ? rows * most : room};
}

inline void check_most_values(std::int64_t most, std::vector<std::string> const* names, std::int64_t key) {
  if (most < 0)
    throw error(errc::invalid_argument, "truncate_rows: negative number of values",
                {{"key", key < 0 ? std::string("all") : key_label(names, key)}, {"most", most}});
}

// `most(key)`: values a row.
template <execution Exec, class T, class Offset, class Most>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_keys(Exec const& exec, keyed_jagged_view<T, Offset> in, Most const& most,
                                                                 kept_values kept, result_room room) {
  check_choice("truncate_rows", "kept", kept, kept_values::last);
  if constexpr (!device_execution<Exec>) check_rows("truncate_rows", "in", in);
  call_list<std::int64_t, Exec> rows_per_key(exec, in.keys), limits(exec, in.keys);
  std::int64_t largest = 0;
  for (std::int64_t key = 0; key < in.keys; ++key) {
    rows_per_key[key] = in.rows(key);
    limits[key] = most(key);
    largest = std::max(largest, limits[key]);
  }
  auto const& first_rows = placed_numbers(exec, first_rows_view(in));
  auto const& placed_limits = placed_numbers(exec, std::as_const(limits).view());
  truncated_row_of_key<Offset> const source{{in.offsets, first_rows.data()}, placed_limits.data(), kept};
  return rows_from(exec, in, rows_per_key.view(), source, {truncated_room(in.rows(), largest, in.room, room), "truncate_rows"});
}

// One number of values a key.
template <class Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_by_key(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                   vector_view<std::int64_t const> most, kept_values kept,
                                                                   std::vector<std::string> const* names, result_room room) {
  if (most.size() != in.keys)
    throw error(errc::shape_mismatch, "truncate_rows: one number of values a key", {{"keys", in.keys}, {"numbers", most.size()}});
  for (std::int64_t key = 0; key < in.keys; ++key) check_most_values(most[key], names, key);
  return truncate_keys(
      exec, in, [=](std::int64_t key) { return most[key]; }, kept, room);
}

}  // namespace detail

template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, jagged_view<T, Offset> in, std::int64_t most, kept_values kept,
                                                           result_room room) {
  detail::check_choice("truncate_rows", "kept", kept, kept_values::last);
  detail::check_most_values(most, nullptr, -1);
  return rows_from(exec, in, in.rows, detail::truncated_row<Offset>{in.offsets, most, kept},
                   {detail::truncated_room(in.rows, most, in.room, room), "truncate_rows"});
}

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> truncate_rows(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t most,
                                                                 kept_values kept, result_room room) {
  detail::check_most_values(most, nullptr, -1);
  return detail::truncate_keys(
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
