// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/jagged_attention.hpp>
#include <tessera/nn/layer_norm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Views of the parameters of a transformer's layer.
template <class T>
struct transformer_layer_view {
  linear_view<T> project;  ///< (3 dim, dim): queries, keys, values
  linear_view<T> mix;      ///< (dim, dim): what attention makes of them
  layer_norm_view<T> attention_norm;
  linear_view<T> up;    ///< (hidden, dim)
  linear_view<T> down;  ///< (dim, hidden)
  layer_norm_view<T> feed_norm;
};

namespace detail {

/// A layer of a transformer, over all vectors of all rows at once, in memory of its caller.
struct transformer_layer {
  /// What a layer's forward writes. A backward reads all of it except `hidden`, which it can compute again.
  struct memory {
    matrix_view<float> projected;                                 // (vectors, 3 dim)
    matrix_view<float> attended;                                  // (vectors, dim)
    matrix_view<float> between;                                   // (vectors, dim): input + mix of attended, before any norm
    matrix_view<float> end;                                       // (vectors, dim): what the feed-forward was added to, before any norm
    matrix_view<float> hidden;                                    // (vectors, hidden)
    row_statistics<float> attention_statistics, feed_statistics;  // empty where no backward follows
    matrix_view<float> log_sums;                                  // (heads, vectors), likewise
  };

  transformer_layer_view<float const> parameters;
  attention_options attention;
  bool norm_first;
  jagged_vectors_view<float const> rows;  // offsets from 0

  jagged_vectors_view<float const> jagged(matrix_view<float const> values) const noexcept { return rows.with_values(values); }
  static matrix_view<float> part(matrix_view<float> projected, std::int64_t which) noexcept(!checks_indices) {
    auto const dim = projected.columns() / 3;
    return projected.columns_from(which * dim, dim);
  }

  /// Computes to = from weight^T + bias + residual.
  template <class Gemm>
  static void add_linear(host_exec const& exec, Gemm const& policy, matrix_view<float const> from, linear_view<float const> layer,
                         matrix_view<float const> residual, matrix_view<float> to) {
    gemm(exec, policy, from, transposed(layer.weight), to, [&](matrix_view<float> tile, std::int64_t first_row, std::int64_t first_column) {
      auto const* const bias = layer.bias.data() + first_column;
      for (std::int64_t r = 0; r < tile.rows(); ++r) {
        auto const* const more = residual.row(first_row + r) + first_column;
        auto* const row = tile.row(r);
        for (std::int64_t c = 0; c < tile.columns(); ++c) row[c] += bias[c] + more[c];
      }
    });
  }
  /// Adds gradient weight to `sum`; the product stays in `scratch`.
  template <class Gemm>
  static void add_input_gradient(host_exec const& exec, Gemm const& policy, matrix_view<float const> gradient,
                                 linear_view<float const> layer, matrix_view<float> scratch, matrix_view<float> sum) {
    gemm(exec, policy, gradient, layer.weight, scratch, [&](matrix_view<float> tile, std::int64_t first_row, std::int64_t first_column) {
      for (std::int64_t r = 0; r < tile.rows(); ++r) {
        auto* const to = sum.row(first_row + r) + first_column;
        auto const* const row = tile.row(r);
        for (std::int64_t c = 0; c < tile.columns(); ++c) to[c] += row[c];
      }
    });
  }
  static void add(host_exec const& exec, matrix_view<float const> from, matrix_view<float> sum) {
    for_each_index(exec, sum.rows(), std::int64_t{256}, [=](std::int64_t r) {
      for (std::int64_t c = 0; c < sum.columns(); ++c) sum(r, c) += from(r, c);
    });
  }

  /// Computes the output, and returns where it is: `end` where norms come first, else `out`, which may be x. `scratch` (vectors, dim).
  template <class Gemm>
  matrix_view<float const> forward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, memory const& m,
                                   matrix_view<float> scratch, matrix_view<float> out) const {
    if (norm_first) layer_norm(exec, x, parameters.attention_norm, scratch, m.attention_statistics);
    linear_forward(exec, policy, norm_first ? matrix_view<float const>(scratch) : x, parameters.project, activation::identity, m.projected);
    jagged_attention(exec, jagged(part(m.projected, 0)), jagged(part(m.projected, 1)), jagged(part(m.projected, 2)), attention,
                     rows.with_values(m.attended), m.log_sums);
    add_linear(exec, policy, m.attended, parameters.mix, x, m.between);
    if (norm_first)
      layer_norm(exec, m.between, parameters.feed_norm, scratch, m.feed_statistics);
    else
      layer_norm(exec, m.between, parameters.attention_norm, scratch, m.attention_statistics);
    linear_forward(exec, policy, scratch, parameters.up, activation::relu, m.hidden);
    add_linear(exec, policy, m.hidden, parameters.down, norm_first ? m.between : scratch, m.end);
    if (norm_first) return m.end;
    layer_norm(exec, m.end, parameters.feed_norm, out, m.feed_statistics);
    return out;
  }

