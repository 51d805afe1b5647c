// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/padded.hpp>
#include <tessera/tensor/row_copies.cuh>
#include <tessera/tensor/rows_from.cuh>

// A row of the matrix is written by a power of two of neighbouring threads, up to 32, a packet each at a time; long rows are cut into
// chunks of some packets a thread. Bytes: the values that stay are read once, the matrix is written once, two offsets a chunk are read.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr int padded_threads = 256;
inline constexpr std::int64_t padded_packets = 4;  // of a chunk, a thread

struct padded_layout {
  int lanes_bits;       // the threads of a row, log2
  std::int64_t chunks;  // of a row

  TESSERA_HOST_DEVICE constexpr std::int64_t chunk_columns(int width) const noexcept { return (padded_packets << lanes_bits) * width; }
  constexpr std::int64_t blocks(std::int64_t rows) const noexcept { return blocks_for(rows * chunks, padded_threads >> lanes_bits); }
};
/// @pre columns >= 1; `width` columns are a packet.
constexpr padded_layout padded_layout_of(std::int64_t columns, int width) noexcept {
  auto const packets = divide_up(columns, width);
  int bits = 0;
  while (bits < 5 && (1 << bits) < packets) ++bits;
  return {bits, divide_up(packets, padded_packets << bits)};
}

template <int Width, class T, class Offset>
struct pad_rows {
  static constexpr int threads = padded_threads;
  jagged_view<T const, Offset> in;
  matrix_view<T> out;
  T padding;
  bool last;  // of a row stay, not the first
  padded_layout layout;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const groups = threads >> layout.lanes_bits;
    auto const lane = block.thread() & ((1 << layout.lanes_bits) - 1);
    auto const columns = layout.chunk_columns(Width);
    auto const units = in.rows * layout.chunks;
    for (auto unit = block.index() * groups + (block.thread() >> layout.lanes_bits); unit < units; unit += block.count() * groups) {
      auto const row = layout.chunks == 1 ? unit : unit / layout.chunks;
      auto const first = (unit - row * layout.chunks) * columns;
      pad(row, first + lane * Width, lesser(first + columns, out.column_count), Width << layout.lanes_bits);
    }
  }

 private:
  TESSERA_DEVICE void pad(std::int64_t row, std::int64_t column, std::int64_t end, std::int64_t step) const {
    auto const length = lesser(in.length(row), out.column_count);
    auto const* const from =
        in.values + (last ? static_cast<std::int64_t>(in.end_of(row)) - length : static_cast<std::int64_t>(in.begin_of(row)));
    auto* const to = out.pointer + row * out.row_stride;
    for (; column < end; column += step) {
      auto const count = lesser<std::int64_t>(Width, end - column);
      if (column + count <= length) {
        copy_packet<Width>(from + column, to + column, count);
        continue;
      }
      packet<T, Width> filled;
      for (int i = 0; i < Width; ++i) filled.values[i] = column + i < length ? from[column + i] : padding;
      if (count == Width) {
        *reinterpret_cast<packet<T, Width>*>(to + column) = filled;
      } else {
        for (int i = 0; i < Width; ++i)
          if (i < count) to[column + i] = filled.values[i];
      }
    }
  }
};

inline constexpr fault_kind no_padded_length{errc::out_of_range, "from_padded: no such length", {"row", "length", "columns"}};

/// As a source: row i of the matrix, as long as `lengths` says. A row is one of no values where that is longer than the matrix is wide.
template <class Offset>
struct unpadded_row {
  Offset const* lengths;
  std::int64_t columns, stride;
  fault_reporter wrong;

  template <class Block>
  TESSERA_DEVICE value_range<> operator()(Block& block, std::int64_t row) const {
    auto const length = static_cast<std::int64_t>(lengths[row]);
    if (length >= 0 && length <= columns) return {row * stride, length};
    wrong(block, row, row, length, columns);
    return {};
  }
};

template <device_execution Exec>
struct back_end<padded_tag, Exec> {
  template <class T, class Offset>
  static void to(Exec const& exec, jagged_view<T, Offset> in, matrix_view<std::remove_const_t<T>> out, std::remove_const_t<T> padding,
                 kept_values kept) {
    using value = std::remove_const_t<T>;
    constexpr int width = packet_width<value>;
    if (in.rows == 0 || out.columns() == 0) return;
    bool const by_packets = out.stride() % width == 0 && reinterpret_cast<std::uintptr_t>(out.data()) % sizeof(packet<value, width>) == 0;
    by_packets ? launch<width, value, Offset>(exec, in, out, padding, kept) : launch<1, value, Offset>(exec, in, out, padding, kept);
  }

  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset, Exec> from(Exec const& exec, matrix_view<T> in, vector_view<Offset const> lengths,
                                                           result_room room) {
    if (room.most_values < 0) room.most_values = in.rows() * in.columns();
    vector_view<T> const values(in.data(), in.rows() == 0 ? 0 : (in.rows() - 1) * in.stride() + in.columns());
    return rows_from<Offset>(exec, values, lengths.size(),
                             unpadded_row<Offset>{lengths.data(), in.columns(), in.stride(), exec.faults(no_padded_length)},
                             {room, "from_padded"});
  }

 private:
  template <int Width, class T, class Offset>
  static void launch(Exec const& exec, jagged_view<T const, Offset> in, matrix_view<T> out, T padding, kept_values kept) {
    auto const layout = padded_layout_of(out.columns(), Width);
    exec.launch({.blocks = layout.blocks(in.rows)}, pad_rows<Width, T, Offset>{in, out, padding, kept == kept_values::last, layout});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
