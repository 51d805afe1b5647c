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
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/layer_norm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/nn/sequence_pooling.hpp>
#include <tessera/nn/transformer_layer.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Shape and initial values of an encoder. Each matrix is uniform with the variance 2 / (in + out) of Glorot and Bengio, AISTATS 2010.
/// Queries, keys and values have a matrix each. Positions are uniform with a deviation of 0.02; gains are 1, biases 0.
struct transformer_encoder_options {
  std::int64_t dim = 0;  ///< of the vectors
  std::int64_t layers = 1;
  std::int64_t heads = 1;       ///< divide dim
  std::int64_t hidden = 0;      ///< width of the feed-forward; 0: 4 dim
  std::int64_t max_length = 0;  ///< of a row, each place of which has a learned vector that is added; 0: no such vectors, any length
  bool causal = false;
  bool norm_first = false;  ///< normalises the input of each sub-layer, and the last output; else output and residual of each
  sequence_pooling pooling = sequence_pooling::mean;
  bool recomputes_hidden = false;  ///< the backward makes the feed-forward's hidden layer again instead of keeping it
  random_seed seed{};
  std::uint32_t stream = 0;  ///< sets apart the random numbers of networks that share a seed
};

/// What an encoder's backward needs of its forward. The caller owns it, and any number may be in flight. @pre the vectors x outlive it
struct transformer_saved {
  matrix_view<float const> x;    ///< (vectors, dim)
  buffer<std::int64_t> offsets;  ///< (rows + 1,), from 0
  buffer<float> values;          ///< x with its positions where there are any; layer by layer what it made; statistics of the last norm
};

/// A transformer's encoder over jagged rows, which pools each row. A layer is attention of several heads within the row and a feed-forward
/// of two linear layers, each with its residual and layer norm. It holds parameters only, in one block. Move-only.
///
/// Vectors of all rows go through the products at once; nothing is padded. Other rows of a batch change a row's result at most in its last
/// bits, where the policy's products round by a vector's place. Source: Vaswani et al., "Attention is all you need", NeurIPS 2017, section
/// 3. Source for norms first: Xiong et al., "On layer normalization in the transformer architecture", ICML 2020.
class transformer_encoder {
 public:
  /// @throws tessera::error invalid_argument for heads that do not divide the dim, and for extents that are too small, or so large that
  /// parameters cannot be counted.
  transformer_encoder(host_exec const& exec, transformer_encoder_options const& options);

  std::int64_t dim() const noexcept { return options_.dim; }
  std::int64_t layers() const noexcept { return options_.layers; }
  transformer_encoder_options const& options() const noexcept { return options_; }  // with the width of the hidden layer

  /// All parameters; gradients and optimizer states have the same layout: positions, layer by layer, the last norm.
  vector_view<float> parameters() noexcept { return parameters_.view(); }
  vector_view<float const> parameters() const noexcept { return parameters_.view(); }

  std::size_t bytes() const noexcept { return parameters_.capacity_bytes(); }

  /// The bytes that a forward saves for its backward of so many vectors, of rows of any length; 8 a row come on top. A vector takes
  /// 4 (6 dim + hidden + heads + 4) a layer, with `hidden` where it is kept. It takes 4 dim more for positions, 8 more for norms first.
  std::int64_t saved_bytes(std::int64_t vectors) const noexcept { return 4 * vectors * saved_floats(); }

  /// The positions, a part of a block laid out like `parameters()`; the calls below give the other parts.
  template <class T>
  matrix_view<T> positions(vector_view<T> block) const noexcept {
    return {block.data(), options_.max_length, dim()};
  }
  /// One layer's part of a block.
  template <class T>
  transformer_layer_view<T> layer(vector_view<T> block, std::int64_t layer) const noexcept {
    auto* next = block.data() + options_.max_length * dim() + layer * layer_size();
    auto const take = [&](std::int64_t count) { return std::exchange(next, next + count); };
    auto const linear = [&](std::int64_t out, std::int64_t in) {
      auto* const weight = take(out * in);
      return linear_view<T>{{weight, out, in}, {take(out), out}};
    };
    auto const norm = [&] {
      auto* const gain = take(dim());
      return layer_norm_view<T>{{gain, dim()}, {take(dim()), dim()}};
    };
    transformer_layer_view<T> view;
    view.project = linear(3 * dim(), dim());
    view.mix = linear(dim(), dim());
    view.attention_norm = norm();
    view.up = linear(options_.hidden, dim());
    view.down = linear(dim(), options_.hidden);
    view.feed_norm = norm();
    return view;
  }
  /// The last norm; empty unless norms come first.
  template <class T>
  layer_norm_view<T> last_norm(vector_view<T> block) const noexcept {
    auto* const gain = block.data() + options_.max_length * dim() + layers() * layer_size();
    if (!options_.norm_first) return {};
    return {{gain, dim()}, {gain + dim(), dim()}};
  }

  /// Names and shapes for checkpoints: "<prefix>.positions"; "<prefix>.0.project.weight", "….bias", "….mix", "….attention_norm.gain",
  /// "….bias", "….up", "….down", "….feed_norm", …; "<prefix>.norm.gain", "….bias".
  std::vector<parameter_block> blocks(std::string_view prefix);

