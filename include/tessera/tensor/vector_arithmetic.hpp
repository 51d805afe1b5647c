// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Adds to each vector of a row its counterpart in a dense (rows, width, dim); vectors past the width pass unchanged. As FBGEMM's
/// jagged_dense_elementwise_add_jagged_output.
///
/// `padded` (rows * width, dim), of any row stride, holds vector j of row i at i * width + j. `out` has the rows of `in`, and may be `in`.
/// The gradient by `in` is that of `out`; the gradient by `padded` is `to_padded_vectors(exec, gradient, padded_gradient)`. A device has
/// the same bits, but for those of a NaN. On a device nothing waits; what offsets show is thrown when the execution synchronises, and
/// nothing is written then. @throws tessera::error shape_mismatch, invalid_argument, out_of_range for offsets past the values.
template <execution Exec, class Offset>
void add_vectors(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> padded,
                 jagged_vectors_view<float, Offset> out);

/// Adds to each vector its counterpart in `other`, which has rows of the same lengths as `in`. The gradients by both are that of `out`.
template <execution Exec, class Offset>
void add_vectors(Exec const& exec, detail::jagged_vectors_in<Offset> in, detail::jagged_vectors_in<Offset> other,
                 jagged_vectors_view<float, Offset> out);

/// Multiplies each vector of a row, element by element, with its counterpart; the arguments are those of `add_vectors`. Vectors past the
/// width are multiplied by 0: a dense operand ends in zeros. As FBGEMM's jagged_dense_elementwise_mul.
template <execution Exec, class Offset>
void multiply_vectors(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> padded,
                      jagged_vectors_view<float, Offset> out);

/// Multiplies each vector with its counterpart in `other`, which has rows of the same lengths as `in`.
template <execution Exec, class Offset>
void multiply_vectors(Exec const& exec, detail::jagged_vectors_in<Offset> in, detail::jagged_vectors_in<Offset> other,
                      jagged_vectors_view<float, Offset> out);

/// Writes the gradients of `multiply_vectors` by both operands; that of the dense one is 0 where a row ends before the width.
///
/// Shapes and errors are those of the forward. No gradient that is written may be an operand; `in_gradient` may be `gradient`.
template <execution Exec, class Offset>
void multiply_vectors_backward(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> padded,
                               detail::jagged_vectors_in<Offset> gradient, jagged_vectors_view<float, Offset> in_gradient,
                               matrix_view<float> padded_gradient);

/// Writes the gradients of `multiply_vectors` by both jagged operands. Here `in_gradient` may not be `gradient`.
template <execution Exec, class Offset>
void multiply_vectors_backward(Exec const& exec, detail::jagged_vectors_in<Offset> in, detail::jagged_vectors_in<Offset> other,
                               detail::jagged_vectors_in<Offset> gradient, jagged_vectors_view<float, Offset> in_gradient,
                               jagged_vectors_view<float, Offset> other_gradient);

namespace detail {

struct add_elements {
  TESSERA_HOST_DEVICE constexpr float operator()(float a, float b) const noexcept { return a + b; }
};
struct multiply_elements {
  TESSERA_HOST_DEVICE constexpr float operator()(float a, float b) const noexcept { return a * b; }
};

struct combine_vectors_tag {};

template <>
struct back_end<combine_vectors_tag, host_exec> {
  // Vector j of each row with vector j of the other operand's, of which only the first `width` are there and the rest is 0.
  template <class Offset, class Operation>
  static void with_padded(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> in,
                          matrix_view<float const> padded, std::int64_t width, jagged_vectors_view<float, Offset> out,
                          Operation operation) {
    for_each_row_run(exec, out.offsets, out.rows, vectors_per_piece(out.dim()), [&](auto row, std::int64_t first, std::int64_t last) {
      for (; first < last; ++first) {
        auto const j = first - out.begin_of(row);
        auto const* const a = opaque(in.values.row(in.begin_of(row) + j));
        auto* const to = out.values.row(first);
        if (j < width)
          combine(a, padded.row(row * width + j), to, out.dim(), operation);
        else
          for (std::int64_t c = 0; c < out.dim(); ++c) to[c] = operation(a[c], 0.0F);
      }
    });
  }

  template <class Offset, class Operation>
  static void with_jagged(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> in,
                          jagged_vectors_view<float const, Offset> other, jagged_vectors_view<float, Offset> out, Operation operation) {
    for_each_row_run(exec, out.offsets, out.rows, vectors_per_piece(out.dim()), [&](auto row, std::int64_t first, std::int64_t last) {
      for (; first < last; ++first) {
        auto const j = first - out.begin_of(row);
        combine(opaque(in.values.row(in.begin_of(row) + j)), other.values.row(other.begin_of(row) + j), out.values.row(first), out.dim(),
                operation);
      }
    });
  }

  // out(row, j) = the product of vectors j of both, 0 where the rows end before the width.
  template <class Offset>
  static void padded_product(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> a,
                             jagged_vectors_view<float const, Offset> b, std::int64_t width, matrix_view<float> out) {
    for_each_piece(exec, out.rows(), vectors_per_piece(out.columns()), [&](std::int64_t first, std::int64_t last) {
      for (; first < last; ++first) {
        auto const row = first / width, j = first % width;
        if (j < a.length(row))
          combine(opaque(a.values.row(a.begin_of(row) + j)), b.values.row(b.begin_of(row) + j), out.row(first), out.columns(),
                  multiply_elements{});
        else
          std::fill_n(out.row(first), out.columns(), 0.0F);
      }
    });
  }

