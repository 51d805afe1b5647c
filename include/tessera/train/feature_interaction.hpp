// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/cross_net.hpp>
#include <tessera/nn/dot_interaction.hpp>
#include <tessera/nn/factorization_machine.hpp>
#include <tessera/nn/parameters.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How a click model lets a sample's vectors meet: `vectors` of `dim` elements, the first made of the dense features if there are any, each
/// other one pooled from a table. It reads them side by side in one matrix (samples, vectors * dim), of any row stride, and writes what the
/// top MLP reads, (samples, output_width()). Holds parameters, perhaps none; what `backward` needs of a `forward` is in a `saved` of the caller's.
/// - `I(exec, options, vectors, dim, seed)`; `name`: of the kind, for checkpoints.
/// - `forward(exec, gemm, x, out, saved)`; x must outlive `saved`. Of a forward that throws, no backward takes `saved`.
/// - `add_to_logits(exec, saved, logits)`: adds what bypasses the top MLP, if anything, to the logits (samples,) that it wrote.
/// - `backward(exec, gemm, saved, out_gradient, logit_gradient, parameter_gradient, x_gradient)`: overwrites the last two;
///   `parameter_gradient` is laid out like `parameters()`; may overwrite `out_gradient`.
template <class I>
concept feature_interaction =
    std::constructible_from<I, host_exec const&, typename I::options const&, std::int64_t, std::int64_t, random_seed> &&
    requires(I& own, I const& held, host_exec const& exec, any_gemm const& policy, typename I::saved& saved, matrix_view<float const> x,
             matrix_view<float> out, vector_view<float> block, vector_view<float const> logit_gradient) {
  { I::name } -> std::convertible_to<std::string_view>;
  { held.output_width() } -> std::same_as<std::int64_t>;
  { own.parameters() } -> std::same_as<vector_view<float>>;
  { held.parameters() } -> std::same_as<vector_view<float const>>;
  { own.blocks(std::string_view()) } -> std::same_as<std::vector<parameter_block>>;
  { held.bytes() } -> std::same_as<std::size_t>;
  held.forward(exec, policy, x, out, saved);
  held.add_to_logits(exec, saved, block);
  held.backward(exec, policy, saved, out, logit_gradient, block, out);
};

namespace detail {

// (vectors,): of vectors of `dim` elements that lie side by side, the first `columns` elements each, as blocks (samples, columns).
template <class T>
buffer<matrix_view<T>> vector_blocks(host_exec const& exec, matrix_view<T> side_by_side, std::int64_t first, std::int64_t vectors,
                                     std::int64_t dim, std::int64_t columns) {
  buffer<matrix_view<T>> blocks(exec, vectors);
  for (std::int64_t v = 0; v < vectors; ++v) blocks[v] = side_by_side.columns_from((first + v) * dim, columns);
  return blocks;
}

}  // namespace detail

/// DLRM's: the first vector, a pooled one where there are no dense features, then the dot products of all pairs. No parameters.
class dot_products {
 public:
  struct options {};
  struct saved {
    matrix_view<float const> x;
  };
  static constexpr std::string_view name = "dot_products";

  dot_products(host_exec const&, options const&, std::int64_t vectors, std::int64_t dim, random_seed) noexcept
      : vectors_(vectors), dim_(dim) {}

  std::int64_t output_width() const noexcept { return dot_interaction_width(vectors_, dim_); }
  vector_view<float> parameters() noexcept { return {}; }
  vector_view<float const> parameters() const noexcept { return {}; }
  std::vector<parameter_block> blocks(std::string_view) const { return {}; }
  std::size_t bytes() const noexcept { return 0; }

  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const&, matrix_view<float const> x, matrix_view<float> out, saved& saved) const {
    saved.x = {};
    auto const inputs = detail::vector_blocks(exec, x, 0, vectors_, dim_, dim_);
    dot_interaction(exec, inputs.view(), out);
    saved.x = x;
  }
  void add_to_logits(host_exec const&, saved const&, vector_view<float>) const noexcept {}

  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const&, saved const& saved, matrix_view<float> out_gradient, vector_view<float const>,
                vector_view<float>, matrix_view<float> x_gradient) const {
    auto const inputs = detail::vector_blocks(exec, saved.x, 0, vectors_, dim_, dim_);
    auto const gradients = detail::vector_blocks(exec, x_gradient, 0, vectors_, dim_, dim_);
    dot_interaction_backward(exec, inputs.view(), out_gradient, gradients.view());
  }

 private:
  std::int64_t vectors_, dim_;
};
static_assert(feature_interaction<dot_products>);

