// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Values that follow each other, or vectors: those at [begin, begin + length) of their array.
template <class Offset = std::int64_t>
struct value_range {
  Offset begin = 0;   ///< of the first value
  Offset length = 0;  ///< values

  /// Whether the range is empty or lies in [first, first + count), whatever the numbers are.
  TESSERA_HOST_DEVICE constexpr bool is_within(std::int64_t first, std::int64_t count) const noexcept {
    std::int64_t const from = begin, size = length;
    auto const skipped = static_cast<std::uint64_t>(from) - static_cast<std::uint64_t>(first),
               left = static_cast<std::uint64_t>(count) - static_cast<std::uint64_t>(size);
    // Without branches: ranges of rows are empty here and there.
    return bool((size == 0) | ((size > 0) & (size <= count) & (from >= first) & (skipped <= left)));
  }

  friend constexpr bool operator==(value_range const&, value_range const&) = default;
};

/// Rows of different length: row i is values[offsets[i], offsets[i + 1]). Trivially copyable.
///
/// A view of a part shares `values` with the whole, so offsets[0] need not be 0. Operations on the host refuse rows that reach past `room`.
template <class T, class Offset = std::int64_t>
struct jagged_view {
  T* values = nullptr;              // (>= offsets[rows],)
  Offset const* offsets = nullptr;  // (rows + 1,), non-decreasing; nullptr where rows == 0 is an empty view
  std::int64_t rows = 0;
  std::int64_t room = -1;  // how many values there is memory for from `values` on; -1: whoever made the view did not say

  /// Where a row begins in `values`. @pre 0 <= row < rows, here and below.
  TESSERA_HOST_DEVICE constexpr Offset begin_of(std::int64_t row) const noexcept { return offsets[row]; }
  /// Where a row ends in `values`.
  TESSERA_HOST_DEVICE constexpr Offset end_of(std::int64_t row) const noexcept { return offsets[row + 1]; }
  /// How many values a row has.
  TESSERA_HOST_DEVICE constexpr std::int64_t length(std::int64_t row) const noexcept { return offsets[row + 1] - offsets[row]; }
  /// The values of a row, (length(row),), in place.
  TESSERA_HOST_DEVICE constexpr vector_view<T> row(std::int64_t row) const noexcept { return {values + offsets[row], length(row)}; }
  /// Values in all rows.
  TESSERA_HOST_DEVICE constexpr std::int64_t size() const noexcept { return rows == 0 ? 0 : offsets[rows] - offsets[0]; }
  /// Where the values of the first row begin in `values`.
  TESSERA_HOST_DEVICE constexpr std::int64_t first_value() const noexcept { return rows == 0 ? 0 : offsets[0]; }
  /// The values of all rows, (size(),), in place.
  TESSERA_HOST_DEVICE constexpr vector_view<T> all_values() const noexcept { return {rows == 0 ? values : values + offsets[0], size()}; }
  /// Rows [first, first + count), in place.
  TESSERA_HOST_DEVICE constexpr jagged_view slice(std::int64_t first, std::int64_t count) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_part("jagged_view rows", first, count, rows);
    return {values, offsets + first, count, room};
  }
  /// The same rows of other values, such as those of a gradient. `others` (>= offsets[rows],).
  template <class U>
  TESSERA_HOST_DEVICE constexpr jagged_view<U, Offset> with_values(U* others) const noexcept {
    return {others, offsets, rows, room};
  }

  template <class U>
    requires(std::same_as<U, T const> && !std::is_const_v<T>)
  TESSERA_HOST_DEVICE constexpr operator jagged_view<U, Offset>() const noexcept {  // NOLINT: implicit, to const
    return {values, offsets, rows, room};
  }
};

static_assert(std::is_trivially_copyable_v<jagged_view<float>>);

