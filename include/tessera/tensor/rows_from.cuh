// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/range_tiles.cuh>
#include <tessera/tensor/row_copies.cuh>
#include <tessera/tensor/rows_from.hpp>

// Bytes a value: read once, written once. Bytes a row: its length, its begin, its sum and its offset are written and read, besides what its
// source reads.
namespace tessera {
inline namespace TESSERA_ABI {

/// Ranges of any array on a device: row i of the result is the range source(i) of `values`. As of a jagged view, with begins past what an
/// Offset counts, too.
template <class Offset, device_execution Exec, class T, class Source>
jagged<std::remove_const_t<T>, Offset, Exec> rows_from(Exec const& exec, vector_view<T> values, std::int64_t rows, Source const& source,
                                                       rows_from_options options = {});

namespace detail {

inline constexpr fault_kind past_values{errc::out_of_range, "a range past the values", {"row", "begin", "length", "first value", "values"}};
inline constexpr fault_kind past_values_of_key{
    errc::out_of_range, "a range past the values", {"key", "row", "begin", "length", "first value", "values"}};

/// Which values ranges may name: those of rows, or so many from the first one on.
template <class Offset>
struct value_bounds {
  Offset const* offsets;  // or nullptr
  std::int64_t rows, values;

  TESSERA_HOST_DEVICE std::int64_t first() const noexcept { return offsets == nullptr || rows == 0 ? 0 : offsets[0]; }
  TESSERA_HOST_DEVICE std::int64_t count() const noexcept {
    if (offsets == nullptr) return values;
    return rows == 0 ? 0 : static_cast<std::int64_t>(offsets[rows]) - static_cast<std::int64_t>(offsets[0]);
  }
};

/// As a source: row i of key k is row lists[k][i] of that key, or row i of a key without a list. A row that is not there has no values.
template <class Offset>
struct listed_row {
  key_ranges<Offset> in;
  std::int64_t const* const* lists;  // (keys,) of (count,) each, or nullptr
  std::int64_t count;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE value_range<> operator()(Block& block, std::int64_t key, std::int64_t i) const {
    auto const row = lists[key] == nullptr ? i : lists[key][i];
    if (in.has(key, row)) return in(key, row);
    missing(block, key * count + i, key, i, row, in.rows(key));
    return {};
  }
};

/// Asks the source for each row's range; what lies past the values has none.
template <bool Keyed, class Offset, class Begin, class Source>
struct find_ranges {
  Source source;
  std::int64_t const* first_rows;  // (keys + 1,), where there are keys
  std::int64_t keys;
  value_bounds<Offset> bounds;
  Offset* lengths;
  Begin* begins;
  fault_reporter negative, past;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t at) const {
    auto const key = Keyed ? range_of(first_rows, keys, at) : -1, row = Keyed ? at - first_rows[key] : at;
    auto range = ask(block, key, row);
    if (range.length < 0) {
      negative(block, at, at, range.length);
      range = {};
    } else if (auto const first = bounds.first(), count = bounds.count(); !range.is_within(first, count)) {
      if constexpr (Keyed)
        past(block, at, key, row, range.begin, range.length, first, count);
      else
        past(block, at, row, range.begin, range.length, first, count);
      range = {};
    }
    lengths[at] = static_cast<Offset>(range.length);
    begins[at] = static_cast<Begin>(range.begin);
  }

 private:
  template <class Block>
  TESSERA_DEVICE value_range<> ask(Block& block, std::int64_t key, std::int64_t row) const {
    auto of_row = source;
    if constexpr (Keyed && std::is_invocable_v<Source&, Block&, std::int64_t, std::int64_t>)
      return of_row(block, key, row);
    else if constexpr (Keyed)
      return of_row(key, row);
    else if constexpr (std::is_invocable_v<Source&, Block&, std::int64_t>)
      return of_row(block, row);
    else
      return of_row(row);
  }
};

/// Sums of lengths to offsets, none past the room; says where the sums leave their type, and whether the last one is past the room.
template <class Offset>
struct finish_offset {
  static constexpr auto most = static_cast<std::int64_t>(std::numeric_limits<Offset>::max());
  std::int64_t const* sums;
  Offset const* lengths;
  Offset* offsets;
  std::int64_t rows, room;
  fault_reporter too_many, too_many_for_room;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t row) const {
    auto const sum = sums[row];
    offsets[row] = offset_within<Offset>(sum, room);
    if (sum < 0 || sum > most) return too_many(block, row - 1, row - 1, lengths[row - 1], most);
    if (row == rows && sum > room) too_many_for_room(block, 0, sum, room);
  }
};

template <class T, class Begin>
struct source_of_range {
  T const* values;
  float const* weights;
  Begin const* begins;

