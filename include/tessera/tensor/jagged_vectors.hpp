// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Rows of vectors, of different length, such as the embeddings of sequences: row i is the vectors [offsets[i], offsets[i + 1]) of
/// `values`. Trivially copyable.
///
/// A view of a part shares `values` with the whole, so offsets[0] need not be 0. The primitives over rows of vectors check what takes no
/// pass over the offsets; `validate`, and a checked build, see the rest. On a device values and offsets are the device's memory, and
/// kernels check all offsets before anything is written.
template <class T, class Offset = std::int64_t>
struct jagged_vectors_view {
  matrix_view<T> values;            // (>= offsets[rows], dim), any row stride
  Offset const* offsets = nullptr;  // (rows + 1,), non-decreasing; nullptr where rows == 0 is an empty view
  std::int64_t rows = 0;

  TESSERA_HOST_DEVICE constexpr std::int64_t dim() const noexcept { return values.columns(); }
  /// Where a row begins among the vectors of `values`. @pre 0 <= row < rows, here and below.
  TESSERA_HOST_DEVICE constexpr Offset begin_of(std::int64_t row) const noexcept { return offsets[row]; }
  /// Where a row ends among the vectors of `values`.
  TESSERA_HOST_DEVICE constexpr Offset end_of(std::int64_t row) const noexcept { return offsets[row + 1]; }
  /// How many vectors a row has.
  TESSERA_HOST_DEVICE constexpr std::int64_t length(std::int64_t row) const noexcept { return offsets[row + 1] - offsets[row]; }
  /// The vectors of a row, (length(row), dim), in place.
  TESSERA_HOST_DEVICE constexpr matrix_view<T> row(std::int64_t row) const noexcept(!checks_indices) {
    return values.rows_from(offsets[row], length(row));
  }
  /// Vectors in all rows.
  TESSERA_HOST_DEVICE constexpr std::int64_t size() const noexcept { return rows == 0 ? 0 : offsets[rows] - offsets[0]; }
  /// Rows [first, first + count), in place.
  TESSERA_HOST_DEVICE constexpr jagged_vectors_view slice(std::int64_t first, std::int64_t count) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_part("jagged_vectors_view rows", first, count, rows);
    return {values, offsets + first, count};
  }
  /// The same rows of other vectors, such as those of a gradient. `vectors` (>= offsets[rows], any dim).
  template <class U>
  TESSERA_HOST_DEVICE constexpr jagged_vectors_view<U, Offset> with_values(matrix_view<U> vectors) const noexcept {
    return {vectors, offsets, rows};
  }

  template <class U>
    requires(std::same_as<U, T const> && !std::is_const_v<T>)
  TESSERA_HOST_DEVICE constexpr operator jagged_vectors_view<U, Offset>() const noexcept {  // NOLINT: implicit, to const
    return {values, offsets, rows};
  }
};

static_assert(std::is_trivially_copyable_v<jagged_vectors_view<float>>);

/// Checks what the type cannot: offsets present, not negative, non-decreasing, within the values; a row stride of at least dim.
/// @throws tessera::error naming the first offset that is wrong. Reads all offsets; host memory only.
template <class T, class Offset>
void validate(jagged_vectors_view<T, Offset> view) {
  if (view.values.stride() < view.dim())
    throw error(errc::shape_mismatch, "jagged_vectors: vectors overlap", {{"dim", view.dim()}, {"stride", view.values.stride()}});
  validate(jagged_view<T, Offset>{view.values.data(), view.offsets, view.rows}, view.values.rows());
}

