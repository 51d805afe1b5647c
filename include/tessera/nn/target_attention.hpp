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
#include <tessera/core/opaque.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/nn/target_pairs.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a target attention's backward needs of its forward. The caller owns it, and any number may be in flight.
/// @pre the vectors of history and targets outlive it
struct target_attention_saved {
  matrix_view<float const> history;  ///< (vectors, dim)
  matrix_view<float const> targets;  ///< (samples, dim)
  detail::target_order order;
};

/// Shape and initial values of a target attention. Its network starts as an `mlp` does.
struct target_attention_options {
  std::int64_t dim = 0;                      ///< of the vectors
  std::vector<std::int64_t> hidden{80, 40};  ///< widths of the network that scores a pair; may be none
  bool softmax = false;                      ///< of the scores of a sample; else they are the weights themselves, as in the paper
  std::int64_t pairs_at_once = 1 << 13;      ///< of a target and a vector: bounds the workspace, or a sample's history does if it is longer
  random_seed seed{};
  std::uint32_t stream = 0;  ///< sets apart the random numbers of networks that share a seed
};

/// The attention of a deep interest network. Sample i has a target t and as its history a jagged row of vectors h. Its output is the sum of
/// the h, each weighted by a score. A small network makes the score from [h, t, h - t, h * t]. It holds the network's parameters only.
/// Move-only.
///
/// Several samples may share a row, whose vectors are not repeated in memory. What the first layer multiplies with h alone is computed once
/// a vector, what it multiplies with t alone once a sample. Only h * t is multiplied once a pair. Source: Zhou et al., "Deep interest
/// network for click-through rate prediction", KDD 2018, section 4.3.
class target_attention {
 public:
  /// @throws tessera::error invalid_argument for a dim or a width below 1, `pairs_at_once` below 1, or more parameters than can be counted.
  target_attention(host_exec const& exec, target_attention_options const& options);

  std::int64_t dim() const noexcept { return dim_; }
  /// The network that scores a pair: its input is [h, t, h - t, h * t], its output the score.
  mlp const& network() const noexcept { return net_; }

  /// All parameters; gradients and optimizer states have the same layout, that of the network.
  vector_view<float> parameters() noexcept { return net_.parameters(); }
  vector_view<float const> parameters() const noexcept { return net_.parameters(); }
  std::size_t bytes() const noexcept { return net_.bytes(); }
  /// Names and shapes for checkpoints, as `mlp::blocks`.
  std::vector<parameter_block> blocks(std::string_view prefix) { return net_.blocks(prefix); }

  /// Computes out (samples, dim). Sample i has target `targets.row(i)` and row `inverse[i]` of `history`, or row i where `inverse` is
  /// empty. A row of length 0 gives zeros. `backward` reads `saved`, three numbers a sample.
  /// @throws tessera::error shape_mismatch; out_of_range for offsets past the values or an inverse that names no row. No backward takes
  /// `saved` then.
  template <gemm_policy Gemm, class Offset>
  void forward(host_exec const& exec, Gemm const& policy, jagged_vectors_view<float const, Offset> history,
               vector_view<std::int64_t const> inverse, matrix_view<float const> targets, matrix_view<float> out,
               target_attention_saved& saved) const {
    saved.order.clear();
    check(history, inverse, targets, out);
    auto const first = history.rows == 0 ? 0 : static_cast<std::int64_t>(history.begin_of(0));
    saved.history = {history.values.data() == nullptr ? nullptr : history.values.data() + first * history.values.stride(),
                     static_cast<std::int64_t>(history.size()), dim_, history.values.stride()};
    saved.targets = targets;
    target_attention_saved filled{saved.history, targets, std::move(saved.order)};
    filled.order.fill(exec, history, inverse, targets.rows());
    workspace const space(*this, exec, filled, false);
    space.prepare(exec, policy, *this, filled);
    filled.order.for_each_chunk(pairs_at_once_, [&](std::int64_t begin, std::int64_t end) {
      detail::target_chunk const chunk{filled.order, filled.history, filled.targets, begin, end};
      score(exec, policy, space, chunk);
      chunk.for_each_place(exec, [&](std::int64_t sample, std::int64_t pair, std::int64_t vector, std::int64_t length) {
        auto* const to = out.row(sample);
        std::fill_n(to, dim_, 0.0F);
        for (std::int64_t j = 0; j < length; ++j) add_scaled(space.scores[pair + j], filled.history.row(vector + j), dim_, to);
      });
    });
    saved.order = std::move(filled.order);
  }

