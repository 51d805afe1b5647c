// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameters.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What an MLP's backward needs of its forward. The caller owns it, and any number may be in flight. @pre x and y outlive it
struct mlp_saved {
  matrix_view<float const> x;
  matrix_view<float const> y;
  buffer<float> hidden;  ///< the hidden layers' outputs, one layer after the other
};

/// Shape and initial values of an MLP. Weights are uniform in ±1 / sqrt(in), as torch.nn.Linear's; biases are 0.
struct mlp_options {
  std::vector<std::int64_t> widths{};  ///< of the input, each hidden layer and the output: at least two
  activation last = activation::identity;
  random_seed seed{};
  std::uint32_t stream = 0;  ///< MLPs that share a seed must differ in it, or they start with the same numbers
};

/// Linear layers with a ReLU between them. It holds parameters only, in one block, layer by layer, weight before bias. Move-only.
class mlp {
 public:
  /// How many parameters an MLP of these widths has.
  /// @throws tessera::error invalid_argument for fewer than two widths, one below 1, or more parameters than can be counted.
  static std::int64_t parameter_count(std::vector<std::int64_t> const& widths);

  /// @throws tessera::error as `parameter_count`.
  mlp(host_exec const& exec, mlp_options const& options)
      : widths_(options.widths), last_(options.last), own_(exec, parameter_count(options.widths)), parameters_(own_.view()) {
    initialise(exec, options);
  }
  /// An MLP with its parameters in the caller's `memory` (parameter_count,). Several networks in one block are one for an optimizer or a
  /// gradient exchange. @pre the memory outlives it @throws tessera::error as `parameter_count`; shape_mismatch.
  mlp(host_exec const& exec, mlp_options const& options, vector_view<float> memory);

  std::int64_t layers() const noexcept { return static_cast<std::int64_t>(widths_.size()) - 1; }
  std::int64_t input_width() const noexcept { return widths_.front(); }
  std::int64_t output_width() const noexcept { return widths_.back(); }
  /// The widths of the input, the hidden layers and the output.
  std::vector<std::int64_t> const& widths() const noexcept { return widths_; }

  /// All parameters; gradients and optimizer states have the same layout.
  vector_view<float> parameters() noexcept { return parameters_; }
  vector_view<float const> parameters() const noexcept { return parameters_; }

  /// The bytes of the parameters; 0 where they lie in the caller's memory.
  std::size_t bytes() const noexcept { return own_.capacity_bytes(); }

