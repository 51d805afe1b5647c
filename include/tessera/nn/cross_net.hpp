// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameters.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Views of a cross layer's parameters. At full rank z = mix(x), at low rank z = mix(x down^T); the layer's output is x_0 ∘ z + x.
template <class T>
struct cross_layer_view {
  matrix_view<T> down;  ///< (rank, width): the paper's V^T; empty at full rank
  linear_view<T> mix;   ///< weight (width, width) the paper's W, or (width, rank) its U; bias (width,)
};

/// What a cross network's backward needs of its forward. The caller owns it, and any number may be in flight. @pre x outlives it
struct cross_saved {
  matrix_view<float const> x;
  buffer<float> values;  ///< layer by layer, each (samples, ...): z, x down^T at low rank, and its output, which the last one's y is
};

/// Shape and initial values of a cross network. Each matrix is uniform with the variance 2 / (in + out) of Glorot and Bengio, AISTATS 2010;
/// biases are 0.
struct cross_net_options {
  std::int64_t width = 0;   ///< of the input and of every layer's output
  std::int64_t layers = 3;  ///< 0: the identity
  std::int64_t rank = 0;    ///< of each layer's matrix, at most the width; 0: one full matrix
  random_seed seed{};
  std::uint32_t stream = 0;  ///< sets apart the random numbers of networks that share a seed, an MLP's too
};

/// The cross network of DCN V2. Layer l makes x_{l+1} = x_0 ∘ (W_l x_l + b_l) + x_l; at low rank W_l = U_l V_l^T. L layers reach every
/// feature cross up to degree L + 1. It holds parameters only, in one block, layer by layer. Move-only. Source: Wang et al., "DCN V2:
/// improved deep & cross network and practical lessons for web-scale learning to rank systems", WWW 2021, equations 1 and 2.
class cross_net {
 public:
  /// How many parameters a cross network of this shape has.
  /// @throws tessera::error invalid_argument for a width below 1, negative layers, a rank outside [0, width], or more parameters than can
  /// be counted.
  static std::int64_t parameter_count(cross_net_options const& options);

  /// @throws tessera::error as `parameter_count`.
  cross_net(host_exec const& exec, cross_net_options const& options);
  /// A cross network with its parameters in the caller's `memory` (parameter_count,), as an MLP's. @pre the memory outlives it
  /// @throws tessera::error as `parameter_count`; shape_mismatch.
  cross_net(host_exec const& exec, cross_net_options const& options, vector_view<float> memory);

  std::int64_t width() const noexcept { return width_; }
  std::int64_t layers() const noexcept { return layers_; }
  /// The rank of each layer's matrix; 0 for full rank.
  std::int64_t rank() const noexcept { return rank_; }

  /// All parameters; gradients and optimizer states have the same layout.
  vector_view<float> parameters() noexcept { return parameters_; }
  vector_view<float const> parameters() const noexcept { return parameters_; }

  /// The bytes of the parameters; 0 where they lie in the caller's memory.
  std::size_t bytes() const noexcept { return own_.capacity_bytes(); }

  /// One layer's part of a block laid out like `parameters()`: down, mix weight, bias.
  template <class T>
  cross_layer_view<T> layer(vector_view<T> block, std::int64_t layer) const noexcept {
    auto* const down = block.data() + layer * layer_size();
    auto* const weight = down + rank_ * width_;
    return {{down, rank_, width_}, {{weight, width_, inner()}, {weight + width_ * inner(), width_}}};
  }

  /// Names and shapes for checkpoints: "<prefix>.0.weight" (width, width), "<prefix>.0.bias" (width,), …; at low rank "<prefix>.0.v"
  /// (rank, width) and "<prefix>.0.u" (width, rank) for the weight.
  std::vector<parameter_block> blocks(std::string_view prefix);