namespace detail {

// A jagged input whose kind of offset another argument decides.
template <class Offset>
using jagged_vectors_in = std::type_identity_t<jagged_vectors_view<float const, Offset>>;

// What takes no offset.
template <class T, class Offset>
void check_vectors_shape(char const* call, char const* which, jagged_vectors_view<T, Offset> view) {
  if (view.rows < 0 || (view.rows > 0 && view.offsets == nullptr) || view.values.stride() < view.dim())
    throw error(errc::invalid_argument, std::string(call) + ": no rows of vectors",
                {{"argument", which}, {"rows", view.rows}, {"dim", view.dim()}, {"stride", view.values.stride()}});
}

template <class T, class Offset>
void check_jagged_vectors(char const* call, char const* which, jagged_vectors_view<T, Offset> view) {
  if constexpr (checked) validate(view);
  check_vectors_shape(call, which, view);
  if (view.rows > 0 && (view.offsets[0] < 0 || view.size() < 0 || view.offsets[view.rows] > view.values.rows()))
    throw error(
        errc::out_of_range, std::string(call) + ": offsets reach past the values",
        {{"argument", which}, {"first offset", view.offsets[0]}, {"last offset", view.offsets[view.rows]}, {"values", view.values.rows()}});
}

inline void check_extent(char const* call, char const* which, std::int64_t extent, std::int64_t expected) {
  if (extent != expected) throw error(errc::shape_mismatch, std::string(call) + ": " + which, {{which, extent}, {"expected", expected}});
}

// That index i names one of the rows.
inline void check_row(char const* call, std::int64_t const* indices, std::int64_t i, std::int64_t rows) {
  if (indices[i] < 0 || indices[i] >= rows)
    throw error(errc::out_of_range, std::string(call) + ": no such row", {{"position", i}, {"index", indices[i]}, {"rows", rows}});
}

// Both are valid, and have the same rows; `dim_too`: of the same dim.
template <class T, class U, class Offset>
void check_same_rows(char const* call, char const* which, jagged_vectors_view<T, Offset> view, jagged_vectors_view<U, Offset> other,
                     bool dim_too = true) {
  check_jagged_vectors(call, which, other);
  if (view.rows != other.rows || view.size() != other.size() || (dim_too && view.dim() != other.dim()))
    throw error(errc::shape_mismatch, std::string(call) + ": an argument of other rows",
                {{"argument", which},
                 {"rows", other.rows},
                 {"rows expected", view.rows},
                 {"values", other.size()},
                 {"values expected", view.size()},
                 {"dim", other.dim()},
                 {"dim expected", dim_too ? view.dim() : other.dim()}});
  if constexpr (checked)
    for (std::int64_t row = 0; row < view.rows; ++row)
      if (view.length(row) != other.length(row))
        throw error(errc::shape_mismatch, std::string(call) + ": a row of another length",
                    {{"argument", which}, {"row", row}, {"length", other.length(row)}, {"length expected", view.length(row)}});
}

/// What a call checks of its rows of vectors before it writes anything. The host throws at once. A device throws what shapes show, and
/// leaves the rest to a kernel (see <tessera/tensor/jagged_vectors.cuh>), whose verdict the back end asks for.
template <class Exec, class Offset>
class rows_check {  // of an execution without a back end, which the primitive says
 public:
  rows_check(Exec const&, char const*) {}
  template <class... Arguments>
  void valid(Arguments const&...) {}
  template <class... Arguments>
  void same(Arguments const&...) {}
};

template <class Offset>
class rows_check<host_exec, Offset> {
 public:
  rows_check(host_exec const&, char const* call) : call_(call) {}

  /// That an argument has rows.
  template <class T>
  void valid(char const* which, jagged_vectors_view<T, Offset> view) const {
    check_jagged_vectors(call_, which, view);
  }
  /// That another has the same rows as the first, and their dim where `dim_too`.
  template <class T, class U>
  void same(char const* which, jagged_vectors_view<T, Offset> first, jagged_vectors_view<U, Offset> other, bool dim_too = true) const {
    check_same_rows(call_, which, first, other, dim_too);
  }