  template <class Operation>
  static void combine(float const* a, float const* b, float* to, std::int64_t n, Operation operation) noexcept {
    for (std::int64_t c = 0; c < n; ++c) to[c] = operation(a[c], b[c]);
  }
};

template <class Operation, class Exec, class Offset>
void combine_vectors_with_padded(Exec const& exec, char const* call, jagged_vectors_in<Offset> in, matrix_view<float const> padded,
                                 jagged_vectors_view<float, Offset> out) {
  rows_check<Exec, Offset> rows(exec, call);
  rows.valid("out", out);
  rows.same("in", out, in);
  auto const width = padded_width(call, out.rows, out.dim(), padded);
  back_end<combine_vectors_tag, Exec>::with_padded(exec, rows, in, padded, width, out, Operation{});
}

template <class Operation, class Exec, class Offset>
void combine_vectors_with_jagged(Exec const& exec, char const* call, jagged_vectors_in<Offset> in, jagged_vectors_in<Offset> other,
                                 jagged_vectors_view<float, Offset> out) {
  rows_check<Exec, Offset> rows(exec, call);
  rows.valid("out", out);
  rows.same("in", out, in);
  rows.same("other", out, other);
  back_end<combine_vectors_tag, Exec>::with_jagged(exec, rows, in, other, out, Operation{});
}

template <class Exec, class Offset>
void check_multiply_vectors_backward(rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> in,
                                     jagged_vectors_view<float const, Offset> gradient, jagged_vectors_view<float, Offset> in_gradient) {
  rows.valid("in", in);
  rows.same("gradient", in, gradient);
  rows.same("in_gradient", in, in_gradient);
}

}  // namespace detail

template <execution Exec, class Offset>
void add_vectors(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> padded,
                 jagged_vectors_view<float, Offset> out) {
  detail::combine_vectors_with_padded<detail::add_elements>(exec, "add_vectors", in, padded, out);
}

template <execution Exec, class Offset>
void add_vectors(Exec const& exec, detail::jagged_vectors_in<Offset> in, detail::jagged_vectors_in<Offset> other,
                 jagged_vectors_view<float, Offset> out) {
  detail::combine_vectors_with_jagged<detail::add_elements>(exec, "add_vectors", in, other, out);
}

template <execution Exec, class Offset>
void multiply_vectors(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> padded,
                      jagged_vectors_view<float, Offset> out) {
  detail::combine_vectors_with_padded<detail::multiply_elements>(exec, "multiply_vectors", in, padded, out);
}

template <execution Exec, class Offset>
void multiply_vectors(Exec const& exec, detail::jagged_vectors_in<Offset> in, detail::jagged_vectors_in<Offset> other,
                      jagged_vectors_view<float, Offset> out) {
  detail::combine_vectors_with_jagged<detail::multiply_elements>(exec, "multiply_vectors", in, other, out);
}

template <execution Exec, class Offset>
void multiply_vectors_backward(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> padded,
                               detail::jagged_vectors_in<Offset> gradient, jagged_vectors_view<float, Offset> in_gradient,
                               matrix_view<float> padded_gradient) {
  constexpr auto name = "multiply_vectors_backward";
  detail::rows_check<Exec, Offset> rows(exec, name);
  detail::check_multiply_vectors_backward<Exec, Offset>(rows, in, gradient, in_gradient);
  auto const width = detail::padded_width(name, in.rows, in.dim(), padded);
  if (detail::padded_width(name, in.rows, in.dim(), padded_gradient) != width)
    throw error(errc::shape_mismatch, "multiply_vectors_backward: the padded gradient is of another width",
                {{"matrix rows", padded_gradient.rows()}, {"expected", padded.rows()}});
  detail::back_end<detail::combine_vectors_tag, Exec>::padded_product(exec, rows, in, gradient, width, padded_gradient);
  detail::back_end<detail::combine_vectors_tag, Exec>::with_padded(exec, rows, gradient, padded, width, in_gradient,
                                                                   detail::multiply_elements{});
}

template <execution Exec, class Offset>
void multiply_vectors_backward(Exec const& exec, detail::jagged_vectors_in<Offset> in, detail::jagged_vectors_in<Offset> other,
                               detail::jagged_vectors_in<Offset> gradient, jagged_vectors_view<float, Offset> in_gradient,
                               jagged_vectors_view<float, Offset> other_gradient) {
  detail::rows_check<Exec, Offset> rows(exec, "multiply_vectors_backward");
  detail::check_multiply_vectors_backward<Exec, Offset>(rows, in, gradient, in_gradient);
  rows.same("other", in, other);
  rows.same("other_gradient", in, other_gradient);
  detail::back_end<detail::combine_vectors_tag, Exec>::with_jagged(exec, rows, gradient, other, in_gradient, detail::multiply_elements{});
  detail::back_end<detail::combine_vectors_tag, Exec>::with_jagged(exec, rows, gradient, in, other_gradient, detail::multiply_elements{});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