  /// Computes y = cross_net(x): both (samples, width), any row strides, not overlapping. `backward` reads `saved`, and not y.
  /// @throws tessera::error shape_mismatch. No backward takes `saved` then.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, matrix_view<float> y, cross_saved& saved) const {
    cross_saved filled{x, std::move(saved.values)};
    saved.x = {};
    check(x.rows(), x, "input");
    check(x.rows(), y, "output");
    filled.values.resize(exec, saved_size(x.rows()));
    if (layers_ == 0) copy(exec, x, y);
    for (std::int64_t l = 0; l < layers_; ++l) {
      auto const from = input(filled, l);
      auto const to = l + 1 == layers_ ? y : output(filled, l);
      auto const view = layer(parameters(), l);
      auto const z = mixed(filled, l);
      auto mix_from = from;
      if (rank_ > 0) {
        gemm(exec, policy, from, transposed(view.down), projected(filled, l));
        mix_from = projected(filled, l);
      }
      gemm(exec, policy, mix_from, transposed(view.mix.weight), z,
           [&](matrix_view<float> tile, std::int64_t first_row, std::int64_t first_column) {
             auto const* const bias = view.mix.bias.data() + first_column;
             for (std::int64_t r = 0; r < tile.rows(); ++r) {
               auto* const mixed_row = tile.row(r);
               auto const* const x_row = x.row(first_row + r) + first_column;
               auto const* const from_row = from.row(first_row + r) + first_column;
               auto* const to_row = to.row(first_row + r) + first_column;
               for (std::int64_t c = 0; c < tile.columns(); ++c) {
                 mixed_row[c] += bias[c];
                 to_row[c] = multiply_add(x_row[c], mixed_row[c], from_row[c]);
               }
             }
           });
    }
    saved = std::move(filled);
  }

  /// Computes the gradients of the forward that filled `saved`. `gradient` (samples, width), that of y, is used as scratch.
  /// `parameter_gradient`, laid out like `parameters()`, is overwritten. `x_gradient` (samples, width) is overwritten; where it is empty,
  /// it is not computed. The two matrices do not overlap. @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, cross_saved& saved, matrix_view<float> gradient,
                vector_view<float> parameter_gradient, matrix_view<float> x_gradient = {}) const {
    check_backward(saved, gradient, parameter_gradient, x_gradient);
    bool const wants_x = x_gradient.rows() > 0;
    buffer<float> scratch(exec, saved.x.rows() * (2 * width_ + rank_));
    for (auto l = layers_ - 1; l >= 0; --l)
      backward_layer(exec, policy, saved, l, gradient, layer(parameter_gradient, l), x_gradient, l > 0 || wants_x, scratch.data());
    if (!wants_x) return;
    if (layers_ == 0) return copy(exec, gradient, x_gradient);
    for_each_index(exec, x_gradient.rows(), rows_per_piece, [=](std::int64_t s) {
      for (std::int64_t c = 0; c < x_gradient.columns(); ++c) x_gradient(s, c) += gradient(s, c);
    });
  }

 private:
  static constexpr std::int64_t largest_width = (std::int64_t{1} << 29) - 1;  // a layer's parameters can be counted
  static constexpr std::int64_t most_parameters = std::int64_t{1} << 60;
  static constexpr std::int64_t rows_per_piece = 64;

  std::int64_t inner() const noexcept { return rank_ > 0 ? rank_ : width_; }
  static constexpr std::int64_t layer_size(std::int64_t width, std::int64_t rank) noexcept {
    return width * (rank + (rank > 0 ? rank : width) + 1);
  }
  std::int64_t layer_size() const noexcept { return layer_size(width_, rank_); }

  void initialise(host_exec const& exec, cross_net_options const& options);

  // Of a layer, for one sample: z, the projection, and its output unless that is y.
  std::int64_t saved_width() const noexcept { return 2 * width_ + rank_; }
  std::int64_t saved_size(std::int64_t samples) const noexcept { return layers_ == 0 ? 0 : samples * (layers_ * saved_width() - width_); }
  static float* saved_layer(cross_saved& saved, std::int64_t first_column) noexcept {
    return saved.values.data() + saved.x.rows() * first_column;
  }
  matrix_view<float> mixed(cross_saved& saved, std::int64_t l) const noexcept {
    return {saved_layer(saved, l * saved_width()), saved.x.rows(), width_};
  }
  matrix_view<float> projected(cross_saved& saved, std::int64_t l) const noexcept {
    return {saved_layer(saved, l * saved_width() + width_), saved.x.rows(), rank_};
  }
  matrix_view<float> output(cross_saved& saved, std::int64_t l) const noexcept {
    return {saved_layer(saved, l * saved_width() + width_ + rank_), saved.x.rows(), width_};
  }
  matrix_view<float const> input(cross_saved& saved, std::int64_t l) const noexcept {
    return l == 0 ? saved.x : matrix_view<float const>(output(saved, l - 1));
  }

  static void copy(host_exec const& exec, matrix_view<float const> x, matrix_view<float> y);

  // y = x_0 ∘ z + x. Turns the gradient of y into what x gets of it, as it is and through z, in place; what x_0 gets, gradient ∘ z, is added
  // up in x_gradient.
  template <class Gemm>
  void backward_layer(host_exec const& exec, Gemm const& policy, cross_saved& saved, std::int64_t l, matrix_view<float> gradient,
                      cross_layer_view<float> parameter_gradient, matrix_view<float> x_gradient, bool propagates, float* scratch) const {
    auto const samples = saved.x.rows();
    matrix_view<float> const z_gradient(scratch, samples, width_), through(scratch + samples * width_, samples, width_);
    matrix_view<float> const projected_gradient(scratch + 2 * samples * width_, samples, rank_);
    backward_product(exec, saved.x, mixed(saved, l), gradient, z_gradient, x_gradient, l + 1 == layers_);
    auto const from = input(saved, l);
    auto const view = layer(parameters(), l);
    auto const add = [=](matrix_view<float> tile, std::int64_t first_row, std::int64_t first_column) {
      for (std::int64_t r = 0; r < tile.rows(); ++r) {
        auto* const to = gradient.row(first_row + r) + first_column;
        for (std::int64_t c = 0; c < tile.columns(); ++c) to[c] += tile.row(r)[c];
      }
    };
    if (rank_ == 0) {
      linear_backward_parameters(exec, policy, from, z_gradient, parameter_gradient.mix);
      if (propagates) gemm(exec, policy, z_gradient, view.mix.weight, through, add);
    } else {
      linear_backward_parameters(exec, policy, projected(saved, l), z_gradient, parameter_gradient.mix);
      gemm(exec, policy, z_gradient, view.mix.weight, projected_gradient);
      gemm(exec, policy, transposed(projected_gradient), from, parameter_gradient.down);
      if (propagates) gemm(exec, policy, projected_gradient, view.down, through, add);
    }
  }

  static void backward_product(host_exec const& exec, matrix_view<float const> x, matrix_view<float const> z,
                               matrix_view<float const> gradient, matrix_view<float> z_gradient, matrix_view<float> x_gradient,
                               bool is_first);

  void check(std::int64_t samples, matrix_view<float const> m, char const* what) const;
  void check_backward(cross_saved const& saved, matrix_view<float const> gradient, vector_view<float const> parameter_gradient,
                      matrix_view<float const> x_gradient) const;

  std::int64_t width_, layers_, rank_;
  buffer<float> own_;
  vector_view<float> parameters_;  // in `own_`, or in the caller's memory
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/cross_net.ipp>
#endif