 private:
  char const* call_;
};

// The width of (rows, width, dim), stored as a matrix (rows * width, dim).
inline std::int64_t padded_width(char const* call, std::int64_t rows, std::int64_t dim, matrix_view<float const> padded) {
  if (padded.columns() != dim || padded.stride() < dim || (rows == 0 ? padded.rows() : padded.rows() % rows) != 0)
    throw error(errc::shape_mismatch, std::string(call) + ": a padded matrix (rows * width, dim) of another shape",
                {{"matrix rows", padded.rows()}, {"rows", rows}, {"columns", padded.columns()}, {"dim", dim}, {"stride", padded.stride()}});
  return rows == 0 ? 0 : padded.rows() / rows;
}

/// How many vectors a piece has, so that a piece works on about 64 KiB whatever the dim. A piece that streams works on 512 KiB, and ends by
/// waiting for its writes.
constexpr std::int64_t vectors_per_piece(std::int64_t dim, bool streamed = false) noexcept {
  std::int64_t const floats = std::int64_t{1} << (streamed ? 17 : 14);
  return dim <= 1 ? floats : std::max<std::int64_t>(floats / dim, 1);
}

/// Cuts [starts[0], starts[rows]) into pieces of `grain`, whatever the rows. Calls f(row, first, last) for each run of one row in a piece,
/// never empty, in the numbering of `starts` (rows + 1, non-decreasing). An f that streams takes the piece's `streamed_copies&`, too.
template <class Start, class F>
void for_each_row_run(host_exec const& exec, Start const* starts, std::int64_t rows, std::int64_t grain, F const& f) {
  if (rows == 0) return;
  std::int64_t const base = starts[0];
  for_each_piece(exec, starts[rows] - base, grain, [&](std::int64_t first, std::int64_t last) {
    first += base;
    last += base;
    [[maybe_unused]] streamed_copies streams;
    for (auto row = std::upper_bound(starts, starts + rows, first) - starts - 1; first < last; ++row) {
      auto const end = std::min<std::int64_t>(last, starts[row + 1]);
      if (first < end) {
        if constexpr (std::invocable<F const&, std::int64_t, std::int64_t, std::int64_t, streamed_copies&>)
          f(row, first, end, streams);
        else
          f(row, first, end);
      }
      first = end;
    }
  });
}

/// Whether rows [0, row) weigh less than so much: a row weighs its length + 1. A lambda would be the host's alone to nvcc.
template <class Offset>
struct rows_weigh_less {
  Offset const* offsets;
  std::int64_t weight;

  TESSERA_HOST_DEVICE constexpr bool operator()(std::int64_t row) const noexcept {
    return static_cast<std::int64_t>(offsets[row]) - offsets[0] + row < weight;
  }
};

/// Calls f(first_row, last_row) for pieces of whole rows of about `grain` vectors in all; a row weighs its length + 1.
template <class Offset, class F>
void for_each_row_block(host_exec const& exec, Offset const* offsets, std::int64_t rows, std::int64_t grain, F const& f) {
  if (rows == 0) return;
  auto const first_row_from = [&](std::int64_t weight) { return count_first(rows, rows_weigh_less<Offset>{offsets, weight}); };
  for_each_piece(exec, static_cast<std::int64_t>(offsets[rows]) - offsets[0] + rows, grain, [&](std::int64_t first, std::int64_t last) {
    auto const first_row = first_row_from(first), last_row = first_row_from(last);
    if (first_row < last_row) f(first_row, last_row);
  });
}

/// Whether so many of the vectors, those to be written in all, are written past the caches.
template <class T>
constexpr bool are_streamed(matrix_view<T> vectors, std::int64_t written) noexcept {
  return vectors.stride() == vectors.columns() &&
         written > streamed_bytes / static_cast<std::int64_t>(sizeof(T)) / std::max<std::int64_t>(vectors.columns(), 1);
}

/// Both (n, dim), of any strides; by `streams` where it is given.
template <class T>
void copy_vectors(matrix_view<T const> from, matrix_view<T> to, streamed_copies* streams = nullptr) noexcept {
  auto const dim = from.columns();
  if (from.stride() == dim && to.stride() == dim) {
    if (streams != nullptr)
      streams->add(to.data(), from.data(), from.rows() * dim * static_cast<std::int64_t>(sizeof(T)));
    else
      std::copy_n(from.data(), from.rows() * dim, to.data());
  } else {
    for (std::int64_t r = 0; r < from.rows(); ++r) std::copy_n(from.data() + r * from.stride(), dim, to.data() + r * to.stride());
  }
}

/// Both (n, dim), of any strides.
inline void add_vectors(matrix_view<float const> from, matrix_view<float> to) noexcept(!checks_indices) {
  for (std::int64_t r = 0; r < to.rows(); ++r) {
    auto const* const more = opaque(from.row(r));
    auto* const sum = to.row(r);
    for (std::int64_t c = 0; c < to.columns(); ++c) sum[c] += more[c];
  }
}

template <class T>
void fill_vectors(matrix_view<T> to, T value) noexcept {
  for (std::int64_t r = 0; r < to.rows(); ++r) std::fill_n(to.data() + r * to.stride(), to.columns(), value);
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
