// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/range_tiles.cuh>

/// What messages between devices are made of, and taken apart into: any number of pieces in one launch.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Rows of words of 4 bytes that are copied. Strides are words.
struct words_copy {
  std::uint32_t const* from;  // nullptr: floats of 1 are written
  std::uint32_t* to;
  std::int64_t columns, from_stride, to_stride;
};

/// As a part of tiles: one copy a range, whose words are numbered row by row.
struct copy_words {
  words_copy const* copies;

  TESSERA_HOST_DEVICE void operator()(std::int64_t range, std::int64_t within, std::int64_t, std::int64_t count) const {
    constexpr std::uint32_t one = 0x3F80'0000;  // as a float
    auto const& copy = copies[range];
    auto const row = within < copy.columns ? 0 : within / copy.columns;
    auto column = within - row * copy.columns;
    auto const* from = copy.from == nullptr ? nullptr : copy.from + row * copy.from_stride + column;
    auto* to = copy.to + row * copy.to_stride + column;
    if (from != nullptr && count == 4 && column + 4 <= copy.columns && is_aligned(from) && is_aligned(to))
      return write_four(to, read_four(from, 4, true), 4, true);
    for (std::int64_t i = 0; i < count; ++i) {
      *to++ = from == nullptr ? one : *from++;
      if (++column < copy.columns) continue;
      column = 0;
      to += copy.to_stride - copy.columns;
      if (from != nullptr) from += copy.from_stride - copy.columns;
    }
  }

  TESSERA_HOST_DEVICE static bool is_aligned(std::uint32_t const* at) noexcept { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }
};

/// Where rows end among the ids of their block, from a batch's offsets.
struct ends_of_offsets {
  std::int64_t const* offsets;  // of the first row
  std::uint32_t* ends;
};

/// As a part of tiles: the rows of one block a range.
struct write_ends {
  ends_of_offsets const* blocks;

  TESSERA_HOST_DEVICE void operator()(std::int64_t range, std::int64_t within, std::int64_t, std::int64_t count) const {
    auto const& block = blocks[range];
    for (auto row = within; row < within + count; ++row)
      block.ends[row] = static_cast<std::uint32_t>(block.offsets[row + 1] - block.offsets[0]);
  }
};

/// The other way, behind the first offset of a block.
struct offsets_of_ends {
  std::uint32_t const* ends;
  std::int64_t first_value;
  std::int64_t* offsets;
};
struct read_ends {
  offsets_of_ends const* blocks;

  TESSERA_HOST_DEVICE void operator()(std::int64_t range, std::int64_t within, std::int64_t, std::int64_t count) const {
    auto const& block = blocks[range];
    for (auto row = within; row < within + count; ++row) block.offsets[row] = block.first_value + block.ends[row];
  }
};

/// Pieces of work with a number of units each, which one launch does. The lists travel to the device with it: lists of more than 64 KiB wait
/// for the stream there.
template <class Piece, class Part, int Width>
class launched_pieces {
 public:
  void add(std::int64_t units, Piece const& piece) {
    if (units <= 0) return;
    pieces_.push_back(piece);
    starts_.push_back(starts_.back() + units);
  }
  template <device_execution Exec>
  void launch(Exec const& exec) const {
    if (pieces_.empty()) return;
    auto const starts = to_device(exec, starts_);
    auto const pieces = to_device(exec, pieces_);
    launch_tiles<Width>(exec, starts.data(), static_cast<std::int64_t>(pieces_.size()), starts_.back(), Part{pieces.data()});
  }

 private:
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> starts_{0};
};

using ends_to_write = launched_pieces<ends_of_offsets, write_ends, 1>;
using ends_to_read = launched_pieces<offsets_of_ends, read_ends, 1>;

/// Copies of plain data of multiples of 4 bytes. What is written overlaps nothing.
class word_copies {
 public:
  /// `count` values one after the other; without `from`, floats of 1.
  template <class T>
  void add(T const* from, T* to, std::int64_t count) {
    static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
    auto const words = count * static_cast<std::int64_t>(sizeof(T) / sizeof(std::uint32_t));
    copies_.add(words, {reinterpret_cast<std::uint32_t const*>(from), reinterpret_cast<std::uint32_t*>(to), words, words, words});
  }
  /// Rows of any stride, as many as both have.
  void add(matrix_view<float const> from, matrix_view<float> to) {
    copies_.add(to.rows() * to.columns(), {reinterpret_cast<std::uint32_t const*>(from.data()), reinterpret_cast<std::uint32_t*>(to.data()),
                                           to.columns(), from.stride(), to.stride()});
  }
  template <device_execution Exec>
  void launch(Exec const& exec) const {
    copies_.launch(exec);
  }

 private:
  launched_pieces<words_copy, copy_words, 4> copies_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
