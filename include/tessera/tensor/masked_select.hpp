// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Keeps the values whose mask is not 0, in their rows; a row may become empty.
///
/// `mask` (values,) begins at the first value of the view; on a device it may be longer. The result's memory is `exec`'s; on a device it
/// has room for as many values as the mask has bytes, unless `room` gives fewer. The backward is `gather_backward`. @throws tessera::error
/// shape_mismatch.
template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> masked_select(Exec const& exec, jagged_view<T, Offset> in,
                                                           vector_view<std::uint8_t const> mask, result_room room = {});

/// Keeps the masked values of a batch, with their weights; the result is unnamed.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> masked_select(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                 vector_view<std::uint8_t const> mask, result_room room = {});

/// Keeps the masked values of a batch, with their weights and the names.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> masked_select(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::uint8_t const> mask,
                                            result_room room = {});

namespace detail {

struct masked_select_tag {};

inline constexpr std::int64_t masked_rows_per_piece = 1024;

inline void check_mask(std::int64_t values, std::int64_t mask) {
  if (values != mask) throw error(errc::shape_mismatch, "masked_select: one byte of mask a value", {{"values", values}, {"mask", mask}});
}

template <>
struct back_end<masked_select_tag, host_exec> {
  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, jagged_view<T, Offset> in, vector_view<std::uint8_t const> mask,
                                                    result_room room) {
    check_rows("masked_select", "in", in);
    check_mask(in.size(), mask.size());
    auto const lengths = lengths_of(exec, in, mask);
    auto result = jagged<std::remove_const_t<T>, Offset>::with_lengths(exec, lengths.view());
    check_room("masked_select", result.size(), room);
    copy<std::remove_const_t<T>, Offset>(exec, in, mask, result.view());
    return result;
  }

  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in,
                                                          vector_view<std::uint8_t const> mask, result_room room) {
    check_rows("masked_select", "in", in);
    check_mask(in.size(), mask.size());
    auto const lengths = lengths_of(exec, in.flat(), mask);
    buffer<std::int64_t> rows_per_key(exec, in.keys);
    for (std::int64_t key = 0; key < in.keys; ++key) rows_per_key[key] = in.rows(key);
    auto result =
        keyed_jagged<std::remove_const_t<T>, Offset>::with_lengths(exec, lengths.view(), std::as_const(rows_per_key).view(), in.weighted());
    check_room("masked_select", result.room(), room);
    auto const to = result.view().flat();
    copy<std::remove_const_t<T>, Offset>(exec, in.flat(), mask, to);
    if (in.weighted()) copy<float, Offset>(exec, in.flat_weights(), mask, to.with_values(result.weights().data()));
    return result;
  }

 private:
  template <class T, class Offset>
  static buffer<Offset> lengths_of(host_exec const& exec, jagged_view<T, Offset> in, vector_view<std::uint8_t const> mask) {
    buffer<Offset> lengths(exec, in.rows);
    for_each_piece(exec, in.rows, masked_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) {
        auto const of_row = mask.slice(in.begin_of(row) - in.first_value(), in.length(row));
        Offset length = 0;
        for (auto const keep : of_row) length = static_cast<Offset>(length + (keep != 0));
        lengths[row] = length;
      }
    });
    return lengths;
  }

  template <class T, class Offset>
  static void copy(host_exec const& exec, jagged_view<T const, Offset> in, vector_view<std::uint8_t const> mask,
                   jagged_view<T, Offset> to) {
    for_each_piece(exec, in.rows, masked_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) {
        auto const* from = in.values + in.begin_of(row);
        auto const* keep = mask.data() + (in.begin_of(row) - in.first_value());
        // Every value is written to the next free place, which only a kept one takes: no branch on the mask.
        auto* const out = to.values + to.begin_of(row);
        for (std::int64_t done = 0, length = to.length(row); done < length; ++from, ++keep) {
          out[done] = *from;
          done += *keep != 0;
        }
      }
    });
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> masked_select(Exec const& exec, jagged_view<T, Offset> in,
                                                           vector_view<std::uint8_t const> mask, result_room room) {
  return detail::back_end<detail::masked_select_tag, Exec>::run(exec, in, mask, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> masked_select(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                 vector_view<std::uint8_t const> mask, result_room room) {
  return detail::back_end<detail::masked_select_tag, Exec>::run(exec, in, mask, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> masked_select(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, vector_view<std::uint8_t const> mask,
                                            result_room room) {
  return masked_select(exec, in.view(), mask, room).named(in.keys());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
