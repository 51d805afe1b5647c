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

/// How a click model lets the vectors of a sample meet. An interaction holds parameters, perhaps none.
///
/// The vectors lie side by side in one matrix x (samples, vectors * dim), of any row stride. Where there are dense features, the bottom MLP
/// made the first vector. The interaction writes what the top MLP reads, `out` (samples, output_width()).
/// - `I(exec, options, vectors, dim, seed)` makes the parameters for that many vectors of `dim` elements.
/// - `name` is that of the kind, for checkpoints.
/// - `parameters()` is the block of all parameters, `blocks(prefix)` names its parts for checkpoints, `bytes()` is what it takes.
/// - `forward(exec, gemm, x, out, saved)` leaves in `saved`, which the caller owns, what `backward` needs. x must outlive `saved`.
///   After a forward that throws, no backward takes `saved`.
/// - `add_to_logits(exec, saved, logits)` adds what bypasses the top MLP, if anything, to the logits (samples,) that the top MLP wrote.
/// - `backward(exec, gemm, saved, out_gradient, logit_gradient, parameter_gradient, x_gradient)` reads the gradients of `out` and of the
///   logits (samples,). It overwrites `parameter_gradient`, laid out like `parameters()`, and `x_gradient` (samples, vectors * dim).
///   It may overwrite `out_gradient`, too.
///
/// All run on the threads of `exec` and return when their work is done.
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

/// DLRM's interaction: the first vector, then the dot products of all pairs. It has no parameters. See `feature_interaction`.
/// Source: Naumov et al., 2019.
class dot_products {
 public:
  /// There is nothing to choose.
  struct options {};
  /// What `backward` needs of `forward`.
  struct saved {
    matrix_view<float const> x;  ///< the forward's vectors
  };
  static constexpr std::string_view name = "dot_products";

  /// Takes the shape: `vectors` of `dim` elements.
  dot_products(host_exec const&, options const&, std::int64_t vectors, std::int64_t dim, random_seed) noexcept
      : vectors_(vectors), dim_(dim) {}

  /// The width is `dim`, and one column a pair of vectors.
  std::int64_t output_width() const noexcept { return dot_interaction_width(vectors_, dim_); }
  vector_view<float> parameters() noexcept { return {}; }
  vector_view<float const> parameters() const noexcept { return {}; }
  std::vector<parameter_block> blocks(std::string_view) const { return {}; }
  std::size_t bytes() const noexcept { return 0; }

  /// Writes the first vector and the products of each sample. @throws tessera::error as `dot_interaction`.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const&, matrix_view<float const> x, matrix_view<float> out, saved& saved) const {
    saved.x = {};
    auto const inputs = detail::vector_blocks(exec, x, 0, vectors_, dim_, dim_);
    dot_interaction(exec, inputs.view(), out);
    saved.x = x;
  }
  /// Adds nothing.
  void add_to_logits(host_exec const&, saved const&, vector_view<float>) const noexcept {}

  /// Overwrites `x_gradient` alone. @throws tessera::error as `dot_interaction_backward`.
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

/// DCN V2's interaction, stacked: a cross network over the concatenated vectors, whose output the top MLP reads. See `feature_interaction`.
/// Source: Wang et al., WWW 2021.
class cross_layers {
 public:
  /// The shape of the cross network.
  struct options {
    std::int64_t layers = 3;  ///< how many cross layers
    std::int64_t rank = 0;    ///< rank of each layer's matrix; 0: full
  };
  using saved = cross_saved;
  static constexpr std::string_view name = "cross_layers";

  /// Makes a cross network of width `vectors * dim`. @throws tessera::error as `cross_net`.
  cross_layers(host_exec const& exec, options const& options, std::int64_t vectors, std::int64_t dim, random_seed seed)
      : net_(exec, {.width = vectors * dim, .layers = options.layers, .rank = options.rank, .seed = seed, .stream = random_stream}) {}

  /// The cross network, which owns the parameters.
  cross_net const& net() const noexcept { return net_; }
  /// The width is `vectors * dim`.
  std::int64_t output_width() const noexcept { return net_.width(); }
  vector_view<float> parameters() noexcept { return net_.parameters(); }
  vector_view<float const> parameters() const noexcept { return net_.parameters(); }
  std::vector<parameter_block> blocks(std::string_view prefix) { return net_.blocks(prefix); }
  std::size_t bytes() const noexcept { return net_.bytes(); }