  /// One layer's part of a block laid out like `parameters()`.
  template <class T>
  linear_view<T> layer(vector_view<T> block, std::int64_t layer) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_index("mlp layer", layer, layers());
    std::int64_t first = 0;
    for (std::int64_t l = 0; l < layer; ++l) first += (in(l) + 1) * out(l);
    return {{block.data() + first, out(layer), in(layer)}, {block.data() + first + in(layer)*out(layer), out(layer)}};
  }

  /// Names and shapes for checkpoints: "<prefix>.0.weight" (out, in), "<prefix>.0.bias" (out,), …
  std::vector<parameter_block> blocks(std::string_view prefix);

  /// Computes y = mlp(x): x (samples, input width), y (samples, output width), any row strides. `backward` reads `saved`.
  /// @throws tessera::error shape_mismatch. No backward takes `saved` then.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, matrix_view<float> y, mlp_saved& saved) const {
    saved.x = saved.y = {};
    saved.hidden.resize(exec, x.rows() * hidden_width());
    forward(exec, policy, x, y, saved.hidden.view());
    saved.x = x;
    saved.y = y;
  }

  /// Computes the gradients of the forward that filled `saved`. `gradient` (samples, output width), that of y, becomes that of the last
  /// layer before its activation. `parameter_gradient`, laid out like `parameters()`, is overwritten. `x_gradient` (samples, input width)
  /// is overwritten; where it is empty, it is not computed. `finished` hears of each layer, from the last to the first.
  /// @throws tessera::error shape_mismatch. Then nothing has been written.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, mlp_saved& saved, matrix_view<float> gradient,
                vector_view<float> parameter_gradient, matrix_view<float> x_gradient = {}, gradient_listener const& finished = {}) const {
    backward(exec, policy, saved.x, saved.y, saved.hidden.view(), gradient, parameter_gradient, x_gradient, finished);
  }

  /// How many floats a sample a backward needs of its forward beside x and y: the sum of the hidden layers' widths.
  std::int64_t hidden_width() const noexcept {
    std::int64_t sum = 0;
    for (std::int64_t l = 0; l + 1 < layers(); ++l) sum += out(l);
    return sum;
  }

  /// As `forward`, with what it saves in the caller's `hidden` (samples * hidden_width(),). @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, matrix_view<float> y,
               vector_view<float> hidden) const {
    check_saved(x, y, hidden);
    auto from = x;
    for (std::int64_t l = 0; l < layers(); ++l) {
      auto const to = l + 1 == layers() ? y : hidden_layer(hidden, x.rows(), l);
      linear_forward(exec, policy, from, layer(parameters(), l), activation_of(l), to);
      from = to;
    }
  }

  /// As `backward`, for that forward. @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, matrix_view<float const> y,
                vector_view<float> hidden, matrix_view<float> gradient, vector_view<float> parameter_gradient,
                matrix_view<float> x_gradient = {}, gradient_listener const& finished = {}) const {
    if (parameter_gradient.size() != parameters_.size())
      throw error(errc::shape_mismatch, "mlp: gradient block", {{"size", parameter_gradient.size()}, {"parameters", parameters_.size()}});
    check_saved(x, y, hidden);
    auto const samples = x.rows();
    if (gradient.rows() != samples || gradient.columns() != output_width())
      throw error(
          errc::shape_mismatch, "mlp: gradient of the output",
          {{"rows", gradient.rows()}, {"expected rows", samples}, {"columns", gradient.columns()}, {"expected columns", output_width()}});
    if (x_gradient.rows() != 0 && (x_gradient.rows() != samples || x_gradient.columns() != input_width()))
      throw error(errc::shape_mismatch, "mlp: gradient of the input",
                  {{"rows", x_gradient.rows()},
                   {"expected rows", samples},
                   {"columns", x_gradient.columns()},
                   {"expected columns", input_width()}});
    auto const widest = *std::max_element(widths_.begin(), widths_.end());
    buffer<float> scratch(exec, 2 * samples * widest);
    if (last_ == activation::relu) relu_backward(exec, y, gradient);
    matrix_view<float const> layer_gradient = gradient;
    for (auto l = layers() - 1; l >= 0; --l) {
      matrix_view<float const> const from = l == 0 ? x : matrix_view<float const>(hidden_layer(hidden, samples, l - 1));
      auto const of_layer = layer(parameter_gradient, l);
      linear_backward_parameters(exec, policy, from, layer_gradient, of_layer);
      if (finished) finished({of_layer.weight.data(), (in(l) + 1) * out(l)});
      if (l == 0 && x_gradient.rows() == 0) return;
      auto const to = l == 0 ? x_gradient : matrix_view<float>{scratch.data() + (l % 2) * samples * widest, samples, in(l)};
      linear_backward_input(exec, policy, layer_gradient, layer(parameters(), l), l == 0 ? activation::identity : activation::relu, from,
                            to);
      layer_gradient = to;
    }
  }

 private:
  static constexpr std::int64_t largest_width = (std::int64_t{1} << 31) - 1;  // two of them multiply without overflow
  static constexpr std::int64_t most_parameters = std::int64_t{1} << 60;

  std::int64_t in(std::int64_t l) const noexcept { return widths_[static_cast<std::size_t>(l)]; }
  std::int64_t out(std::int64_t l) const noexcept { return widths_[static_cast<std::size_t>(l) + 1]; }
  activation activation_of(std::int64_t l) const noexcept { return l + 1 == layers() ? last_ : activation::relu; }
  matrix_view<float> hidden_layer(vector_view<float> hidden, std::int64_t samples, std::int64_t layer) const noexcept {
    std::int64_t before = 0;
    for (std::int64_t l = 0; l < layer; ++l) before += out(l);
    return {hidden.data() + samples * before, samples, out(layer)};
  }
  void check_saved(matrix_view<float const> x, matrix_view<float const> y, vector_view<float const> hidden) const;

  void initialise(host_exec const& exec, mlp_options const& options);

  std::vector<std::int64_t> widths_;
  activation last_;
  buffer<float> own_;
  vector_view<float> parameters_;  // in `own_`, or in the caller's memory
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/mlp.ipp>
#endif