namespace detail {

template <class View>
void check_rows(char const* call, std::string_view argument, View view);

/// How many offsets bound so many rows, or keys. @throws tessera::error invalid_argument for a number that no memory has.
inline std::int64_t bounds_of(char const* owner, char const* what, std::int64_t count) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(std::int64_t)) - 1;
  if (count < 0 || count > most)
    throw error(errc::invalid_argument, std::string(owner) + ": number of " + what, {{what, count}, {"most", most}});
  return count + 1;
}

/// Whether an int64 counts so many times so many.
inline bool is_countable(std::int64_t outer, std::int64_t inner) noexcept {
  std::int64_t product = 0;
  return !__builtin_mul_overflow(outer, inner, &product);
}

}  // namespace detail

/// Owns the rows of one feature, whose offsets[0] is 0. Move-only.
///
/// What reads values or offsets is for the host. On a device there are `with_room` and `copy_of`; `size()` is the number of values that
/// there is room for.
template <class T, class Offset = std::int64_t, execution Exec = host_exec>
class jagged {
  static constexpr bool on_host = !device_execution<Exec>;

 public:
  jagged() = default;

  /// Copies rows given one by one.
  static jagged from_rows(host_exec const& exec, std::vector<std::vector<T>> const& rows) requires on_host {
    std::vector<Offset> lengths;
    lengths.reserve(rows.size());
    for (auto const& row : rows) lengths.push_back(static_cast<Offset>(row.size()));
    std::vector<T> values;
    for (auto const& row : rows) values.insert(values.end(), row.begin(), row.end());
    return from_lengths(exec, values, lengths);
  }

  /// Copies `values` (sum of lengths,) and `lengths` (rows,). @throws tessera::error invalid_argument for a negative length, shape_mismatch
  /// unless the lengths sum to the number of values.
  static jagged from_lengths(host_exec const& exec, vector_view<T const> values, vector_view<Offset const> lengths) requires on_host {
    jagged result;
    auto const sum = result.set_lengths(exec, lengths);
    if (sum != values.size())
      throw error(errc::shape_mismatch, "jagged: lengths do not sum to the number of values", {{"sum", sum}, {"values", values.size()}});
    result.copy_values(exec, values);
    return result;
  }

  /// Makes rows of these lengths; the caller writes the values. @throws tessera::error invalid_argument for a negative length.
  static jagged with_lengths(host_exec const& exec, vector_view<Offset const> lengths) requires on_host {
    jagged result;
    result.values_.resize(exec, result.set_lengths(exec, lengths));
    return result;
  }

  /// Makes room for so many rows and values. The caller writes the values, and `offsets()` from 0 to `values` in order. @throws
  /// tessera::error invalid_argument for a number that no memory has.
  static jagged with_room(Exec const& exec, std::int64_t rows, std::int64_t values) {
    jagged result;
    result.offsets_.resize(exec, detail::bounds_of("jagged", "rows", rows));
    result.values_.resize(exec, values);
    return result;
  }

  /// Takes over `values` and `offsets` (rows + 1,), which run from 0 to the number of values in order. Reads the first and the last offset.
  /// @throws tessera::error shape_mismatch where there are no offsets, or the two are other than 0 and the number of values.
  static jagged from_buffers(buffer<T> values, buffer<Offset> offsets) requires on_host {
    auto const last = offsets.size() - 1;
    if (last < 0 || offsets[0] != 0 || offsets[last] != values.size())
      throw error(
          errc::shape_mismatch, "jagged: offsets run from 0 to the number of values",
          {{"first offset", last < 0 ? -1 : offsets[0]}, {"last offset", last < 0 ? -1 : offsets[last]}, {"values", values.size()}});
    jagged result;
    result.values_ = std::move(values);
    result.offsets_ = std::move(offsets);
    return result;
  }

