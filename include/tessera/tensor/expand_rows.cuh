// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/expand_rows.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>
#include <tessera/tensor/rows_from.cuh>

// How many rows come out, per key, and how many values, the host learns in one wait. A row of the result then finds by search the row that
// it repeats.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind negative_repeat{errc::invalid_argument, "expand_rows: negative repeat", {"row", "repeat"}};
inline constexpr fault_kind negative_repeat_of_key{errc::invalid_argument, "expand_rows: negative repeat", {"key", "row", "repeat"}};

/// Writes how many rows, and how many values at most 2^62, a row becomes; for the one past the last none.
template <class Offset>
struct count_repeats {
  Offset const* offsets;
  std::int64_t const* repeats;
  std::int64_t const* first_rows;  // (keys + 1,), or nullptr: no keys
  std::int64_t keys, rows;
  bool each_row;  // there is one repeat a row of all keys, not of each
  std::int64_t* counts;
  std::int64_t* sizes;
  fault_reporter negative;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t row) const {
    counts[row] = sizes[row] = 0;
    if (row == rows) return;
    auto const key = first_rows == nullptr ? 0 : range_of(first_rows, keys, row);
    auto const within = first_rows == nullptr ? row : row - first_rows[key];
    auto const repeat = repeats[each_row ? row : within];
    if (repeat < 0) {
      if (first_rows == nullptr) return negative(block, row, row, repeat);
      return negative(block, row, key, within, repeat);
    }
    constexpr auto most = std::int64_t{1} << 62;
    auto const length = static_cast<std::int64_t>(offsets[row + 1]) - static_cast<std::int64_t>(offsets[row]);
    counts[row] = repeat;
    sizes[row] = length <= 0 || repeat == 0 ? 0 : repeat > most / length ? most : repeat * length;
  }
};

/// Says where the rows become too many to count, and counts how often.
struct check_repeats {
  static constexpr auto most = std::numeric_limits<std::int64_t>::max();
  std::int64_t const* counts;
  std::int64_t const* starts;
  std::int64_t* wrong;
  fault_reporter too_many;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t row) const {
    if (starts[row + 1] >= starts[row]) return;
    block.add(wrong, std::int64_t{1});
    too_many(block, row, row, counts[row], most);
  }
};

/// What the host must know: where each key's rows begin, and then the number of values.
struct gather_counts {
  std::int64_t const* starts;
  std::int64_t const* first_rows;  // or nullptr: no keys
  std::int64_t keys, rows;
  std::int64_t const* value_sum;
  std::int64_t* numbers;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (i > keys)
      numbers[i] = *value_sum;
    else
      numbers[i] = starts[first_rows == nullptr ? i * rows : first_rows[i]];
  }
};

/// As a source of rows, of keys or not. Row `at` of the result is one of the rows [starts[r], starts[r + 1]) that row r becomes.
template <class Offset>
struct expanded_row {
  Offset const* offsets;
  std::int64_t const* starts;
  std::int64_t rows;
  std::int64_t const* first_rows;  // (keys + 1,), or nullptr: no keys

  TESSERA_DEVICE value_range<> operator()(std::int64_t at) const {
    auto const row = range_of(starts, rows, at);
    return {offsets[row], static_cast<std::int64_t>(offsets[row + 1]) - static_cast<std::int64_t>(offsets[row])};
  }
  TESSERA_DEVICE value_range<> operator()(std::int64_t key, std::int64_t i) const { return (*this)(starts[first_rows[key]] + i); }
};

template <device_execution Exec>
struct back_end<expand_rows_tag, Exec> {
  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, jagged_view<T, Offset> in,
                                                          vector_view<std::int64_t const> repeats, result_room room) {
    auto const counted = count(exec, in, repeats, nullptr, 1, true, exec.faults(negative_repeat));
    return rows_from(exec, in, counted.first_rows.back(), expanded_row<Offset>{in.offsets, counted.starts.data(), in.rows, nullptr},
                     {room.most_values < 0 ? result_room{counted.values} : room, "expand_rows"});
  }

  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                vector_view<std::int64_t const> repeats, std::vector<std::string> const*,
                                                                result_room room) {
    auto const first_rows = to_device(exec, first_rows_of(in));
    auto const counted =
        count(exec, in.flat(), repeats, first_rows.data(), in.keys, repeats.size() == in.rows(), exec.faults(negative_repeat_of_key));
    auto const& first = counted.first_rows;
    std::vector<std::int64_t> rows_per_key;
    for (std::size_t key = 1; key < first.size(); ++key) rows_per_key.push_back(first[key] - first[key - 1]);
    return rows_from(exec, in, rows_per_key, expanded_row<Offset>{in.flat().offsets, counted.starts.data(), in.rows(), first_rows.data()},
                     {room.most_values < 0 ? result_room{counted.values} : room, "expand_rows"});
  }

 private:
  struct counts {
    buffer<std::int64_t, Exec> starts;     // (rows + 1,): of the rows that each becomes
    std::vector<std::int64_t> first_rows;  // (keys + 1,), of the result
    std::int64_t values;
  };

  template <class T, class Offset>
  static counts count(Exec const& exec, jagged_view<T, Offset> in, vector_view<std::int64_t const> repeats, std::int64_t const* first_rows,
                      std::int64_t keys, bool each_row, fault_reporter negative) {
    auto const n = in.rows + 1;
    buffer<std::int64_t, Exec> rows(exec, n), sizes(exec, n), starts(exec, n), sums(exec, n), numbers(exec, keys + 3);
    auto* const wrong = numbers.data() + keys + 2;
    exec.fill(wrong, 0, sizeof(std::int64_t));
    launch_for_each(
        exec, n,
        count_repeats<Offset>{in.offsets, repeats.data(), first_rows, keys, in.rows, each_row, rows.data(), sizes.data(), negative});
    exclusive_scan(exec, rows.view(), starts.view());
    exclusive_scan(exec, sizes.view(), sums.view());
    launch_for_each(exec, in.rows, check_repeats{rows.data(), starts.data(), wrong, exec.faults(sum_past_offset)});
    launch_for_each(exec, keys + 2, gather_counts{starts.data(), first_rows, keys, in.rows, sums.data() + in.rows, numbers.data()});

    std::vector<std::int64_t> known(static_cast<std::size_t>(keys + 3));
    exec.copy_out(known.data(), numbers.data(), known.size() * sizeof(std::int64_t));
    bool const countable = known.back() == 0;
    auto const values = known[known.size() - 2];
    constexpr auto most = static_cast<std::int64_t>(std::numeric_limits<Offset>::max());
    known.resize(static_cast<std::size_t>(keys + 1));
    if (!countable) known.assign(known.size(), 0);  // a fault: a result without rows
    return {std::move(starts), std::move(known), countable && values >= 0 && values <= most ? values : 0};
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
