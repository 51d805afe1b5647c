// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Which values of a row stay when not all do.
enum class kept_values { first, last };

/// For how many values a result gets memory: the last argument of the operations over rows.
///
/// The host counts a result's values, and needs no number. On a device, without a number, a call reserves or waits as its contract says; with
/// one it never waits. A result of more values than this is an error everywhere.
struct result_room {
  std::int64_t most_values = -1;  // negative: no number
};

// How the operations over rows copy runs of whole rows; <tessera/tensor/rows_from.hpp> copies one range of values a row. Both cut the
// values that they write into pieces of equal bytes, so that one long row or key keeps no thread waiting.
namespace detail {

inline constexpr std::int64_t copied_bytes_per_piece = 1 << 18;
inline constexpr std::int64_t copied_rows_per_piece = 1 << 13;

template <class T>
constexpr std::int64_t copied_values_per_piece(bool weighted) noexcept {
  auto const bytes = static_cast<std::int64_t>(sizeof(T) + (weighted ? sizeof(float) : 0));
  return std::max<std::int64_t>(1, copied_bytes_per_piece / bytes);
}

/// @throws tessera::error where a result has more values than it was to have.
inline void check_room(char const* call, std::int64_t values, result_room room) {
  if (room.most_values >= 0 && values > room.most_values)
    throw error(errc::out_of_range, std::string(call) + ": more values than the result was given room for",
                {{"values", values}, {"room", room.most_values}});
}

/// The key of a row counted over all keys.
template <class T, class Offset>
std::int64_t key_of_row(keyed_jagged_view<T, Offset> view, std::int64_t row) noexcept {
  return std::upper_bound(view.first_row, view.first_row + view.keys, view.first_row[0] + row) - view.first_row - 1;
}

/// Neighbouring rows, to be copied as they are.
template <class T, class Offset>
struct row_run {
  jagged_view<T const, Offset> rows;
  float const* weights;          // one a value of `rows.values`, or nullptr
  std::int64_t first_row = 0;    // in the result
  std::int64_t first_value = 0;  // in the result
};

/// Puts runs one after the other. @return rows and values in all. @throws tessera::error where the values are more than an Offset counts.
template <class T, class Offset>
std::pair<std::int64_t, std::int64_t> place_runs(char const* call, vector_view<row_run<T, Offset>> runs) {
  std::int64_t rows = 0, values = 0;
  for (auto& run : runs) {
    run.first_row = rows;
    run.first_value = values;
    rows += run.rows.rows;
    auto const size = run.rows.size();
    if (size < 0 || size > static_cast<std::int64_t>(std::numeric_limits<Offset>::max()) - values)
      throw error(errc::out_of_range, std::string(call) + ": the values do not fit into an offset",
                  {{"values", size}, {"values before", values}, {"largest offset", std::numeric_limits<Offset>::max()}});
    values += size;
  }
  return {rows, values};
}

/// Copies placed runs: `offsets` (rows + 1,), `values`, and `weights` unless it is nullptr.
template <class T, class Offset>
void copy_runs(host_exec const& exec, vector_view<row_run<T, Offset> const> runs, std::int64_t rows, std::int64_t values, Offset* offsets,
               T* to, float* weights) {
  auto const row_pieces = divide_up(rows, copied_rows_per_piece);
  auto const grain = copied_values_per_piece<T>(weights != nullptr);
  offsets[rows] = static_cast<Offset>(values);
  exec.run(row_pieces + divide_up(values, grain), [&](std::int64_t piece) {
    if (piece < row_pieces) {
      auto at = piece * copied_rows_per_piece;
      auto const last = std::min(rows, at + copied_rows_per_piece);
      auto run = std::upper_bound(runs.begin(), runs.end(), at, [](std::int64_t row, auto const& r) { return row < r.first_row; }) - 1;
      for (; at < last; ++run) {
        auto const end = std::min(last, run->first_row + run->rows.rows);
        if (end <= at) continue;
        auto const* const from = run->rows.offsets + (at - run->first_row);
        auto const shift = static_cast<Offset>(run->first_value - run->rows.offsets[0]);
        for (std::int64_t i = 0; i < end - at; ++i) offsets[at + i] = static_cast<Offset>(from[i] + shift);
        at = end;
      }
      return;
    }
    auto at = (piece - row_pieces) * grain;
    auto const last = std::min(values, at + grain);
    auto run = std::upper_bound(runs.begin(), runs.end(), at, [](std::int64_t value, auto const& r) { return value < r.first_value; }) - 1;
    for (; at < last; ++run) {
      auto const end = std::min(last, run->first_value + run->rows.size());
      if (end <= at) continue;
      auto const from = run->rows.first_value() + (at - run->first_value);
      std::copy_n(run->rows.values + from, end - at, to + at);
      if (weights != nullptr) std::copy_n(run->weights + from, end - at, weights + at);
      at = end;
    }
  });
}

/// The batch of these runs, as many a key of the result each, key after key. Weighted where any run is.
template <class T, class Offset>
keyed_jagged<T, Offset> batch_of_runs(host_exec const& exec, char const* call, vector_view<row_run<T, Offset>> runs, std::int64_t keys,
                                      result_room room) {
  auto const [rows, values] = place_runs(call, runs);
  check_room(call, values, room);
  bool const weighted = std::any_of(runs.begin(), runs.end(), [](auto const& run) { return run.weights != nullptr; });
  auto result = keyed_jagged<T, Offset>::with_room(exec, keys, rows, values, weighted);
  auto const runs_per_key = keys == 0 ? 0 : runs.size() / keys;
  for (std::int64_t key = 0; key < keys; ++key) result.first_row()[key] = runs[key * runs_per_key].first_row;
  result.first_row()[keys] = rows;
  copy_runs<T, Offset>(exec, runs, rows, values, result.offsets().data(), result.view().values, result.weights().data());
  return result;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
