// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Running sums: out[i] = initial + in[0] + … + in[i - 1]. It returns the sum of all, a `Sum`; on a device it returns nothing. `in` and
/// `out` (n,) may be the same memory. Sums are of `out`'s type. Floating-point sums are joined by fixed pieces of 32,768, for any number of
/// threads. On a device they may differ in their last bits from call to call. It does not synchronise. @throws tessera::error
/// shape_mismatch.
template <execution Exec, class T, class Sum>
auto exclusive_scan(Exec const& exec, vector_view<T> in, vector_view<Sum> out, std::type_identity_t<Sum> initial = {});

/// Converts row lengths to row offsets. `lengths` (n,), `offsets` (n + 1,).
/// @post offsets[0] = 0, offsets[i + 1] - offsets[i] = lengths[i]
/// @throws tessera::error shape_mismatch; invalid_argument naming a row of negative length; out_of_range naming the row at which the sum
/// leaves the type of the offsets.
template <execution Exec, class T, class Offset>
void lengths_to_offsets(Exec const& exec, vector_view<T> lengths, vector_view<Offset> offsets);

namespace detail {

struct exclusive_scan_tag {};

inline constexpr std::int64_t scan_piece = 1 << 15;

template <>
struct back_end<exclusive_scan_tag, host_exec> {
  template <class T, class Sum>
  static Sum run(host_exec const& exec, vector_view<T const> in, vector_view<Sum> out, Sum initial) {
    auto const pieces = divide_up(in.size(), scan_piece);
    buffer<Sum> starts(exec, pieces);
    for_each_piece(exec, in.size(), scan_piece, [&](std::int64_t first, std::int64_t last) {
      Sum sum{};
      for (auto i = first; i < last; ++i) sum = static_cast<Sum>(sum + static_cast<Sum>(in[i]));
      starts[first / scan_piece] = sum;
    });
    for (std::int64_t p = 0; p < pieces; ++p) {
      auto const sum = starts[p];
      starts[p] = initial;
      initial = static_cast<Sum>(initial + sum);
    }
    for_each_piece(exec, in.size(), scan_piece, [&](std::int64_t first, std::int64_t last) {
      auto sum = starts[first / scan_piece];
      for (auto i = first; i < last; ++i) {
        auto const value = static_cast<Sum>(in[i]);  // before the write: in and out may be the same
        out[i] = sum;
        sum = static_cast<Sum>(sum + value);
      }
    });
    return initial;
  }
};

struct lengths_to_offsets_tag {};

template <>
struct back_end<lengths_to_offsets_tag, host_exec> {
  template <class T, class Offset>
  static void run(host_exec const& exec, vector_view<T const> lengths, vector_view<Offset> offsets) {
    auto left = static_cast<std::int64_t>(std::numeric_limits<Offset>::max());
    for (std::int64_t i = 0; i < lengths.size(); ++i) {
      auto const length = static_cast<std::int64_t>(lengths[i]);
      if (length < 0) throw error(errc::invalid_argument, "lengths_to_offsets: negative length", {{"row", i}, {"length", length}});
      if (length > left)
        throw error(errc::out_of_range, "lengths_to_offsets: the sum does not fit into an offset",
                    {{"row", i}, {"length", length}, {"largest offset", std::numeric_limits<Offset>::max()}});
      left -= length;
    }
    offsets[lengths.size()] = back_end<exclusive_scan_tag, host_exec>::run(exec, lengths, offsets.slice(0, lengths.size()), Offset{});
  }
};

}  // namespace detail

template <execution Exec, class T, class Sum>
auto exclusive_scan(Exec const& exec, vector_view<T> in, vector_view<Sum> out, std::type_identity_t<Sum> initial) {
  if (in.size() != out.size())
    throw error(errc::shape_mismatch, "exclusive_scan: output and input differ in size", {{"input", in.size()}, {"output", out.size()}});
  return detail::back_end<detail::exclusive_scan_tag, Exec>::run(exec, vector_view<T const>{in.data(), in.size()}, out, initial);
}

template <execution Exec, class T, class Offset>
void lengths_to_offsets(Exec const& exec, vector_view<T> lengths, vector_view<Offset> offsets) {
  if (offsets.size() != lengths.size() + 1)
    throw error(errc::shape_mismatch, "lengths_to_offsets: one offset more than lengths",
                {{"lengths", lengths.size()}, {"offsets", offsets.size()}});
  detail::back_end<detail::lengths_to_offsets_tag, Exec>::run(exec, vector_view<T const>{lengths.data(), lengths.size()}, offsets);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
