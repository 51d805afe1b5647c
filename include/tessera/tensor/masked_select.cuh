// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/masked_select.hpp>
#include <tessera/tensor/row_copies.cuh>

// Each value of a tile of the mask gets its rank among the kept values of the tile, each tile the number of those before it. Bytes a value:
// its mask twice, its rank of 2 bytes written and read, and what stays is read and written; a row costs two offsets and a rank.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr int mask_threads = 256;
inline constexpr int mask_bytes = 8;  // a thread
inline constexpr std::int64_t mask_tile = std::int64_t{mask_threads} * mask_bytes;

struct rank_mask {
  static constexpr int threads = mask_threads;
  static constexpr std::int64_t shared_bytes = threads * sizeof(std::int32_t);
  std::uint8_t const* mask;
  std::int64_t size;
  std::int64_t tiles;
  std::uint16_t* ranks;  // (tiles * mask_tile,)
  std::int64_t* counts;  // (tiles,)

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    for (auto tile = block.index(); tile < tiles; tile += block.count()) {
      auto const first = tile * mask_tile + block.thread() * mask_bytes;
      packet<std::uint8_t, mask_bytes> kept{};
      copy_packet<mask_bytes>(mask + first, kept.values, lesser<std::int64_t>(mask_bytes, size - first));
      std::int32_t count = 0;
      for (auto const keep : kept.values) count += keep != 0;
      auto rank = sum_before(block, count);
      if (block.thread() == threads - 1) counts[tile] = rank + count;
      packet<std::uint16_t, mask_bytes> of_values;
      for (int i = 0; i < mask_bytes; ++i) {
        of_values.values[i] = static_cast<std::uint16_t>(rank);
        rank += kept.values[i] != 0;
      }
      *reinterpret_cast<packet<std::uint16_t, mask_bytes>*>(ranks + first) = of_values;
    }
  }

 private:
  // Of the counts of the threads before: within groups of 32 first.
  template <class Block>
  TESSERA_DEVICE static std::int32_t sum_before(Block& block, std::int32_t count) {
    auto* const sums = block.template shared<std::int32_t>();
    auto const thread = block.thread(), lane = thread % 32;
    sums[thread] = count;
    for (int step = 1; step < 32; step *= 2) {
      block.sync_group(32);
      auto const before = lane >= step ? sums[thread - step] : 0;
      block.sync_group(32);
      sums[thread] += before;
    }
    block.sync();
    auto result = sums[thread] - count;
    for (int last = 31; last < thread - lane; last += 32) result += sums[last];
    block.sync();
    return result;
  }
};

/// How many values of the mask's prefix of `place` stay, at most so many as there is mask.
struct kept_before {
  std::uint16_t const* ranks;
  std::int64_t const* tile_starts;
  std::int64_t size;

  TESSERA_HOST_DEVICE constexpr std::int64_t operator()(std::int64_t place) const noexcept {
    place = lesser(place, size);
    return tile_starts[place / mask_tile] + (place % mask_tile == 0 ? 0 : ranks[place]);
  }
};

inline constexpr fault_kind too_short_mask{errc::shape_mismatch, "masked_select: one byte of mask a value", {"values", "mask"}};

template <class Offset>
struct masked_offset {
  Offset const* in;
  std::int64_t rows, room;
  kept_before kept;
  Offset* out;
  fault_reporter too_short, too_many_for_room;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t row) const {
    auto const before = rows == 0 ? 0 : static_cast<std::int64_t>(in[row]) - static_cast<std::int64_t>(in[0]);
    auto const sum = kept(before);
    out[row] = offset_within<Offset>(sum, room);
    if (row < rows) return;
    if (before > kept.size) too_short(block, 0, before, kept.size);
    if (sum > room) too_many_for_room(block, 0, sum, room);
  }
};

template <class T, class Offset>
struct move_kept {
  jagged_view<T const, Offset> in;
  float const* in_weights;
  std::uint8_t const* mask;
  kept_before kept;
  std::int64_t room;
  T* values;
  float* weights;  // or nullptr

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (mask[i] == 0 || i >= in.size()) return;
    auto const to = kept(i);
    if (to >= room) return;
    auto const from = static_cast<std::int64_t>(in.offsets[0]) + i;
    values[to] = in.values[from];
    if (weights != nullptr) weights[to] = in_weights[from];
  }
};

template <device_execution Exec>
struct back_end<masked_select_tag, Exec> {
  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, jagged_view<T, Offset> in, vector_view<std::uint8_t const> mask,
                                                          result_room requested) {
    auto const room = room_for<Offset>(mask, requested);
    auto result = jagged<std::remove_const_t<T>, Offset, Exec>::with_room(exec, in.rows, room);
    select<std::remove_const_t<T>, Offset>(exec, in, nullptr, mask, room, result.offsets().data(), result.view().values, nullptr);
    return result;
  }

  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                vector_view<std::uint8_t const> mask, result_room requested) {
    auto const room = room_for<Offset>(mask, requested);
    auto result = keyed_jagged<std::remove_const_t<T>, Offset, Exec>::with_room(exec, in.keys, in.rows(), room, in.weighted());
    auto const first_rows = first_rows_of(in);
    std::copy(first_rows.begin(), first_rows.end(), result.first_row().begin());
    select<std::remove_const_t<T>, Offset>(exec, in.flat(), in.weights, mask, room, result.offsets().data(), result.view().values,
                                           result.weights().data());
    return result;
  }

 private:
  template <class Offset>
  static std::int64_t room_for(vector_view<std::uint8_t const> mask, result_room requested) noexcept {
    auto const most = std::min(mask.size(), static_cast<std::int64_t>(std::numeric_limits<Offset>::max()));
    return requested.most_values < 0 ? most : std::min(requested.most_values, most);
  }

  template <class T, class Offset>
  static void select(Exec const& exec, jagged_view<T const, Offset> in, float const* in_weights, vector_view<std::uint8_t const> mask,
                     std::int64_t room, Offset* offsets, T* values, float* weights) {
    auto const tiles = divide_up(mask.size(), mask_tile);
    buffer<std::uint16_t, Exec> ranks(exec, tiles * mask_tile);
    buffer<std::int64_t, Exec> counts(exec, tiles + 1), starts(exec, tiles + 1);
    exec.fill(counts.data() + tiles, 0, sizeof(std::int64_t));
    if (tiles > 0)
      exec.launch({.blocks = blocks_for(tiles, 1), .shared_bytes = rank_mask::shared_bytes},
                  rank_mask{mask.data(), mask.size(), tiles, ranks.data(), counts.data()});
    exclusive_scan(exec, counts.view(), starts.view());
    kept_before const kept{ranks.data(), starts.data(), mask.size()};
    launch_for_each(exec, in.rows + 1,
                    masked_offset<Offset>{in.offsets, in.rows, room, kept, offsets, exec.faults(too_short_mask),
                                          exec.faults(past_room).of("masked_select", nullptr)});
    launch_for_each(exec, mask.size(), move_kept<T, Offset>{in, in_weights, mask.data(), kept, room, values, weights});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
