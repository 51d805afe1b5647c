// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `rows_from`.
struct rows_from_options {
  result_room room;                  ///< memory for so many values
  char const* caller = "rows_from";  ///< the call that errors name, a text of static storage
};

/// Gathers ranges of values: row i of the result is the range source(i) of `in.values`, a `value_range<>`.
///
/// The result has `rows` rows in `exec`'s memory. Each range lies within the values of the rows of `in`; an empty range may begin anywhere.
/// Neighbouring rows are asked for in ascending order of one copy of `source`, which may so keep its place. On a device `source` is plain
/// data that kernels call, with the block as first argument where it takes one. There the call waits for the number of values unless `room`
/// gives one.
///
/// Each row without its first value: `rows_from(exec, in, in.rows, [=](auto i) { return value_range<>{in.begin_of(i) + 1, in.length(i) -
/// 1}; })`. @throws tessera::error out_of_range naming row and range, invalid_argument for negative `rows` or lengths, and what `source`
/// throws.
template <execution Exec, class T, class Offset, class Source>
jagged<std::remove_const_t<T>, Offset, Exec> rows_from(Exec const& exec, jagged_view<T, Offset> in, std::int64_t rows, Source const& source,
                                                       rows_from_options options = {});

/// Gathers ranges of a batch's values: row i of key k of the result is the range source(k, i) of `in.values`, with its weights.
///
/// `rows_per_key` (keys,), the host's, says how many rows the result has of each key; the result is unnamed. @throws tessera::error as
/// above, naming the key, too; invalid_argument naming a key of negative rows, out_of_range where the rows become too many to count.
template <execution Exec, class T, class Offset, class Source>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> rows_from(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                             vector_view<std::int64_t const> rows_per_key, Source const& source,
                                                             rows_from_options options = {});

namespace detail {

/// The rows of each key as ranges, whichever memory holds the offsets.
template <class Offset>
struct key_ranges {
  Offset const* offsets;
  std::int64_t const* first_rows;  // (keys + 1,): of the offsets