  /// Copies `values` (offsets[rows],) and `offsets` (rows + 1,) from 0. @throws tessera::error as `validate`, and shape_mismatch when there
  /// are no offsets or more values than they reach.
  static jagged from_offsets(host_exec const& exec, vector_view<T const> values, vector_view<Offset const> offsets) requires on_host {
    if (offsets.empty()) throw error(errc::shape_mismatch, "jagged: offsets need one element more than rows", {{"offsets", 0}});
    if (offsets[0] != 0) throw error(errc::invalid_argument, "jagged: the first offset is not 0", {{"offset", offsets[0]}});
    validate(jagged_view<T const, Offset>{values.data(), offsets.data(), offsets.size() - 1}, values.size());
    if (auto const last = offsets[offsets.size() - 1]; last != values.size())
      throw error(errc::shape_mismatch, "jagged: more values than the offsets reach", {{"last offset", last}, {"values", values.size()}});
    jagged result;
    result.offsets_.resize(exec, offsets.size());
    std::copy(offsets.begin(), offsets.end(), result.offsets_.begin());
    result.copy_values(exec, values);
    return result;
  }

  /// Copies what a view shows, with offsets from 0.
  static jagged from_view(host_exec const& exec, jagged_view<T const, Offset> view) requires on_host {
    detail::check_rows("jagged::from_view", "view", view);
    jagged result;
    result.offsets_.resize(exec, detail::bounds_of("jagged", "rows", view.rows));
    result.offsets_[0] = 0;
    for (std::int64_t i = 0; i < view.rows; ++i) result.offsets_[i + 1] = static_cast<Offset>(view.offsets[i + 1] - view.offsets[0]);
    result.copy_values(exec, view.rows == 0 ? vector_view<T const>{} : vector_view<T const>{view.values + view.offsets[0], view.size()});
    return result;
  }

  /// Copies rows of the host, whose first offset is 0, to the device; the host's memory is free again on return. The call waits for the
  /// stream where values or offsets have more than 64 KiB.
  static jagged copy_of(Exec const& exec, jagged<T, Offset> const& rows) requires(!on_host) {
    auto result = with_room(exec, rows.rows(), rows.size());
    exec.copy_in(result.values_.data(), rows.view().values, static_cast<std::size_t>(rows.size()) * sizeof(T));
    if (rows.view().offsets == nullptr)
      exec.fill(result.offsets_.data(), 0, sizeof(Offset));
    else
      exec.copy_in(result.offsets_.data(), rows.view().offsets, static_cast<std::size_t>(rows.rows() + 1) * sizeof(Offset));
    return result;
  }

  std::int64_t rows() const noexcept { return offsets_.empty() ? 0 : offsets_.size() - 1; }
  std::int64_t size() const noexcept { return values_.size(); }
  std::size_t bytes() const noexcept { return values_.capacity_bytes() + offsets_.capacity_bytes(); }
  /// (rows + 1,), to be written after `with_room`.
  vector_view<Offset> offsets() noexcept { return offsets_.view(); }
  jagged_view<T, Offset> view() noexcept { return {values_.data(), offsets_.data(), rows(), size()}; }
  jagged_view<T const, Offset> view() const noexcept { return {values_.data(), offsets_.data(), rows(), size()}; }

 private:
  // Returns how many values there are in all.
  std::int64_t set_lengths(host_exec const& exec, vector_view<Offset const> lengths) {
    offsets_.resize(exec, lengths.size() + 1);
    lengths_to_offsets(exec, lengths, offsets_.view());
    return offsets_[lengths.size()];
  }
  void copy_values(host_exec const& exec, vector_view<T const> values) {
    values_.resize(exec, values.size());
    std::copy(values.begin(), values.end(), values_.begin());
  }

  buffer<T, Exec> values_;
  buffer<Offset, Exec> offsets_;
};

namespace detail {

/// How many values the rows of a view have at most: as many as there is room for, where whoever made the view said so. Else the call reads
/// the number from the device, and waits.
template <device_execution Exec, class T, class Offset>
std::int64_t value_bound(Exec const& exec, jagged_view<T, Offset> view) {
  if (view.rows == 0) return 0;
  if (view.room >= 0) return view.room;
  auto const first = static_cast<std::int64_t>(read_one(exec, view.offsets));
  auto const end = static_cast<std::int64_t>(read_one(exec, view.offsets + view.rows));
  return std::max<std::int64_t>(0, end - first);  // kernels report offsets that decrease
}

}  // namespace detail