/// DCN V2's, stacked: a cross network over the concatenated vectors, which the top MLP goes on from.
class cross_layers {
 public:
  struct options {
    std::int64_t layers = 3;
    std::int64_t rank = 0;  // of each layer's matrix; 0: full
  };
  using saved = cross_saved;
  static constexpr std::string_view name = "cross_layers";

  /// @throws tessera::error as `cross_net`.
  cross_layers(host_exec const& exec, options const& options, std::int64_t vectors, std::int64_t dim, random_seed seed)
      : net_(exec, {.width = vectors * dim, .layers = options.layers, .rank = options.rank, .seed = seed, .stream = random_stream}) {}

  cross_net const& net() const noexcept { return net_; }
  std::int64_t output_width() const noexcept { return net_.width(); }
  vector_view<float> parameters() noexcept { return net_.parameters(); }
  vector_view<float const> parameters() const noexcept { return net_.parameters(); }
  std::vector<parameter_block> blocks(std::string_view prefix) { return net_.blocks(prefix); }
  std::size_t bytes() const noexcept { return net_.bytes(); }

  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, matrix_view<float> out, saved& saved) const {
    net_.forward(exec, policy, x, out, saved);
  }
  void add_to_logits(host_exec const&, saved const&, vector_view<float>) const noexcept {}

  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, saved& saved, matrix_view<float> out_gradient, vector_view<float const>,
                vector_view<float> parameter_gradient, matrix_view<float> x_gradient) const {
    net_.backward(exec, policy, saved, out_gradient, parameter_gradient, x_gradient);
  }

 private:
  static constexpr std::uint32_t random_stream = 2;  // 0 and 1 are the model's MLPs

  cross_net net_;
};
static_assert(feature_interaction<cross_layers>);

/// DeepFM's: the last element of each vector is a first-order weight, the others are its factors. The logit gets the sum of the weights and
/// a factorization machine's term of the factors; the top MLP reads the factors side by side. No parameters of its own.
/// Source: Guo et al., "DeepFM: a factorization-machine based neural network for CTR prediction", IJCAI 2017, equations 1 to 4.
class factorization {
 public:
  struct options {};
  struct saved {
    matrix_view<float const> x;
  };
  static constexpr std::string_view name = "factorization";

  /// @throws tessera::error invalid_argument for a dim below 2.
  factorization(host_exec const&, options const&, std::int64_t vectors, std::int64_t dim, random_seed) : vectors_(vectors), dim_(dim) {
    if (dim < 2) throw error(errc::invalid_argument, "factorization: a dim of one factor and a weight at least", {{"dim", dim}});
  }

