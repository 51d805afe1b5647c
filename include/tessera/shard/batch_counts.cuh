// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/range_tiles.cuh>

namespace tessera {
inline namespace TESSERA_ABI {

/// What the host learns of a batch that lies on a device.
struct batch_counts {
  std::int64_t first_value = 0;                             ///< where the values of the first key begin
  std::vector<std::int64_t> starts{0};                      ///< (keys + 1,): where those of each key begin, from there
  std::int64_t first_refused = -1;                          ///< the first value, from there, that is no id of its key; -1: there is none
  std::int64_t key_of(std::int64_t value) const noexcept {  ///< the key that a value is of
    return std::upper_bound(starts.begin(), starts.end(), value) - starts.begin() - 1;
  }
  std::int64_t values(std::int64_t key) const noexcept {  ///< how many values a key has
    return starts[static_cast<std::size_t>(key) + 1] - starts[static_cast<std::size_t>(key)];
  }
};

/// Counts the values of each key, and checks a batch as the host's calls do. It waits for the device once, and once more where the batch does
/// not say its `room`. `id_bounds` (keys,): a key's ids are from 0 to less than its bound, else `first_refused` says so; a negative one: any
/// are; or none: no ids are looked at.
/// @throws tessera::error invalid_argument for offsets that decrease or leave the room, naming the row; out_of_range for an inverse that names
/// no row, naming group and sample.
template <device_execution Exec>
batch_counts count_batch(Exec const& exec, char const* call, inverse_keyed_jagged_view<std::int64_t const> batch,
                         vector_view<std::int64_t const> id_bounds = {});

namespace detail {

// What the device finds, as words of int64: the first offset, the starts of keys (keys + 1,), then the first row, value and inverse that are
// wrong, each `nothing_wrong` at first.
inline constexpr unsigned char untouched_byte = 0x7F;
inline constexpr std::int64_t nothing_wrong = 0x7F7F'7F7F'7F7F'7F7F;

struct measure_offsets {
  std::int64_t const* offsets;  // of the first row
  std::int64_t rows;
  std::int64_t const* first_rows;  // (keys + 1,), from 0
  std::int64_t keys;
  std::int64_t* first_value;
  std::int64_t* starts;
  std::int64_t* wrong_row;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (i == 0) *first_value = rows == 0 ? 0 : offsets[0];
    if (i <= keys) starts[i] = rows == 0 ? 0 : difference(offsets[0], offsets[first_rows[i]]);
    if (i < rows && offsets[i + 1] < offsets[i]) block.minimum(wrong_row, i);
  }
  // Offsets may be anything yet, so differences may come round.
  TESSERA_HOST_DEVICE static std::int64_t difference(std::int64_t from, std::int64_t to) noexcept {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from));
  }
  TESSERA_HOST_DEVICE static std::int64_t sum(std::int64_t from, std::int64_t difference) noexcept {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(from) + static_cast<std::uint64_t>(difference));
  }
};

// As a part of tiles: values of one key.
struct check_ids {
  std::int64_t const* first_value;
  std::int64_t const* values;
  std::int64_t room;
  std::int64_t const* bounds;
  std::int64_t* wrong_value;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t key, std::int64_t, std::int64_t at, std::int64_t count) const {
    auto const bound = bounds[key];
    if (bound < 0) return;
    for (auto value = at; value < at + count; ++value) {
      if (*first_value < 0 || *first_value >= room - value) return;  // it may be anything yet
      auto const id = values[*first_value + value];
      if (id >= 0 && id < bound) continue;
      block.minimum(wrong_value, value);
      return;
    }
  }
};

struct check_inverse {
  std::int64_t const* inverse;
  std::int64_t rows;
  std::int64_t first;  // number of its first sample among those of all groups
  std::int64_t* wrong_inverse;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (inverse[i] < 0 || inverse[i] >= rows) block.minimum(wrong_inverse, first + i);
  }
};

}  // namespace detail

template <device_execution Exec>
batch_counts count_batch(Exec const& exec, char const* call, inverse_keyed_jagged_view<std::int64_t const> batch,
                         vector_view<std::int64_t const> id_bounds) {
  auto const ids = batch.distinct;
  auto const keys = ids.keys, rows = ids.rows();
  std::vector<std::int64_t> first_rows{0};
  for (std::int64_t key = 0; key < keys; ++key) first_rows.push_back(ids.first_row[key + 1] - ids.first_row[0]);
  auto const* const offsets = ids.flat().offsets;
  if (rows > 0 && offsets == nullptr) throw error(errc::invalid_argument, std::string(call) + ": no offsets", {{"rows", rows}});

  buffer<std::int64_t, Exec> found(exec, keys + 5);
  std::vector<std::int64_t> words(static_cast<std::size_t>(found.size()));
  auto* const starts = found.data() + 1;
  auto* const wrong = starts + keys + 1;  // row, value, inverse
  auto const fetch = [&] { exec.copy_out(words.data(), found.data(), words.size() * sizeof words[0]); };
  auto const* const here = words.data();
  // Offsets are as they should be once this has returned.
  auto const check_offsets = [&] {
    if (auto const row = here[keys + 2]; row != detail::nothing_wrong)
      throw error(errc::invalid_argument, std::string(call) + ": offsets decrease",
                  {{"row", row}, {"offset", read_one(exec, offsets + row)}, {"next offset", read_one(exec, offsets + row + 1)}});
    auto const last = detail::measure_offsets::sum(here[0], here[keys + 1]);
    if (here[0] < 0 || (ids.room >= 0 && last > ids.room))
      throw error(errc::invalid_argument, std::string(call) + ": offsets leave the values",
                  {{"first offset", here[0]}, {"last offset", last}, {"room", ids.room}});
  };

  exec.fill(found.data(), detail::untouched_byte, words.size() * sizeof words[0]);
  auto const first_rows_there = to_device(exec, first_rows);
  detail::launch_for_each(exec, std::max(rows, keys + 1),
                          detail::measure_offsets{offsets, rows, first_rows_there.data(), keys, found.data(), starts, wrong});
  for (std::int64_t g = 0; g < batch.groups.size(); ++g)
    detail::launch_for_each(exec, batch.samples,
                            detail::check_inverse{batch.groups[g].inverse, batch.rows(batch.groups[g]), g * batch.samples, wrong + 2});
  auto room = ids.room;
  buffer<std::int64_t, Exec> bounds;
  if (std::any_of(id_bounds.begin(), id_bounds.end(), [](auto bound) { return bound >= 0; })) {
    if (room < 0) {
      fetch();
      check_offsets();
      room = here[0] + here[keys + 1];
    }
    bounds = to_device(exec, id_bounds);
    detail::launch_tiles<1>(exec, starts, keys, room, detail::check_ids{found.data(), ids.values, room, bounds.data(), wrong + 1});
  }
  fetch();
  check_offsets();
  if (auto const place = here[keys + 4]; place != detail::nothing_wrong) {
    auto const& group = batch.groups[place / batch.samples];
    auto const sample = place % batch.samples;
    throw error(errc::out_of_range, std::string(call) + ": no such row",
                {{"group", place / batch.samples},
                 {"sample", sample},
                 {"row", read_one(exec, group.inverse + sample)},
                 {"rows", batch.rows(group)}});
  }
  batch_counts counts{here[0], {here + 1, here + keys + 2}, here[keys + 3] == detail::nothing_wrong ? -1 : here[keys + 3]};
  return counts;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