namespace detail {

/// That the rows end within `value_count` values, and within the room that the view says it has. Reads the last offset alone.
template <class T, class Offset>
void check_end(jagged_view<T, Offset> view, std::int64_t value_count) {
  if (view.room >= 0 && view.room < value_count) value_count = view.room;
  if (view.rows > 0 && view.offsets[view.rows] > value_count)
    throw error(errc::out_of_range, "jagged: offsets reach past the values",
                {{"last offset", view.offsets[view.rows]}, {"values", value_count}});
}

}  // namespace detail

/// Checks what the type cannot: offsets present, not negative, non-decreasing, within `value_count` values and within the view's room.
/// @throws tessera::error naming the first offset that is wrong. Reads all offsets; host memory only.
template <class T, class Offset>
void validate(jagged_view<T, Offset> view, std::int64_t value_count) {
  if (view.rows < 0) throw error(errc::invalid_argument, "jagged: negative number of rows", {{"rows", view.rows}});
  if (view.rows == 0) return;
  if (view.offsets == nullptr) throw error(errc::invalid_argument, "jagged: no offsets", {{"rows", view.rows}});
  if (view.offsets[0] < 0) throw error(errc::invalid_argument, "jagged: negative offset", {{"row", 0}, {"offset", view.offsets[0]}});
  for (std::int64_t row = 0; row < view.rows; ++row)
    if (view.offsets[row + 1] < view.offsets[row])
      throw error(errc::invalid_argument, "jagged: offsets decrease",
                  {{"row", row}, {"offset", view.offsets[row]}, {"next offset", view.offsets[row + 1]}});
  detail::check_end(view, value_count);
}

namespace detail {

/// What an operation on the host checks of each view before it reads a value. The rows end within the view's room, where the view says its
/// room. A checked build checks whatever `validate` can say without the number of values.
template <class View>
void check_rows(char const* call, std::string_view argument, View view) {
  constexpr auto any = std::numeric_limits<std::int64_t>::max();
  try {
    if constexpr (checked) {
      validate(view, any);
    } else if constexpr (requires { view.keys; }) {
      if (view.keys > 0) check_end(view.flat(), any);
    } else {
      check_end(view, any);
    }
  } catch (error const& e) {
    throw error(e.code(), std::string(call) + ": " + std::string(argument) + ": " + std::string(e.sentence()), e.values());
  }
}

}  // namespace detail

/// Whether both have the same rows with the same values, wherever these lie in memory.
template <class T, class U, class Offset>
bool equal(jagged_view<T, Offset> a, jagged_view<U, Offset> b) {
  detail::check_rows("equal", "a", a);
  detail::check_rows("equal", "b", b);
  if (a.rows != b.rows) return false;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    if (a.length(row) != b.length(row)) return false;
    for (std::int64_t i = 0; i < a.length(row); ++i)
      if (a.row(row)[i] != b.row(row)[i]) return false;
  }
  return true;
}

/// Prints [[1, 2], [], [3]]; past 8 rows or values, how many more.
template <class T, class Offset>
std::ostream& operator<<(std::ostream& out, jagged_view<T, Offset> view) {
  constexpr std::int64_t shown = 8;
  auto const list = [&](std::int64_t count, auto const& item) {
    out << '[';
    for (std::int64_t i = 0; i < count && i < shown; ++i) {
      if (i > 0) out << ", ";
      item(i);
    }
    if (count > shown) out << ", +" << count - shown << " more";
    out << ']';
  };
  list(view.rows, [&](std::int64_t row) { list(view.length(row), [&](std::int64_t i) { out << view.row(row)[i]; }); });
  return out;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