  TESSERA_HOST_DEVICE constexpr std::int64_t rows(std::int64_t key) const noexcept { return first_rows[key + 1] - first_rows[key]; }
  TESSERA_HOST_DEVICE constexpr bool has(std::int64_t key, std::int64_t row) const noexcept { return row >= 0 && row < rows(key); }
  TESSERA_HOST_DEVICE constexpr value_range<> operator()(std::int64_t key, std::int64_t row) const noexcept {
    auto const* const of_row = offsets + first_rows[key] + row;
    return {of_row[0], static_cast<std::int64_t>(of_row[1]) - static_cast<std::int64_t>(of_row[0])};
  }
};

/// Where the rows of each key begin, (keys + 1,), as the view has them; none where there are no keys.
template <class T, class Offset>
vector_view<std::int64_t const> first_rows_view(keyed_jagged_view<T, Offset> in) noexcept {
  return {in.first_row, in.keys == 0 ? 0 : in.keys + 1};
}

/// The host's numbers where a source may read them: a copy on a device, on the host themselves.
template <execution Exec, class T>
auto placed_numbers(Exec const& exec, vector_view<T const> numbers) {
  if constexpr (device_execution<Exec>)
    return to_device(exec, numbers);
  else
    return numbers;
}

struct rows_from_tag {};

template <>
struct back_end<rows_from_tag, host_exec> {
  template <class T, class Offset, class Source>
  static jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, jagged_view<T, Offset> in, std::int64_t rows,
                                                    Source const& source, rows_from_options const& options) {
    check_rows(options.caller, "in", in);
    ranges<Offset> const found(exec, in, rows, options.caller, [&](auto const& visit) {
      for_each_piece(exec, rows, copied_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
        auto of_piece = source;
        auto const of_row = visit;
        for (; first < last; ++first) of_row(first, -1, first, of_piece(first));
      });
    });
    auto result = jagged<std::remove_const_t<T>, Offset>::with_lengths(exec, found.lengths.view());
    check_room(options.caller, result.size(), options.room);
    copy<std::remove_const_t<T>, Offset>(exec, in.values, nullptr, found.begins.data(), result.view(), nullptr);
    return result;
  }

  template <class T, class Offset, class Source>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in,
                                                          vector_view<std::int64_t const> rows_per_key, std::int64_t rows,
                                                          Source const& source, rows_from_options const& options) {
    check_rows(options.caller, "in", in);
    buffer<std::int64_t> first_row(exec, in.keys + 1);
    first_row[in.keys] = exclusive_scan(exec, rows_per_key, first_row.view().slice(0, in.keys));
    ranges<Offset> const found(exec, in.flat(), rows, options.caller, [&](auto const& visit) {
      for_each_piece(exec, rows, copied_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
        auto of_piece = source;
        auto const of_row = visit;
        for (auto key = range_of(first_row.data(), in.keys, first); first < last; ++key)
          for (auto const begin = first_row[key], end = std::min(last, first_row[key + 1]); first < end; ++first)
            of_row(first, key, first - begin, of_piece(key, first - begin));
      });
    });
    auto result = keyed_jagged<std::remove_const_t<T>, Offset>::with_lengths(exec, found.lengths.view(), rows_per_key, in.weighted());
    check_room(options.caller, result.room(), options.room);
    copy<std::remove_const_t<T>, Offset>(exec, in.values, in.weights, found.begins.data(), result.view().flat(), result.weights().data());
    return result;
  }

 private:
  template <class Offset>
  struct ranges {
    buffer<Offset> lengths, begins;

    /// `for_each_row(visit)` calls visit(row of all, key or -1, row, range). Negative lengths are named before what lies past the values.
    template <class T, class ForEachRow>
    ranges(host_exec const& exec, jagged_view<T, Offset> in, std::int64_t rows, char const* caller, ForEachRow const& for_each_row)
        : lengths(exec, rows), begins(exec, rows) {
      auto const first = in.first_value(), values = in.size();
      std::atomic<bool> all_within = true;
      for_each_row([=, &all_within, to_lengths = lengths.data(), to_begins = begins.data()](std::int64_t at, std::int64_t, std::int64_t,
                                                                                            value_range<> range) {
        if (!range.is_within(first, values)) all_within.store(false, std::memory_order_relaxed);
        to_lengths[at] = static_cast<Offset>(range.length);
        to_begins[at] = static_cast<Offset>(range.begin);
      });
      if (all_within) return;
      for_each_row([&](std::int64_t at, std::int64_t, std::int64_t, value_range<> range) {
        if (range.length < 0)
          throw error(errc::invalid_argument, "lengths_to_offsets: negative length", {{"row", at}, {"length", range.length}});
      });
      for_each_row([&](std::int64_t, std::int64_t key, std::int64_t row, value_range<> range) {
        if (range.is_within(first, values)) return;
        std::vector<error_value> named{
            {"row", row}, {"begin", range.begin}, {"length", range.length}, {"first value", first}, {"values", values}};
        if (key >= 0) named.insert(named.begin(), {"key", key});
        throw error(errc::out_of_range, std::string(caller) + ": a range past the values", named);
      });
    }
  };

  // Row i of `to` is from[begins[i], begins[i] + its length); weights, where there are any, likewise.
  template <class T, class Offset>
  static void copy(host_exec const& exec, T const* from, float const* from_weights, Offset const* begins, jagged_view<T, Offset> to,
                   float* weights) {
    for_each_piece(exec, to.size(), copied_values_per_piece<T>(weights != nullptr), [&](std::int64_t at, std::int64_t last) {
      auto row = std::upper_bound(to.offsets, to.offsets + to.rows, at) - to.offsets - 1;
      for (; at < last; ++row) {
        auto const end = std::min<std::int64_t>(last, to.end_of(row));
        auto const begin = begins[row] + (at - to.begin_of(row));
        std::copy_n(from + begin, end - at, to.values + at);
        if (weights != nullptr) std::copy_n(from_weights + begin, end - at, weights + at);
        at = end;
      }
    });
  }
};

/// The rows of all keys. @throws tessera::error invalid_argument, out_of_range naming a key.
inline std::int64_t sum_of_rows(char const* caller, vector_view<std::int64_t const> rows_per_key) {
  std::int64_t sum = 0;
  for (std::int64_t key = 0; key < rows_per_key.size(); ++key) {
    if (rows_per_key[key] < 0)
      throw error(errc::invalid_argument, std::string(caller) + ": negative number of rows", {{"key", key}, {"rows", rows_per_key[key]}});
    if (__builtin_add_overflow(sum, rows_per_key[key], &sum))
      throw error(errc::out_of_range, std::string(caller) + ": more rows than can be counted", {{"key", key}, {"rows", rows_per_key[key]}});
  }
  return sum;
}

}  // namespace detail

template <execution Exec, class T, class Offset, class Source>
jagged<std::remove_const_t<T>, Offset, Exec> rows_from(Exec const& exec, jagged_view<T, Offset> in, std::int64_t rows, Source const& source,
                                                       rows_from_options options) {
  if (rows < 0) throw error(errc::invalid_argument, std::string(options.caller) + ": negative number of rows", {{"rows", rows}});
  return detail::back_end<detail::rows_from_tag, Exec>::run(exec, in, rows, source, options);
}

template <execution Exec, class T, class Offset, class Source>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> rows_from(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                             vector_view<std::int64_t const> rows_per_key, Source const& source,
                                                             rows_from_options options) {
  if (rows_per_key.size() != in.keys)
    throw error(errc::shape_mismatch, std::string(options.caller) + ": one number of rows a key",
                {{"keys", in.keys}, {"numbers of rows", rows_per_key.size()}});
  auto const rows = detail::sum_of_rows(options.caller, rows_per_key);
  return detail::back_end<detail::rows_from_tag, Exec>::run(exec, in, rows_per_key, rows, source, options);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