  TESSERA_HOST_DEVICE copied_values<T> operator()(std::int64_t range) const {
    auto const begin = static_cast<std::int64_t>(begins[range]);
    return {values + begin, weights == nullptr ? nullptr : weights + begin};
  }
};

/// Finds the ranges, says how much room the result needs, and then fills it.
template <bool Keyed, class Offset, class Begin, device_execution Exec>
class found_ranges {
 public:
  template <class Source>
  found_ranges(Exec const& exec, std::int64_t rows, Source const& source, std::int64_t const* first_rows, std::int64_t keys,
               value_bounds<Offset> bounds, rows_from_options const& options)
      : exec_(exec), caller_(options.caller), begins_(exec, rows), lengths_(exec, rows + 1), sums_(exec, rows + 1) {
    exec.fill(lengths_.data() + rows, 0, sizeof(Offset));
    launch_for_each(exec, rows,
                    find_ranges<Keyed, Offset, Begin, Source>{
                        source, first_rows, keys, bounds, lengths_.data(), begins_.data(), exec.faults(negative_length),
                        exec.faults(Keyed ? past_values_of_key : past_values).of(options.caller, nullptr)});
    exclusive_scan(exec, lengths_.view(), sums_.view());
    room_ = room_of<Offset>(exec, options.room, rows == 0 ? 0 : -1, sums_.data() + rows);
  }

  std::int64_t room() const noexcept { return room_; }

  template <class T>
  void copy(T const* from, float const* from_weights, Offset* offsets, T* values, float* weights) const {
    auto const rows = begins_.size();
    launch_for_each(exec_, rows + 1,
                    finish_offset<Offset>{sums_.data(), lengths_.data(), offsets, rows, room_, exec_.faults(sum_past_offset),
                                          exec_.faults(past_room).of(caller_, nullptr)});
    copy_tiles(exec_, static_cast<Offset const*>(offsets), rows, room_, source_of_range<T, Begin>{from, from_weights, begins_.data()},
               values, weights);
  }

 private:
  Exec exec_;
  char const* caller_;
  buffer<Begin, Exec> begins_;
  buffer<Offset, Exec> lengths_;
  buffer<std::int64_t, Exec> sums_;
  std::int64_t room_ = 0;
};

template <device_execution Exec>
struct back_end<rows_from_tag, Exec> {
  template <class T, class Offset, class Source>
  static auto run(Exec const& exec, jagged_view<T, Offset> in, std::int64_t rows, Source const& source, rows_from_options const& options) {
    return of_values<Offset, Offset>(exec, in.values, rows, source, {in.offsets, in.rows, 0}, options);
  }

  template <class Offset, class Begin, class T, class Source>
  static auto of_values(Exec const& exec, T* values, std::int64_t rows, Source const& source, value_bounds<Offset> bounds,
                        rows_from_options const& options) {
    using value = std::remove_const_t<T>;
    found_ranges<false, Offset, Begin, Exec> const found(exec, rows, source, nullptr, 0, bounds, options);
    auto result = jagged<value, Offset, Exec>::with_room(exec, rows, found.room());
    found.template copy<value>(values, nullptr, result.offsets().data(), result.view().values, nullptr);
    return result;
  }

  template <class T, class Offset, class Source>
  static auto run(Exec const& exec, keyed_jagged_view<T, Offset> in, vector_view<std::int64_t const> rows_per_key, std::int64_t rows,
                  Source const& source, rows_from_options const& options) {
    using value = std::remove_const_t<T>;
    std::vector<std::int64_t> first_rows{0};
    for (auto const count : rows_per_key) first_rows.push_back(first_rows.back() + count);
    auto const device_first_rows = to_device(exec, first_rows);
    auto const flat = in.flat();
    found_ranges<true, Offset, Offset, Exec> const found(exec, rows, source, device_first_rows.data(), in.keys,
                                                         {flat.offsets, flat.rows, 0}, options);
    auto result = keyed_jagged<value, Offset, Exec>::with_room(exec, in.keys, rows, found.room(), in.weighted());
    std::copy(first_rows.begin(), first_rows.end(), result.first_row().begin());
    found.template copy<value>(in.values, in.weights, result.offsets().data(), result.view().values, result.weights().data());
    return result;
  }
};

}  // namespace detail

template <class Offset, device_execution Exec, class T, class Source>
jagged<std::remove_const_t<T>, Offset, Exec> rows_from(Exec const& exec, vector_view<T> values, std::int64_t rows, Source const& source,
                                                       rows_from_options options) {
  return detail::back_end<detail::rows_from_tag, Exec>::template of_values<Offset, std::int64_t>(exec, values.data(), rows, source,
                                                                                                 {nullptr, 0, values.size()}, options);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
