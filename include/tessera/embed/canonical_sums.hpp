// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <tessera/core/multiply_add.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A row's gradient is summed in ascending order of (sample, key, position in the bag), in chunks of this many terms. Then the chunks' sums
/// are added in order. The sum has the same bits for any number of ranks and threads. The key matters where several keys read one table.
/// Of a batch of several source ranks (`lookup_options`), the samples of rank 0 come first, then those of rank 1, and so on.
inline constexpr std::int64_t canonical_sum_chunk = 1024;

namespace detail {

/// What one position of the batch adds to the gradient of its row.
struct row_contribution {
  float const* gradient;    // (dim,), of the position's bag
  float scale;              // weight, over the bag's length for a mean
  std::int32_t place = -1;  // of a maximum: the position in its bag; behind the gradient stands whose each column is, (dim,) std::int32_t

  /// Calls add(column, gradient) for each column. A column of a maximum that another row of the bag has won adds zero.
  template <class Add>
  [[gnu::always_inline]] void for_each_column(std::int64_t n, Add const& add) const noexcept {
    auto const* const from = opaque(gradient);
    if (place < 0) {
      for (std::int64_t c = 0; c < n; ++c) add(c, from[c]);
    } else {
      auto const* const winners = from + n;
      for (std::int64_t c = 0; c < n; ++c) add(c, std::bit_cast<std::int32_t>(winners[c]) == place ? from[c] : 0.0F);
    }
  }
};

/// Sums the gradient of a row over its sorted positions, in canonical order. `sum` and `chunk_sum` are (dim,); a `Dim` of 0 takes any dim.
/// `Maxima` says whether some contributions may be of maxima. It is a parameter because asking each contribution would cost registers.
template <int Dim, bool Maxima = false, class Position>
void sum_contributions(row_contribution const* contributions, Position const* positions, std::int64_t count, std::int64_t dim, float* sum,
                       float* chunk_sum) noexcept {
  auto const n = Dim == 0 ? dim : Dim;
  auto const add_chunk = [&](std::int64_t first, std::int64_t last, float* __restrict to) {
    constexpr bool in_registers = Dim > 0 && Dim <= 64;
    float lanes[in_registers ? std::size_t{Dim} : 1];
    float* const chunk = in_registers ? lanes : to;
    auto const& head = contributions[positions[first]];
    if constexpr (Maxima) {
      head.for_each_column(n, [&](std::int64_t c, float gradient) { chunk[c] = head.scale * gradient; });
      for (auto i = first + 1; i < last; ++i) {
        auto const& next = contributions[positions[i]];
        next.for_each_column(n, [&](std::int64_t c, float gradient) { chunk[c] = multiply_add(next.scale, gradient, chunk[c]); });
      }
    } else {
      for (std::int64_t c = 0; c < n; ++c) chunk[c] = head.scale * head.gradient[c];
      for (auto i = first + 1; i < last; ++i) {
        auto const scale = contributions[positions[i]].scale;
        auto const* const gradient = opaque(contributions[positions[i]].gradient);
        for (std::int64_t c = 0; c < n; ++c) chunk[c] = multiply_add(scale, gradient[c], chunk[c]);
      }
    }
    if (in_registers) std::copy(chunk, chunk + n, to);
  };
  add_chunk(0, std::min(count, canonical_sum_chunk), sum);
  for (auto first = canonical_sum_chunk; first < count; first += canonical_sum_chunk) {
    add_chunk(first, std::min(count, first + canonical_sum_chunk), chunk_sum);
    for (std::int64_t c = 0; c < n; ++c) sum[c] += chunk_sum[c];
  }
}

/// Calls f(std::integral_constant<int, Dim>), as `with_static_dim`, for sums over positions of one type. Wide positions belong to tables of
/// more than 2^32 rows, which have no loops of their own.
template <class Position, class F>
void with_sum_dim(std::int64_t dim, F const& f) {
  if constexpr (sizeof(Position) > sizeof(std::uint32_t))
    f(std::integral_constant<int, 0>{});
  else
    with_static_dim(dim, f);
}

/// As `sum_contributions`; `maxima` says at run time whether some features of the batch may pool by maximum. Those sums take any dim, as
/// they wait for the winners.
template <int Dim, class Position>
[[gnu::always_inline]] inline void sum_contributions_of(bool maxima, row_contribution const* contributions, Position const* positions,
                                                        std::int64_t count, std::int64_t dim, float* sum, float* chunk_sum) noexcept {
  if (maxima) [[unlikely]]
    sum_contributions<0, true>(contributions, positions, count, dim, sum, chunk_sum);
  else
    sum_contributions<Dim>(contributions, positions, count, dim, sum, chunk_sum);
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