  /// Runs the cross network. @throws tessera::error as `cross_net::forward`.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, matrix_view<float> out, saved& saved) const {
    net_.forward(exec, policy, x, out, saved);
  }
  /// Adds nothing.
  void add_to_logits(host_exec const&, saved const&, vector_view<float>) const noexcept {}

  /// Overwrites all gradients, that of `out` included. @throws tessera::error as `cross_net::backward`.
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

/// DeepFM's interaction, which has no parameters of its own. See `feature_interaction`.
/// The last element of each vector is a first-order weight, the others are its factors. The top MLP reads the factors side by side.
/// The logit gets the sum of the weights and a factorization machine's term of the factors.
/// Source: Guo et al., "DeepFM: a factorization-machine based neural network for CTR prediction", IJCAI 2017, equations 1 to 4.
class factorization {
 public:
  /// There is nothing to choose.
  struct options {};
  /// What `backward` needs of `forward`.
  struct saved {
    matrix_view<float const> x;  ///< the forward's vectors
  };
  static constexpr std::string_view name = "factorization";

  /// Takes the shape: `vectors` of `dim` elements, a weight and `dim` - 1 factors.
  /// @throws tessera::error invalid_argument for a dim below 2.
  factorization(host_exec const&, options const&, std::int64_t vectors, std::int64_t dim, random_seed) : vectors_(vectors), dim_(dim) {
    if (dim < 2) throw error(errc::invalid_argument, "factorization: a dim of one factor and a weight at least", {{"dim", dim}});
  }

  /// The width is `vectors * (dim - 1)`.
  std::int64_t output_width() const noexcept { return vectors_ * factors(); }
  vector_view<float> parameters() noexcept { return {}; }
  vector_view<float const> parameters() const noexcept { return {}; }
  std::vector<parameter_block> blocks(std::string_view) const { return {}; }
  std::size_t bytes() const noexcept { return 0; }

  /// Writes the factors side by side. @pre `out` is (samples, output_width()).
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const&, matrix_view<float const> x, matrix_view<float> out, saved& saved) const {
    saved.x = {};
    for_each_index(exec, x.rows(), samples_per_piece, [=, *this](std::int64_t s) {
      for (std::int64_t v = 0; v < vectors_; ++v)
        for (std::int64_t d = 0; d < factors(); ++d) out(s, v * factors() + d) = x(s, v * dim_ + d);
    });
    saved.x = x;
  }

  /// Adds to each logit the sum of the weights and the second-order term. @throws tessera::error as `factorization_machine`.
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

  /// Overwrites `x_gradient` with the sum of what comes through the top MLP and past it.
  /// @throws tessera::error as `factorization_machine_backward`.
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

/// No interaction before the top MLP, which reads the vectors side by side as they are. It has no parameters. See `feature_interaction`.
class concatenation {
 public:
  /// There is nothing to choose.
  struct options {};
  /// What `backward` needs of `forward`.
  struct saved {
    std::int64_t samples = 0;  ///< of the forward
  };
  static constexpr std::string_view name = "concatenation";

  /// Takes the shape: `vectors` of `dim` elements.
  concatenation(host_exec const&, options const&, std::int64_t vectors, std::int64_t dim, random_seed) noexcept : width_(vectors * dim) {}

  /// The width is `vectors * dim`.
  std::int64_t output_width() const noexcept { return width_; }
  vector_view<float> parameters() noexcept { return {}; }
  vector_view<float const> parameters() const noexcept { return {}; }
  std::vector<parameter_block> blocks(std::string_view) const { return {}; }
  std::size_t bytes() const noexcept { return 0; }

  /// Copies x to `out`. @throws tessera::error shape_mismatch. Nothing has been written then.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const&, matrix_view<float const> x, matrix_view<float> out, saved& saved) const {
    saved.samples = 0;
    check("input", x, x.rows());
    check("output", out, x.rows());
    copy(exec, x, out);
    saved.samples = x.rows();
  }
  /// Adds nothing.
  void add_to_logits(host_exec const&, saved const&, vector_view<float>) const noexcept {}

  /// Copies `out_gradient` to `x_gradient`. @throws tessera::error shape_mismatch. Nothing has been written then.
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
