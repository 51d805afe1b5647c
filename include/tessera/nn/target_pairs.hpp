// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/register_tiles.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

/// Pairs of a sample and a vector of its history, in chunks: what target_attention goes through.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The samples in the order of their rows, those of a row in their own order. A place is a position in that order. What the samples of a
/// row add to its vectors is added in that order, chunk after chunk.
class target_order {
 public:
  template <class Offset>
  void fill(host_exec const& exec, jagged_vectors_view<float const, Offset> history, vector_view<std::int64_t const> inverse,
            std::int64_t samples) {
    samples_ = samples;
    places_.resize(exec, 3 * samples + 1);
    auto* const order = places_.data();
    auto* const first_vector = order + samples;
    auto* const starts = first_vector + samples;
    if (inverse.empty()) {
      for (std::int64_t i = 0; i < samples; ++i) order[i] = i;
    } else {
      buffer<std::int64_t> next(exec, history.rows + 1);
      std::fill(next.begin(), next.end(), 0);
      for (std::int64_t i = 0; i < samples; ++i) {
        if (inverse[i] < 0 || inverse[i] >= history.rows)
          throw error(errc::out_of_range, "target_attention: no such row of history",
                      {{"sample", i}, {"row", inverse[i]}, {"rows", history.rows}});
        ++next[inverse[i] + 1];
      }
      for (std::int64_t row = 0; row < history.rows; ++row) next[row + 1] += next[row];
      for (std::int64_t i = 0; i < samples; ++i) order[next[inverse[i]]++] = i;
    }
    starts[0] = 0;
    for (std::int64_t p = 0; p < samples; ++p) {
      auto const row = inverse.empty() ? order[p] : inverse[order[p]];
      first_vector[p] = static_cast<std::int64_t>(history.begin_of(row) - history.begin_of(0));
      starts[p + 1] = starts[p] + static_cast<std::int64_t>(history.length(row));
    }
  }
  void clear() noexcept { samples_ = -1; }

  /// The number of samples; negative before it is filled in.
  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t sample(std::int64_t place) const noexcept { return places_.data()[place]; }
  /// The first vector of the place's history, which has `length(place)` vectors.
  std::int64_t first_vector(std::int64_t place) const noexcept { return places_.data()[samples_ + place]; }
  /// For each place the number of pairs of all places before, (samples + 1,).
  std::int64_t const* starts() const noexcept { return places_.data() + 2 * samples_; }
  std::int64_t length(std::int64_t place) const noexcept { return starts()[place + 1] - starts()[place]; }

  /// Calls f(first, last) for chunks of whole places: of at most so many pairs, or of one place.
  template <class F>
  void for_each_chunk(std::int64_t pairs, F const& f) const {
    for (std::int64_t first = 0; first < samples_;) {
      auto const* const end = std::upper_bound(starts() + first + 1, starts() + samples_ + 1, starts()[first] + pairs);
      auto const last = std::max<std::int64_t>(end - starts() - 1, first + 1);
      f(first, last);
      first = last;
    }
  }
  /// The number of pairs of the largest chunk.
  std::int64_t largest_chunk(std::int64_t pairs) const {
    std::int64_t largest = 0;
    for_each_chunk(pairs, [&](std::int64_t first, std::int64_t last) { largest = std::max(largest, starts()[last] - starts()[first]); });
    return largest;
  }

 private:
  std::int64_t samples_ = -1;
  buffer<std::int64_t> places_;  // by place: the sample, the first vector of its history, pairs before it
};

/// The pairs of places [first, last). Pair p is row `p - base()` of a chunk's matrices.
struct target_chunk {
  target_order const& order;
  matrix_view<float const> history, targets;
  std::int64_t first, last;

  static constexpr std::int64_t pairs_per_piece = 512;
  static constexpr std::int64_t vectors_per_piece = 32;

  std::int64_t base() const noexcept { return order.starts()[first]; }
  std::int64_t pairs() const noexcept { return order.starts()[last] - base(); }

  /// Calls f(pair, place, vector) for pairs [begin, end), counted within this chunk.
  template <class F>
  void for_pairs(std::int64_t begin, std::int64_t end, F const& f) const {
    auto const* const starts = order.starts();
    begin += base();
    end += base();
    for (auto place = std::upper_bound(starts + first, starts + last, begin) - starts - 1; begin < end; ++place)
      for (auto const stop = std::min(end, starts[place + 1]); begin < stop; ++begin)
        f(begin - base(), place, order.first_vector(place) + begin - starts[place]);
  }
  /// As above for all pairs, on all threads.
  template <class F>
  void for_each_pair(host_exec const& exec, F const& f) const {
    for_each_piece(exec, pairs(), pairs_per_piece, [&](std::int64_t begin, std::int64_t end) { for_pairs(begin, end, f); });
  }
  /// Calls f(sample, first pair, first vector, length) for all places, on all threads.
  template <class F>
  void for_each_place(host_exec const& exec, F const& f) const {
    for_each_row_block(exec, order.starts() + first, last - first, pairs_per_piece, [&](std::int64_t begin, std::int64_t end) {
      for (auto place = first + begin; place < first + end; ++place)
        f(order.sample(place), order.starts()[place] - base(), order.first_vector(place), order.length(place));
    });
  }
  /// Calls f(vector, pair, sample) for all pairs; those of one vector are on one thread, in the order of samples.
  template <class F>
  void for_each_vector(host_exec const& exec, F const& f) const {
    // Places of one row stand together: the first takes the pairs of them all, so a piece may have much to do.
    for_each_piece(exec, pairs(), vectors_per_piece, [&](std::int64_t begin, std::int64_t end) {
      for_pairs(begin, end, [&](std::int64_t pair, std::int64_t place, std::int64_t vector) {
        if (place > first && same_row(place - 1, place)) return;
        auto const offset = pair + base() - order.starts()[place];
        do f(vector, order.starts()[place] - base() + offset, order.sample(place));
        while (++place < last && same_row(place - 1, place));
      });
    });
  }

 private:
  // An empty row may share its first vector with the next.
  bool same_row(std::int64_t a, std::int64_t b) const noexcept {
    return order.first_vector(a) == order.first_vector(b) && order.length(a) == order.length(b);
  }
};

/// The dot product of two vectors, summed by lanes and then together.
inline float dot_of_vectors(float const* a, float const* b, std::int64_t n) noexcept {
  register_floats<> lanes{};
  std::int64_t c = 0;
  for (; c + register_lanes <= n; c += register_lanes) lanes += load_register<register_lanes>(a + c) * load_register<register_lanes>(b + c);
  float sum = 0;
  for (int i = 0; i < register_lanes; ++i) sum += lanes[i];
  for (; c < n; ++c) sum = multiply_add(a[c], b[c], sum);
  return sum;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