  /// Computes out (rows, dim), the pooled encoding of each row of x. `backward` reads `saved`, and not out.
  /// @throws tessera::error shape_mismatch; out_of_range for offsets past the values or a row longer than `max_length`. No backward takes
  /// `saved` then.
  template <gemm_policy Gemm, class Offset>
  void forward(host_exec const& exec, Gemm const& policy, jagged_vectors_view<float const, Offset> x, matrix_view<float> out,
               transformer_saved& saved) const {
    saved.x = {};
    check(x, out);
    saved.values.resize(exec, x.size() * saved_floats());
    run(exec, policy, x, out, saved.offsets, saved.values.data(), true);
    saved.x = detail::vectors_of(x);
  }

  /// Computes the same bits of out and saves nothing: it keeps for one layer at a time what that layer needs.
  template <gemm_policy Gemm, class Offset>
  void forward(host_exec const& exec, Gemm const& policy, jagged_vectors_view<float const, Offset> x, matrix_view<float> out) const {
    check(x, out);
    buffer<std::int64_t> offsets;
    buffer<float> values(exec, x.size() * (position_floats() + 6 * dim()));
    run(exec, policy, x, out, offsets, values.data(), false);
  }

  /// Computes the gradients of the forward that filled `saved`. `gradient` (rows, dim) is that of out. `parameter_gradient`, laid out like
  /// `parameters()`, is overwritten. So are the vectors of `x_gradient` (vectors, dim) from its first row's to its last's, in order; where
  /// it is empty, it is not computed.
  /// @throws tessera::error shape_mismatch. Then nothing has been written.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, transformer_saved& saved, matrix_view<float const> gradient,
                vector_view<float> parameter_gradient, matrix_view<float> x_gradient = {}) const {
    check_backward(saved, gradient, parameter_gradient, x_gradient);
    auto const vectors = saved.x.rows();
    auto const rows = jagged(saved, saved.x);
    auto const wide = std::max(options_.hidden, 3 * dim());
    buffer<float> scratch(exec, vectors * (3 * dim() + wide + (options_.recomputes_hidden ? options_.hidden : 0)));
    matrix_view<float> const slope(scratch.data(), vectors, dim()), some(slope.data() + vectors * dim(), vectors, dim()),
        more(some.data() + vectors * dim(), vectors, dim());
    auto* const widest = more.data() + vectors * dim();
    pool_sequences_backward(exec, gradient, options_.pooling, rows.with_values(slope));
    auto const x = input(saved.values.data(), saved.x);
    auto const memory_of = [&](std::int64_t l) { return memory(saved.values.data(), vectors, l, widest + vectors * wide); };
    if (options_.norm_first)
      layer_norm_backward(exec, layers() == 0 ? x : matrix_view<float const>(memory_of(layers() - 1).end), last_norm(parameters()),
                          last_statistics(saved.values.data(), vectors), slope, last_norm(parameter_gradient), slope);
    for (auto l = layers() - 1; l >= 0; --l) {
      auto const x_again = [&]() -> matrix_view<float const> {
        if (l == 0) return x;
        auto const before = memory_of(l - 1);
        if (options_.norm_first) return before.end;
        layer_norm_again(exec, before.end, layer(parameters(), l - 1).feed_norm, constant(before.feed_statistics), some);
        return some;
      };
      runner(l, rows).backward(exec, policy, memory_of(l), x_again, options_.recomputes_hidden, slope, layer(parameter_gradient, l), widest,
                               some, more);
    }
    sum_positions(exec, rows.with_values(matrix_view<float const>(slope)), positions(parameter_gradient));
    if (x_gradient.rows() > 0)
      for_each_index(exec, vectors, vectors_per_piece,
                     [=](std::int64_t i) { std::copy_n(slope.row(i), slope.columns(), x_gradient.row(i)); });
  }

 private:
  static constexpr std::int64_t largest_width = std::int64_t{1} << 24;
  static constexpr std::int64_t most_parameters = std::int64_t{1} << 59;
  static constexpr std::int64_t vectors_per_piece = 256;

  std::int64_t layer_size() const noexcept {
    return (dim() + 1) * 4 * dim() + 4 * dim() + (dim() + 1) * options_.hidden + (options_.hidden + 1) * dim();
  }
  std::int64_t parameter_count() const noexcept {
    return options_.max_length * dim() + layers() * layer_size() + (options_.norm_first ? 2 * dim() : 0);
  }
  std::int64_t position_floats() const noexcept { return options_.max_length > 0 ? dim() : 0; }
  std::int64_t layer_floats() const noexcept { return 6 * dim() + 4 + options_.heads + (options_.recomputes_hidden ? 0 : options_.hidden); }
  std::int64_t saved_floats() const noexcept { return position_floats() + layers() * layer_floats() + (options_.norm_first ? 2 : 0); }

  void initialise(host_exec const& exec);

  template <class T>
  static jagged_vectors_view<T> jagged(transformer_saved const& saved, matrix_view<T> values) noexcept {
    return {values, saved.offsets.data(), saved.offsets.size() - 1};
  }
  static row_statistics<float const> constant(row_statistics<float> s) noexcept { return {s.mean, s.reciprocal_deviation}; }

  detail::transformer_layer runner(std::int64_t l, jagged_vectors_view<float const> rows) const noexcept {
    return {layer(parameters(), l), {.heads = options_.heads, .causal = options_.causal}, options_.norm_first, rows};
  }

  // Of what is saved: x as the first layer reads it, what each layer made, the last statistics.
  matrix_view<float const> input(float* values, matrix_view<float const> x) const noexcept {
    return options_.max_length == 0 ? x : matrix_view<float const>(values, x.rows(), x.columns());
  }
  detail::transformer_layer::memory memory(float* values, std::int64_t vectors, std::int64_t l, float* hidden) const noexcept;
  // What a forward alone needs, too.
  detail::transformer_layer::memory layer_memory(float* next, std::int64_t vectors) const noexcept {
    detail::transformer_layer::memory m;
    auto const take = [&](std::int64_t columns) {
      return matrix_view<float>(std::exchange(next, next + vectors * columns), vectors, columns);
    };
    m.projected = take(3 * dim());
    m.attended = take(dim());
    m.between = take(dim());
    m.end = take(dim());
    return m;
  }
  row_statistics<float> last_statistics_memory(float* values, std::int64_t vectors) const noexcept {
    auto* const mean = values + vectors * (position_floats() + layers() * layer_floats());
    return {{mean, vectors}, {mean + vectors, vectors}};
  }
  row_statistics<float const> last_statistics(float* values, std::int64_t vectors) const noexcept {
    return constant(last_statistics_memory(values, vectors));
  }

  template <class Gemm, class Offset>
  void run(host_exec const& exec, Gemm const& policy, jagged_vectors_view<float const, Offset> x, matrix_view<float> out,
           buffer<std::int64_t>& offsets, float* values, bool saves) const {
    auto const vectors = static_cast<std::int64_t>(x.size());
    offsets.resize(exec, x.rows + 1);
    offsets[0] = 0;
    for (std::int64_t row = 0; row < x.rows; ++row) offsets[row + 1] = static_cast<std::int64_t>(x.end_of(row) - x.begin_of(0));
    auto const given = detail::vectors_of(x);
    jagged_vectors_view<float const> const rows{given, offsets.data(), x.rows};
    bool const keeps_hidden = saves && !options_.recomputes_hidden;
    buffer<float> scratch(exec, vectors * (2 * dim() + (keeps_hidden ? 0 : options_.hidden)));
    matrix_view<float> const some(scratch.data(), vectors, dim()), encoded(some.data() + vectors * dim(), vectors, dim());
    auto* const hidden = encoded.data() + vectors * dim();
    if (options_.max_length > 0) add_positions(exec, rows, {values, vectors, dim()});
    auto from = input(values, given);
    for (std::int64_t l = 0; l < layers(); ++l) {
      auto m = saves ? memory(values, vectors, l, hidden) : layer_memory(values + vectors * position_floats(), vectors);
      if (!saves) m.hidden = {hidden, vectors, options_.hidden};
      from = runner(l, rows).forward(exec, policy, from, m, some, encoded);
    }
    if (options_.norm_first) {
      layer_norm(exec, from, last_norm(parameters()), some, saves ? last_statistics_memory(values, vectors) : row_statistics<float>{});
      from = some;
    }
    pool_sequences(exec, rows.with_values(from), options_.pooling, out);
  }

  void add_positions(host_exec const& exec, jagged_vectors_view<float const> x, matrix_view<float> to) const;
  // Rows in order.
  static void sum_positions(host_exec const& exec, jagged_vectors_view<float const> gradient, matrix_view<float> places);

  template <class Offset>
  void check(jagged_vectors_view<float const, Offset> x, matrix_view<float const> out) const {
    detail::check_jagged_vectors("transformer_encoder", "x", x);
    if (x.dim() != dim() || out.rows() != x.rows || out.columns() != dim() || out.stride() < dim())
      throw error(errc::shape_mismatch, "transformer_encoder: input or output of another shape",
                  {{"dim", x.dim()},
                   {"expected dim", dim()},
                   {"rows", x.rows},
                   {"output rows", out.rows()},
                   {"output columns", out.columns()},
                   {"output stride", out.stride()}});
    for (std::int64_t row = 0; options_.max_length > 0 && row < x.rows; ++row)
      if (static_cast<std::int64_t>(x.length(row)) > options_.max_length)
        throw error(errc::out_of_range, "transformer_encoder: a row longer than there are positions",
                    {{"row", row}, {"length", x.length(row)}, {"max_length", options_.max_length}});
  }
  void check_backward(transformer_saved const& saved, matrix_view<float const> gradient, vector_view<float const> parameter_gradient,
                      matrix_view<float const> x_gradient) const;

  transformer_encoder_options options_;
  buffer<float> parameters_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/transformer_encoder.ipp>
#endif