  /// Computes the gradients of the forward that filled `saved`; it computes scores again, chunk by chunk. `gradient` (samples, dim) is that
  /// of out. `parameter_gradient`, laid out like `parameters()`, is overwritten. So are, unless they are empty, `target_gradient` (samples,
  /// dim) and `history_gradient` (vectors, dim), the latter from the first row's vectors to the last's. What samples add to a vector is
  /// added in their order.
  /// @throws tessera::error shape_mismatch. Then nothing has been written.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, target_attention_saved& saved, matrix_view<float const> gradient,
                vector_view<float> parameter_gradient, matrix_view<float> target_gradient = {},
                matrix_view<float> history_gradient = {}) const {
    check_backward(saved, gradient, parameter_gradient, target_gradient, history_gradient);
    workspace const space(*this, exec, saved, true);
    space.prepare(exec, policy, *this, saved);
    std::fill(parameter_gradient.begin(), parameter_gradient.end(), 0.0F);
    clear(exec, space.vector_slopes);
    clear(exec, history_gradient);
    saved.order.for_each_chunk(pairs_at_once_, [&](std::int64_t begin, std::int64_t end) {
      detail::target_chunk const chunk{saved.order, saved.history, saved.targets, begin, end};
      score(exec, policy, space, chunk);
      backward_chunk(exec, policy, space, chunk, gradient, parameter_gradient, target_gradient, history_gradient);
    });
    // The parts of the first layer that vectors and targets have alone: d = h - t takes from both.
    auto const first = net_.layer(parameter_gradient, 0);
    auto const of_vectors = space.combined(0), of_targets = space.combined(1);
    if (history_gradient.rows() > 0) add_product(exec, policy, space.vector_slopes, of_vectors, space.summands, history_gradient);
    if (target_gradient.rows() > 0) add_product(exec, policy, space.sample_slopes, of_targets, space.summands, target_gradient);
    gemm(exec, policy, transposed(space.vector_slopes), saved.history, of_vectors);
    gemm(exec, policy, transposed(space.sample_slopes), saved.targets, of_targets);
    for (std::int64_t r = 0; r < of_vectors.rows(); ++r)
      for (std::int64_t c = 0; c < dim_; ++c) {
        first.weight(r, c) = of_vectors(r, c);
        first.weight(r, dim_ + c) = of_targets(r, c);
        first.weight(r, 2 * dim_ + c) = of_vectors(r, c) - of_targets(r, c);
      }
    detail::column_sums(exec, space.sample_slopes, first.bias);
  }

 private:
  static constexpr std::int64_t rows_per_piece = 256;

  static std::vector<std::int64_t> widths(target_attention_options const& options);

  std::int64_t width() const noexcept { return net_.widths()[1]; }  // of the first layer

  // Matrices of a call, all in one buffer: a forward's, then a backward's.
  struct workspace {
    buffer<float> memory;
    matrix_view<float> both_combined;                 // (2 width, dim): first layer's weights of h and of t
    matrix_view<float> vector_part;                   // (vectors, width): what h alone gives the first layer
    matrix_view<float> sample_part;                   // (samples, width): what t alone gives it, and the bias
    std::int64_t pairs;                               // of the largest chunk
    float* products = nullptr;                        // (pairs, dim): h * t, in a backward then their gradient
    float* layers = nullptr;                          // outputs of all layers but the last, one after the other
    float* scores = nullptr;                          // (pairs,), then weights
    float* score_slopes = nullptr;                    // (pairs,)
    float* slopes[2] = {};                            // (pairs, widest hidden layer) each, in turn
    vector_view<float> chunk_gradient;                // (parameters,)
    matrix_view<float> vector_slopes, sample_slopes;  // gradients of vector_part, sample_part
    matrix_view<float> summands;                      // (max(vectors, samples), dim)

    workspace(target_attention const& owner, host_exec const& exec, target_attention_saved const& saved, bool backward);

    // Of h: W_h + W_d; of t: W_t - W_d.
    matrix_view<float> combined(std::int64_t which) const noexcept {
      auto const width = both_combined.rows() / 2;
      return {both_combined.data() + which * width * both_combined.columns(), width, both_combined.columns()};
    }

    template <class Gemm>
    void prepare(host_exec const& exec, Gemm const& policy, target_attention const& owner, target_attention_saved const& saved) const {
      auto const first = owner.net_.layer(owner.parameters(), 0);
      auto const dim = owner.dim_;
      auto const of_vectors = combined(0), of_targets = combined(1);
      for (std::int64_t r = 0; r < of_vectors.rows(); ++r)
        for (std::int64_t c = 0; c < dim; ++c) {
          of_vectors(r, c) = first.weight(r, c) + first.weight(r, 2 * dim + c);
          of_targets(r, c) = first.weight(r, dim + c) - first.weight(r, 2 * dim + c);
        }
      gemm(exec, policy, saved.history, transposed(of_vectors), vector_part);
      linear_forward(exec, policy, saved.targets, {of_targets, first.bias}, activation::identity, sample_part);
    }

    matrix_view<float> layer_output(target_attention const& owner, std::int64_t l, std::int64_t count) const noexcept {
      auto* start = layers;
      auto const& widths = owner.net_.widths();
      if (l + 1 == owner.net_.layers()) return {scores, count, 1};
      for (std::int64_t before = 0; before < l; ++before) start += pairs * widths[static_cast<std::size_t>(before) + 1];
      auto const columns = widths[static_cast<std::size_t>(l) + 1];
      return {start, count, columns};
    }
  };

  matrix_view<float const> pair_weight() const noexcept { return net_.layer(parameters(), 0).weight.columns_from(3 * dim_, dim_); }

  /// Writes the scores of a chunk's pairs to `space.scores`.
  template <class Gemm>
  void score(host_exec const& exec, Gemm const& policy, workspace const& space, detail::target_chunk const& chunk) const {
    auto const count = chunk.pairs();
    matrix_view<float> const products(space.products, count, dim_);
    chunk.for_each_pair(exec, [&](std::int64_t pair, std::int64_t place, std::int64_t vector) {
      auto const* const h = detail::opaque(chunk.history.row(vector));
      auto const* const t = chunk.targets.row(chunk.order.sample(place));
      auto* const to = products.row(pair);
      for (std::int64_t c = 0; c < dim_; ++c) to[c] = h[c] * t[c];
    });
    bool const ends = net_.layers() == 1;
    gemm(exec, policy, products, transposed(pair_weight()), space.layer_output(*this, 0, count),
         [&](matrix_view<float> tile, std::int64_t first_row, std::int64_t first_column) {
           chunk.for_pairs(first_row, first_row + tile.rows(), [&](std::int64_t pair, std::int64_t place, std::int64_t vector) {
             auto* const row = tile.row(pair - first_row);
             auto const* const of_vector = space.vector_part.row(vector) + first_column;
             auto const* const of_sample = space.sample_part.row(chunk.order.sample(place)) + first_column;
             for (std::int64_t c = 0; c < tile.columns(); ++c) {
               auto const z = row[c] + of_vector[c] + of_sample[c];
               row[c] = ends ? z : relu(z);
             }
           });
         });
    for (std::int64_t l = 1; l < net_.layers(); ++l)
      linear_forward(exec, policy, space.layer_output(*this, l - 1, count), net_.layer(parameters(), l),
                     l + 1 == net_.layers() ? activation::identity : activation::relu, space.layer_output(*this, l, count));
    if (softmax_)
      chunk.for_each_place(exec, [&](std::int64_t, std::int64_t pair, std::int64_t, std::int64_t length) {
        if (length > 0) softmax(space.scores + pair, length);
      });
  }

  static void softmax(float* scores, std::int64_t length) noexcept {
    auto const largest = *std::max_element(scores, scores + length);
    float sum = 0;
    for (std::int64_t j = 0; j < length; ++j) sum += scores[j] = std::exp(scores[j] - largest);
    for (std::int64_t j = 0; j < length; ++j) scores[j] /= sum;
  }
  static void add_scaled(float scale, float const* from, std::int64_t count, float* to) noexcept {
    from = detail::opaque(from);
    for (std::int64_t c = 0; c < count; ++c) to[c] = multiply_add(scale, from[c], to[c]);
  }
  static void add_products(float const* a, float const* b, std::int64_t count, float* to) noexcept {
    a = detail::opaque(a);
    for (std::int64_t c = 0; c < count; ++c) to[c] = multiply_add(a[c], b[c], to[c]);
  }
  static void add(float const* from, std::int64_t count, float* to) noexcept {
    from = detail::opaque(from);
    for (std::int64_t c = 0; c < count; ++c) to[c] += from[c];
  }
  static void clear(host_exec const& exec, matrix_view<float> m) {
    for_each_index(exec, m.rows(), rows_per_piece, [=](std::int64_t r) { std::fill_n(m.row(r), m.columns(), 0.0F); });
  }
  /// Adds a b to `sum`; `scratch` has at least the rows of `sum`.
  template <class Gemm>
  static void add_product(host_exec const& exec, Gemm const& policy, matrix_view<float const> a, matrix_view<float const> b,
                          matrix_view<float> scratch, matrix_view<float> sum) {
    gemm(exec, policy, a, b, scratch.rows_from(0, sum.rows()), [&](matrix_view<float> tile, std::int64_t first_row, std::int64_t column) {
      for (std::int64_t r = 0; r < tile.rows(); ++r) add(tile.row(r), tile.columns(), sum.row(first_row + r) + column);
    });
  }

  template <class Gemm>
  void backward_chunk(host_exec const& exec, Gemm const& policy, workspace const& space, detail::target_chunk const& chunk,
                      matrix_view<float const> gradient, vector_view<float> parameter_gradient, matrix_view<float> target_gradient,
                      matrix_view<float> history_gradient) const {
    auto const count = chunk.pairs();
    chunk.for_each_place(exec, [&](std::int64_t sample, std::int64_t pair, std::int64_t vector, std::int64_t length) {
      float mean = 0;
      for (std::int64_t j = 0; j < length; ++j) {
        space.score_slopes[pair + j] = detail::dot_of_vectors(gradient.row(sample), chunk.history.row(vector + j), dim_);
        mean = multiply_add(space.scores[pair + j], space.score_slopes[pair + j], mean);
      }
      for (std::int64_t j = 0; softmax_ && j < length; ++j)
        space.score_slopes[pair + j] = space.scores[pair + j] * (space.score_slopes[pair + j] - mean);
    });
    matrix_view<float const> slopes(space.score_slopes, count, 1);
    for (auto l = net_.layers() - 1; l > 0; --l) {
      auto const from = space.layer_output(*this, l - 1, count);
      linear_backward_parameters(exec, policy, from, slopes, net_.layer(space.chunk_gradient, l));
      matrix_view<float> const to(space.slopes[l % 2], count, from.columns());
      linear_backward_input(exec, policy, slopes, net_.layer(parameters(), l), activation::relu, from, to);
      slopes = to;
    }
    matrix_view<float> const products(space.products, count, dim_);
    auto const first = net_.layer(space.chunk_gradient, 0), sum = net_.layer(parameter_gradient, 0);
    gemm(exec, policy, transposed(slopes), products, first.weight.columns_from(3 * dim_, dim_));
    for (std::int64_t r = 0; r < sum.weight.rows(); ++r) add(first.weight.row(r) + 3 * dim_, dim_, sum.weight.row(r) + 3 * dim_);
    auto const before = first.weight.rows() * (first.weight.columns() + 1);
    add(space.chunk_gradient.data() + before, space.chunk_gradient.size() - before, parameter_gradient.data() + before);

    gemm(exec, policy, slopes, pair_weight(), products);  // now their gradient
    chunk.for_each_place(exec, [&](std::int64_t sample, std::int64_t pair, std::int64_t vector, std::int64_t length) {
      auto* const to = space.sample_slopes.row(sample);
      std::fill_n(to, width(), 0.0F);
      for (std::int64_t j = 0; j < length; ++j) add(slopes.row(pair + j), width(), to);
      if (target_gradient.rows() == 0) return;
      std::fill_n(target_gradient.row(sample), dim_, 0.0F);
      for (std::int64_t j = 0; j < length; ++j)
        add_products(products.row(pair + j), chunk.history.row(vector + j), dim_, target_gradient.row(sample));
    });
    chunk.for_each_vector(exec, [&](std::int64_t vector, std::int64_t pair, std::int64_t sample) {
      add(slopes.row(pair), width(), space.vector_slopes.row(vector));
      if (history_gradient.rows() == 0) return;
      add_scaled(space.scores[pair], gradient.row(sample), dim_, history_gradient.row(vector));
      add_products(products.row(pair), chunk.targets.row(sample), dim_, history_gradient.row(vector));
    });
  }

  static void check_matrix(char const* what, matrix_view<float const> m, std::int64_t rows, std::int64_t columns);
  template <class Offset>
  void check(jagged_vectors_view<float const, Offset> history, vector_view<std::int64_t const> inverse, matrix_view<float const> targets,
             matrix_view<float const> out) const {
    detail::check_jagged_vectors("target_attention", "history", history);
    detail::check_extent("target_attention", "history's dim", history.dim(), dim_);
    auto const samples = inverse.empty() ? targets.rows() : inverse.size();
    if (inverse.empty() && targets.rows() > 0)
      detail::check_extent("target_attention", "targets without an inverse", targets.rows(), history.rows);
    check_matrix("targets", targets, samples, dim_);
    check_matrix("output", out, samples, dim_);
  }
  void check_backward(target_attention_saved const& saved, matrix_view<float const> gradient, vector_view<float const> parameter_gradient,
                      matrix_view<float const> target_gradient, matrix_view<float const> history_gradient) const;

  std::int64_t dim_;
  bool softmax_;
  std::int64_t pairs_at_once_;
  mlp net_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/target_attention.ipp>
#endif
