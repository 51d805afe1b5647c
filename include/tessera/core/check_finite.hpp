// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/float_bits.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Refuses infinities and NaN, which no primitive looks for by itself: in gradients before an update, say, or in a table's rows after one.
/// `values` (n,) are of double or of a `float_element`; `what` is what the error calls them. Elements of `scaled_int8` have no value
/// without their row's scale; `read_rows` makes floats of them. It reads once and writes nothing. On a device it synchronises.
/// @throws tessera::error invalid_argument with index and value of the first that is not finite.
template <execution Exec, class T>
  requires(float_element<std::remove_const_t<T>> || std::same_as<std::remove_const_t<T>, double>)
void check_finite(Exec const& exec, std::string_view what, vector_view<T> values);

/// As above for a matrix of any row stride; the error has row, column and value.
template <execution Exec, class T>
  requires(float_element<std::remove_const_t<T>> || std::same_as<std::remove_const_t<T>, double>)
void check_finite(Exec const& exec, std::string_view what, matrix_view<T> values);

/// Whether a value is neither infinite nor NaN; it is right under -ffast-math, too.
template <class T>
  requires(float_element<T> || std::same_as<T, double>)
TESSERA_HOST_DEVICE constexpr bool is_finite(T value) noexcept;

namespace detail {

struct check_finite_tag {};

template <>
struct back_end<check_finite_tag, host_exec> {
  static constexpr std::int64_t values_per_piece = 1 << 14;

  // Call refuse(value, …) for the first that is not finite, which throws.
  template <class T, class Refuse>
  static void run(host_exec const& exec, vector_view<T> values, Refuse const& refuse) {
    for_each_piece(exec, values.size(), values_per_piece, [&](std::int64_t first, std::int64_t last) {
      if (auto const i = first_not_finite(values.data() + first, last - first); i >= 0) refuse(values[first + i], first + i);
    });
  }
  template <class T, class Refuse>
  static void run(host_exec const& exec, matrix_view<T> values, Refuse const& refuse) {
    auto const rows = std::max<std::int64_t>(1, values_per_piece / std::max<std::int64_t>(1, values.columns()));
    for_each_piece(exec, values.rows(), rows, [&](std::int64_t first, std::int64_t last) {
      for (auto r = first; r < last; ++r)
        if (auto const c = first_not_finite(values.row(r), values.columns()); c >= 0) refuse(values(r, c), r, c);
    });
  }

 private:
  template <class T>
  static std::int64_t first_not_finite(T const* values, std::int64_t n) noexcept {
    bool all = true;  // without a way out, the loop runs in vectors
    for (std::int64_t i = 0; i < n; ++i) all &= is_finite(values[i]);
    for (std::int64_t i = 0; !all && i < n; ++i)
      if (!is_finite(values[i])) return i;
    return -1;
  }
};

inline std::string not_finite_sentence(std::string_view what) { return std::string(what) + ": a value is not finite"; }

template <class T>
double not_finite_value(T value) noexcept {
  if constexpr (std::same_as<T, double>)
    return value;
  else
    return static_cast<double>(to_float(value));
}

}  // namespace detail

template <execution Exec, class T>
  requires(float_element<std::remove_const_t<T>> || std::same_as<std::remove_const_t<T>, double>)
void check_finite(Exec const& exec, std::string_view what, vector_view<T> values) {
  detail::back_end<detail::check_finite_tag, Exec>::run(exec, values, [&](T value, std::int64_t i) {
    throw error(errc::invalid_argument, detail::not_finite_sentence(what), {{"index", i}, {"value", detail::not_finite_value(value)}});
  });
}

template <execution Exec, class T>
  requires(float_element<std::remove_const_t<T>> || std::same_as<std::remove_const_t<T>, double>)
void check_finite(Exec const& exec, std::string_view what, matrix_view<T> values) {
  detail::back_end<detail::check_finite_tag, Exec>::run(exec, values, [&](T value, std::int64_t r, std::int64_t c) {
    throw error(errc::invalid_argument, detail::not_finite_sentence(what),
                {{"row", r}, {"column", c}, {"value", detail::not_finite_value(value)}});
  });
}

template <class T>
  requires(float_element<T> || std::same_as<T, double>)
TESSERA_HOST_DEVICE constexpr bool is_finite(T value) noexcept {
  if constexpr (std::same_as<T, double>)
    return (__builtin_bit_cast(std::uint64_t, value) & 0x7FF0000000000000) != 0x7FF0000000000000;
  else
    return (detail::float_bits(to_float(value)) & detail::float_infinity) != detail::float_infinity;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
