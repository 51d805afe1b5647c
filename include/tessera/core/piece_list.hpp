// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Several ranges, each cut into pieces of its own size and numbered through, so that one parallel region does them all. Move-only.
class piece_list {
 public:
  /// `pieces(range)`: how many pieces the range has. It allocates from `exec`'s memory.
  template <class Pieces>
  piece_list(host_exec const& exec, std::int64_t ranges, Pieces const& pieces) : first_(exec, ranges + 1) {
    first_[0] = 0;
    for (std::int64_t r = 0; r < ranges; ++r) first_[r + 1] = first_[r] + pieces(r);
  }

  /// The number of pieces of all ranges.
  std::int64_t count() const noexcept { return first_[first_.size() - 1]; }
  /// The number of a range's first piece; for `range` = ranges, count().
  std::int64_t first_of(std::int64_t range) const noexcept(!checks_indices) { return first_[range]; }
  /// The range that a piece belongs to. @pre 0 <= piece < count()
  std::int64_t range_of(std::int64_t piece) const noexcept {
    return std::upper_bound(first_.begin(), first_.end(), piece) - first_.begin() - 1;
  }

 private:
  buffer<std::int64_t> first_;  // (ranges + 1,)
};

/// Calls f(range, first, last) for pieces of `grain(range)` of [0, size(range)), of all ranges in one parallel region. The bounds depend on
/// sizes and grains alone. @pre size(range) >= 0, grain(range) >= 1
template <class Size, class Grain, class F>
void for_each_piece_of(host_exec const& exec, std::int64_t ranges, Size const& size, Grain const& grain, F const& f) {
  piece_list const pieces(exec, ranges, [&](std::int64_t range) { return divide_up(size(range), grain(range)); });
  exec.run(pieces.count(), [&](std::int64_t piece) {
    auto const range = pieces.range_of(piece);
    auto const of_piece = grain(range), first = (piece - pieces.first_of(range)) * of_piece;
    f(range, first, std::min(size(range), first + of_piece));
  });
}

/// The sum of f(i) for i in [0, n), in double: of pieces of `grain`, then of these in order. So any number of threads has the same bits.
/// @pre n >= 0, grain >= 1
template <class F>
double sum_by_pieces(host_exec const& exec, std::int64_t n, std::int64_t grain, F const& f) {
  buffer<double> sums(exec, divide_up(n, grain));
  for_each_piece(exec, n, grain, [&](std::int64_t first, std::int64_t last) {
    double sum = 0;
    for (auto i = first; i < last; ++i) sum += f(i);
    sums[first / grain] = sum;
  });
  double total = 0;
  for (auto const sum : sums) total += sum;
  return total;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