  std::int64_t output_width() const noexcept { return vectors_ * factors(); }
  vector_view<float> parameters() noexcept { return {}; }
  vector_view<float const> parameters() const noexcept { return {}; }
  std::vector<parameter_block> blocks(std::string_view) const { return {}; }
  std::size_t bytes() const noexcept { return 0; }

  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const&, matrix_view<float const> x, matrix_view<float> out, saved& saved) const {
    saved.x = {};
    for_each_index(exec, x.rows(), samples_per_piece, [=, *this](std::int64_t s) {
      for (std::int64_t v = 0; v < vectors_; ++v)
        for (std::int64_t d = 0; d < factors(); ++d) out(s, v * factors() + d) = x(s, v * dim_ + d);
    });
    saved.x = x;
  }

  void add_to_logits(host_exec const& exec, saved const& saved, vector_view<float> logits) const {
    auto const x = saved.x;
    for_each_index(exec, x.rows(), samples_per_piece, [=, *this](std::int64_t s) {
      float weights = 0;
      for (std::int64_t v = 0; v < vectors_; ++v) weights += x(s, v * dim_ + factors());
      logits[s] += weights;
    });
    auto const of_factors = detail::vector_blocks(exec, x, 0, vectors_, dim_, factors());
    factorization_machine(exec, of_factors.view(), {logits.data(), logits.size(), 1});
  }

  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const&, saved const& saved, matrix_view<float> out_gradient,
                vector_view<float const> logit_gradient, vector_view<float>, matrix_view<float> x_gradient) const {
    for_each_index(exec, x_gradient.rows(), samples_per_piece, [=, *this](std::int64_t s) {
      for (std::int64_t v = 0; v < vectors_; ++v) {
        for (std::int64_t d = 0; d < factors(); ++d) x_gradient(s, v * dim_ + d) = out_gradient(s, v * factors() + d);
        x_gradient(s, v * dim_ + factors()) = logit_gradient[s];
      }
    });
    auto const of_factors = detail::vector_blocks(exec, saved.x, 0, vectors_, dim_, factors());
    auto const gradients = detail::vector_blocks(exec, x_gradient, 0, vectors_, dim_, factors());
    factorization_machine_backward(exec, of_factors.view(), {logit_gradient.data(), logit_gradient.size(), 1}, gradients.view());
  }

 private:
  static constexpr std::int64_t samples_per_piece = 64;

  std::int64_t factors() const noexcept { return dim_ - 1; }

  std::int64_t vectors_, dim_;
};
static_assert(feature_interaction<factorization>);

/// No meeting before the top MLP, which reads the vectors side by side as they are. No parameters.
class concatenation {
 public:
  struct options {};
  struct saved {
    std::int64_t samples = 0;
  };
  static constexpr std::string_view name = "concatenation";

  concatenation(host_exec const&, options const&, std::int64_t vectors, std::int64_t dim, random_seed) noexcept : width_(vectors * dim) {}

  std::int64_t output_width() const noexcept { return width_; }
  vector_view<float> parameters() noexcept { return {}; }
  vector_view<float const> parameters() const noexcept { return {}; }
  std::vector<parameter_block> blocks(std::string_view) const { return {}; }
  std::size_t bytes() const noexcept { return 0; }

  /// @throws tessera::error shape_mismatch, as `backward`: nothing has been written.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const&, matrix_view<float const> x, matrix_view<float> out, saved& saved) const {
    saved.samples = 0;
    check("input", x, x.rows());
    check("output", out, x.rows());
    copy(exec, x, out);
    saved.samples = x.rows();
  }
  void add_to_logits(host_exec const&, saved const&, vector_view<float>) const noexcept {}

  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const&, saved const& saved, matrix_view<float> out_gradient, vector_view<float const>,
                vector_view<float>, matrix_view<float> x_gradient) const {
    check("output's gradient", out_gradient, saved.samples);
    check("input's gradient", x_gradient, saved.samples);
    copy(exec, out_gradient, x_gradient);
  }

 private:
  static constexpr std::int64_t samples_per_piece = 64;

  static void copy(host_exec const& exec, matrix_view<float const> from, matrix_view<float> to) {
    for_each_index(exec, from.rows(), samples_per_piece, [=](std::int64_t s) { std::copy_n(from.row(s), from.columns(), to.row(s)); });
  }
  void check(char const* what, matrix_view<float const> m, std::int64_t samples) const {
    if (m.rows() != samples || m.columns() != width_ || (m.rows() > 1 && m.stride() < m.columns()))
      throw error(
          errc::shape_mismatch, std::string("concatenation: shape of the ") + what,
          {{"rows", m.rows()}, {"expected rows", samples}, {"columns", m.columns()}, {"expected columns", width_}, {"stride", m.stride()}});
  }

  std::int64_t width_;
};
static_assert(feature_interaction<concatenation>);

}  // namespace TESSERA_ABI
}  // namespace tessera