  /// Turns the gradient of the output into that of x, in place. `wide` (vectors, max(hidden, 3 dim)); `scratch` and `inner` (vectors, dim).
  /// Where x was not kept, `x_again()` computes it, perhaps with `scratch`. `makes_hidden`: whether hidden values were not kept either.
  template <class Gemm, class XAgain>
  void backward(host_exec const& exec, Gemm const& policy, memory const& m, XAgain const& x_again, bool makes_hidden,
                matrix_view<float> gradient, transformer_layer_view<float> parameter_gradient, float* wide, matrix_view<float> scratch,
                matrix_view<float> inner) const {
    auto const statistics = [](row_statistics<float> s) { return row_statistics<float const>{s.mean, s.reciprocal_deviation}; };
    auto const attention_statistics = statistics(m.attention_statistics), feed_statistics = statistics(m.feed_statistics);
    auto const vectors = gradient.rows();
    if (norm_first) {
      layer_norm_again(exec, m.between, parameters.feed_norm, feed_statistics, scratch);
    } else {
      layer_norm_backward(exec, m.end, parameters.feed_norm, feed_statistics, gradient, parameter_gradient.feed_norm, gradient);
      layer_norm_again(exec, m.between, parameters.attention_norm, attention_statistics, scratch);
    }
    if (makes_hidden) linear_forward(exec, policy, scratch, parameters.up, activation::relu, m.hidden);
    matrix_view<float> const hidden_gradient(wide, vectors, m.hidden.columns());
    linear_backward_parameters(exec, policy, m.hidden, gradient, parameter_gradient.down);
    linear_backward_input(exec, policy, gradient, parameters.down, activation::relu, m.hidden, hidden_gradient);
    linear_backward_parameters(exec, policy, scratch, hidden_gradient, parameter_gradient.up);
    if (norm_first) {
      linear_backward_input(exec, policy, hidden_gradient, parameters.up, activation::identity, scratch, inner);
      layer_norm_backward(exec, m.between, parameters.feed_norm, feed_statistics, inner, parameter_gradient.feed_norm, inner);
      add(exec, inner, gradient);
    } else {
      add_input_gradient(exec, policy, hidden_gradient, parameters.up, inner, gradient);
      layer_norm_backward(exec, m.between, parameters.attention_norm, attention_statistics, gradient, parameter_gradient.attention_norm,
                          gradient);
    }
    linear_backward_parameters(exec, policy, m.attended, gradient, parameter_gradient.mix);
    linear_backward_input(exec, policy, gradient, parameters.mix, activation::identity, m.attended, inner);
    matrix_view<float> const projected_gradient(wide, vectors, m.projected.columns());
    jagged_attention_backward(exec, jagged(part(m.projected, 0)), jagged(part(m.projected, 1)), jagged(part(m.projected, 2)), attention,
                              jagged(m.attended), m.log_sums, jagged(inner), rows.with_values(part(projected_gradient, 0)),
                              rows.with_values(part(projected_gradient, 1)), rows.with_values(part(projected_gradient, 2)));
    matrix_view<float const> const x = x_again();
    if (norm_first) {
      layer_norm_again(exec, x, parameters.attention_norm, attention_statistics, scratch);
      linear_backward_parameters(exec, policy, scratch, projected_gradient, parameter_gradient.project);
      linear_backward_input(exec, policy, projected_gradient, parameters.project, activation::identity, scratch, inner);
      layer_norm_backward(exec, x, parameters.attention_norm, attention_statistics, inner, parameter_gradient.attention_norm, inner);
      add(exec, inner, gradient);
    } else {
      linear_backward_parameters(exec, policy, x, projected_gradient, parameter_gradient.project);
      add_input_gradient(exec, policy, projected_gradient, parameters.project, inner, gradient);
    }
  }
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
