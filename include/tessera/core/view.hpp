// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

template <class T>
struct vector_view;

namespace detail {
template <class T>
inline constexpr bool is_vector_view = false;
template <class T>
inline constexpr bool is_vector_view<vector_view<T>> = true;

inline void check_index(char const* what, std::int64_t index, std::int64_t size) {
  if (index < 0 || index >= size)
    throw error(errc::out_of_range, std::string(what) + ": no such element", {{"index", index}, {"size", size}});
}
inline void check_part(char const* what, std::int64_t first, std::int64_t count, std::int64_t size) {
  if (first < 0 || count < 0 || first > size - count)
    throw error(errc::out_of_range, std::string(what) + ": a part reaches past the whole",
                {{"first", first}, {"count", count}, {"size", size}});
}

// As elements: adding const is fine, a pointer to a base would stride wrongly over derived elements.
template <class From, class To>
inline constexpr bool views_as = std::is_convertible_v<From (*)[], To (*)[]>;

template <class C, class T>
concept contiguous_container_of = requires(C& c) {
  { c.size() } -> std::convertible_to<std::size_t>;
  requires views_as<std::remove_pointer_t<decltype(c.data())>, T>;
};
}  // namespace detail

/// Contiguous elements in memory that somebody else owns. Trivially copyable; it converts from anything with data() and size().
template <class T>
struct vector_view {
  T* pointer = nullptr;
  std::int64_t count = 0;

  constexpr vector_view() = default;
  /// A view of `size` elements from `data` on.
  TESSERA_HOST_DEVICE constexpr vector_view(T* data, std::int64_t size) noexcept : pointer(data), count(size) {}
  /// A view of const elements, from one that may write them.
  template <class U>
    requires(std::same_as<U const, T> && !std::same_as<U, T>)
  TESSERA_HOST_DEVICE constexpr vector_view(vector_view<U> other) noexcept  // NOLINT: implicit, to const
      : vector_view(other.pointer, other.count) {}
  /// A view of a container's elements. @pre the container outlives the view
  template <class C>
    requires(!detail::is_vector_view<std::remove_cvref_t<C>> && detail::contiguous_container_of<C, T>)
  constexpr vector_view(C&& container) noexcept  // NOLINT: implicit, as a span
      : pointer(container.data()), count(static_cast<std::int64_t>(container.size())) {}

  TESSERA_HOST_DEVICE constexpr T* data() const noexcept { return pointer; }
  TESSERA_HOST_DEVICE constexpr std::int64_t size() const noexcept { return count; }
  TESSERA_HOST_DEVICE constexpr bool empty() const noexcept { return count == 0; }
  TESSERA_HOST_DEVICE constexpr T* begin() const noexcept { return pointer; }
  TESSERA_HOST_DEVICE constexpr T* end() const noexcept { return pointer + count; }
  TESSERA_HOST_DEVICE constexpr T& operator[](std::int64_t i) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_index("vector_view", i, count);
    return pointer[i];
  }

  /// Elements [first, first + size).
  TESSERA_HOST_DEVICE constexpr vector_view slice(std::int64_t first, std::int64_t size) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_part("vector_view", first, size, count);
    return {pointer == nullptr ? nullptr : pointer + first, size};
  }
};

template <class T>
vector_view(T*, std::int64_t) -> vector_view<T>;
template <class C>
  requires(!detail::is_vector_view<std::remove_cvref_t<C>>)
vector_view(C&&)
->vector_view<std::remove_pointer_t<decltype(std::declval<C&>().data())>>;

/// A row-major matrix in memory that somebody else owns; row r starts at data + r * stride.
template <class T>
struct matrix_view {
  T* pointer = nullptr;
  std::int64_t row_count = 0;
  std::int64_t column_count = 0;
  std::int64_t row_stride = 0;  ///< elements from one row to the next, at least column_count

  constexpr matrix_view() = default;
  /// A view of contiguous rows.
  TESSERA_HOST_DEVICE constexpr matrix_view(T* data, std::int64_t rows, std::int64_t columns) noexcept
      : matrix_view(data, rows, columns, columns) {}
  /// A view of rows that start `stride` elements apart.
  TESSERA_HOST_DEVICE constexpr matrix_view(T* data, std::int64_t rows, std::int64_t columns, std::int64_t stride) noexcept
      : pointer(data), row_count(rows), column_count(columns), row_stride(stride) {}
  /// A view of const elements, from one that may write them.
  template <class U>
    requires(std::same_as<U const, T> && !std::same_as<U, T>)
  TESSERA_HOST_DEVICE constexpr matrix_view(matrix_view<U> other) noexcept  // NOLINT: implicit, to const
      : matrix_view(other.pointer, other.row_count, other.column_count, other.row_stride) {}

  TESSERA_HOST_DEVICE constexpr T* data() const noexcept { return pointer; }
  TESSERA_HOST_DEVICE constexpr std::int64_t rows() const noexcept { return row_count; }
  TESSERA_HOST_DEVICE constexpr std::int64_t columns() const noexcept { return column_count; }
  TESSERA_HOST_DEVICE constexpr std::int64_t stride() const noexcept { return row_stride; }
  TESSERA_HOST_DEVICE constexpr T* row(std::int64_t r) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_index("matrix_view row", r, row_count);
    return pointer + r * row_stride;
  }
  TESSERA_HOST_DEVICE constexpr T& operator()(std::int64_t r, std::int64_t c) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_index("matrix_view column", c, column_count);
    return row(r)[c];
  }

  /// Rows [first_row, first_row + rows) of columns [first_column, first_column + columns), in place.
  TESSERA_HOST_DEVICE constexpr matrix_view block(std::int64_t first_row, std::int64_t first_column, std::int64_t rows,
                                                  std::int64_t columns) const noexcept(!checks_indices) {
    if constexpr (checks_indices) {
      detail::check_part("matrix_view rows", first_row, rows, row_count);
      detail::check_part("matrix_view columns", first_column, columns, column_count);
    }
    // An empty matrix may have no memory to point into.
    return {pointer == nullptr ? nullptr : pointer + first_row * row_stride + first_column, rows, columns, row_stride};
  }
  /// Columns [first, first + columns) of all rows.
  TESSERA_HOST_DEVICE constexpr matrix_view columns_from(std::int64_t first, std::int64_t columns) const noexcept(!checks_indices) {
    return block(0, first, row_count, columns);
  }
  /// Rows [first, first + rows).
  TESSERA_HOST_DEVICE constexpr matrix_view rows_from(std::int64_t first, std::int64_t rows) const noexcept(!checks_indices) {
    return block(first, 0, rows, column_count);
  }
};

static_assert(std::is_trivially_copyable_v<vector_view<float>> && std::is_trivially_copyable_v<matrix_view<float>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
