// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/parameters.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Views of a batch norm's parameters, or of their gradients, (width,) each.
template <class T>
struct batch_norm_view {
  vector_view<T> scale, shift;
};

/// What a batch norm's backward needs of its forward. The caller owns it, and any number may be in flight. @pre x outlives it
struct batch_norm_saved {
  matrix_view<float const> x;
  buffer<float> statistics;  ///< of the batch: mean, then 1 / sqrt(variance + epsilon), (width,) each
};

/// Shape and options of a batch norm.
struct batch_norm_options {
  std::int64_t width = 0;
  float momentum = 0.1F;  ///< a batch's share of the running statistics, in (0, 1]: 1 keeps those of the last batch alone
  float epsilon = 1e-5F;  ///< what is added to a variance before its root is taken, above 0
};

/// Batch normalisation, column by column: y = scale * (x - mean) / sqrt(variance + epsilon) + shift. `forward` takes mean and variance of
/// the batch, `predict` running ones. Scale and shift, 1 and 0 at the start, are parameters, in one block. Running mean and variance, 0 and
/// 1 at the start, are not: they have no gradient, and an optimizer does not see them. Move-only.
///
/// Sums over samples are made by 128 rows, then over those sums in order: the number of threads changes no bit. Source: Ioffe and Szegedy,
/// "Batch normalization: accelerating deep network training by reducing internal covariate shift", ICML 2015, algorithms 1 and 2. Running
/// statistics by momentum take the place of the paper's averages over all batches.
class batch_norm {
 public:
  /// @throws tessera::error invalid_argument for a width below 1, a momentum outside (0, 1] or an epsilon that is not above 0 and finite.
  batch_norm(host_exec const& exec, batch_norm_options const& options)
      : width_(options.width), momentum_(options.momentum), epsilon_(options.epsilon) {
    if (width_ < 1 || width_ > largest_width)
      throw error(errc::invalid_argument, "batch_norm: width", {{"width", width_}, {"least", 1}, {"most", largest_width}});
    if (!(momentum_ > 0 && momentum_ <= 1))
      throw error(errc::invalid_argument, "batch_norm: momentum, above 0 and at most 1", {{"momentum", momentum_}});
    if (!(epsilon_ > 0 && std::isfinite(epsilon_)))
      throw error(errc::invalid_argument, "batch_norm: epsilon, above 0 and finite", {{"epsilon", epsilon_}});
    values_.resize(exec, 4 * width_);
    std::fill(values_.begin(), values_.end(), 0.0F);
    std::fill_n(values_.data(), width_, 1.0F);               // scale
    std::fill_n(values_.data() + 3 * width_, width_, 1.0F);  // running variance
  }

  std::int64_t width() const noexcept { return width_; }

  /// Scale, then shift, (2 * width(),); gradients and optimizer states have the same layout.
  vector_view<float> parameters() noexcept { return {values_.data(), 2 * width_}; }
  vector_view<float const> parameters() const noexcept { return {values_.data(), 2 * width_}; }

  /// The running mean, (width(),); `running_variance` has the same shape.
  vector_view<float const> running_mean() const noexcept { return {values_.data() + 2 * width_, width_}; }
  /// The running variance, (width(),).
  vector_view<float const> running_variance() const noexcept { return {values_.data() + 3 * width_, width_}; }

  /// The bytes of the parameters and the running statistics.
  std::size_t bytes() const noexcept { return values_.capacity_bytes(); }

  /// The parts of a block laid out like `parameters()`.
  template <class T>
  batch_norm_view<T> parts(vector_view<T> block) const noexcept(!checks_indices) {
    return {block.slice(0, width_), block.slice(width_, width_)};
  }

  /// Names and shapes for checkpoints, (width,) each: "<prefix>.scale", "<prefix>.shift", "<prefix>.running_mean" and
  /// "<prefix>.running_variance". A prediction needs the running statistics, too.
  std::vector<parameter_block> blocks(std::string_view prefix) {
    std::vector<parameter_block> result;
    for (auto const* const name : {".scale", ".shift", ".running_mean", ".running_variance"})
      result.push_back(
          {std::string(prefix) + name, {width_}, {values_.data() + static_cast<std::int64_t>(result.size()) * width_, width_}});
    return result;
  }

  /// Normalises by mean and biased variance of the batch, and moves the running statistics towards its mean and its unbiased variance. x
  /// and y (samples, width) have any row strides; y may be x where no backward follows. `backward` reads `saved`.
  /// - One sample: y is the shift, and the running variance stays, as one sample has no unbiased variance. No samples: nothing changes.
  /// - A NaN or an infinity in a column reaches its running statistics, and stays there.
  /// @throws tessera::error shape_mismatch. No backward takes `saved` then, and the running statistics are as before.
  void forward(host_exec const& exec, matrix_view<float const> x, matrix_view<float> y, batch_norm_saved& saved) {
    batch_norm_saved filled{x, std::move(saved.statistics)};
    saved.x = {};
    check("input", x, x.rows());
    check("output", y, x.rows());
    filled.statistics.resize(exec, 2 * width_);
    if (x.rows() > 0) {
      measure(exec, x, filled.statistics.data());
      normalise(exec, x, filled.statistics.data(), filled.statistics.data() + width_, y);
    }
    saved = std::move(filled);
  }

  /// Normalises by the running statistics, and changes y alone. Shapes are those of `forward`; y may be x. @throws tessera::error
  /// shape_mismatch.
  void predict(host_exec const& exec, matrix_view<float const> x, matrix_view<float> y) const {
    check("input", x, x.rows());
    check("output", y, x.rows());
    buffer<float> reciprocal(exec, width_);
    for (std::int64_t c = 0; c < width_; ++c) reciprocal[c] = reciprocal_deviation(static_cast<double>(running_variance()[c]));
    normalise(exec, x, running_mean().data(), reciprocal.data(), y);
  }

  /// Computes the gradients of the forward that filled `saved`, also through the batch's statistics. `gradient` (samples, width) is that of
  /// y. `parameter_gradient`, laid out like `parameters()`, is overwritten, with 0 where there are no samples. `x_gradient` (samples,
  /// width), which may be `gradient`, is overwritten; where it is empty, it is not computed. @throws tessera::error shape_mismatch. Then
  /// nothing was written.
  void backward(host_exec const& exec, batch_norm_saved const& saved, matrix_view<float const> gradient,
                vector_view<float> parameter_gradient, matrix_view<float> x_gradient = {}) const {
    auto const samples = saved.x.rows();
    if (parameter_gradient.size() != 2 * width_)
      throw error(errc::shape_mismatch, "batch_norm: gradient block", {{"size", parameter_gradient.size()}, {"parameters", 2 * width_}});
    if (saved.x.columns() != width_ || saved.statistics.size() != 2 * width_)
      throw error(errc::shape_mismatch, "batch_norm: saved by no forward, or by that of another width",
                  {{"columns", saved.x.columns()}, {"saved floats", saved.statistics.size()}, {"width", width_}});
    check("gradient", gradient, samples);
    if (x_gradient.rows() > 0) check("input's gradient", x_gradient, samples);
    auto const* const mean = saved.statistics.data();
    auto const* const reciprocal = mean + width_;
    sum_gradients(exec, saved.x, mean, reciprocal, gradient, parts(parameter_gradient));
    if (x_gradient.rows() == 0) return;
    auto const* const scale = values_.data();
    auto const* const of_scale = parameter_gradient.data();
    auto const* const of_shift = of_scale + width_;
    auto const share = 1 / static_cast<float>(samples);
    for_each_piece(exec, samples, rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto r = first; r < last; ++r) {
        auto const* const row = saved.x.row(r);
        auto const* const from = gradient.row(r);
        auto* const to = x_gradient.row(r);
        for (std::int64_t c = 0; c < width_; ++c) {
          auto const normal = (row[c] - mean[c]) * reciprocal[c];
          to[c] = multiply_add(-normal, of_scale[c] * share, from[c] - of_shift[c] * share) * (scale[c] * reciprocal[c]);
        }
      }
    });
  }

 private:
  static constexpr std::int64_t largest_width = (std::int64_t{1} << 31) - 1;
  static constexpr std::int64_t rows_per_piece = 128;
  static constexpr std::int64_t columns_per_piece = 64;

  float reciprocal_deviation(double variance) const noexcept {
    return static_cast<float>(1 / std::sqrt(variance + static_cast<double>(epsilon_)));
  }
  float moved(float running, double value) const noexcept {
    auto const share = static_cast<double>(momentum_);
    return static_cast<float>((1 - share) * static_cast<double>(running) + share * value);
  }

  // The batch's mean and reciprocal deviation into `statistics`; the running ones move. Nothing throws once something has been written.
  void measure(host_exec const& exec, matrix_view<float const> x, float* statistics) {
    auto const pieces = divide_up(x.rows(), rows_per_piece);
    buffer<float> moments(exec, pieces * 2 * width_);  // of each piece of rows: mean, squares of what is left of it
    for_each_piece(exec, x.rows(), rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      auto* const mean = moments.data() + first / rows_per_piece * 2 * width_;
      auto* const squares = mean + width_;
      std::fill_n(mean, 2 * width_, 0.0F);
      for (auto r = first; r < last; ++r) {
        auto const* const row = x.row(r);
        for (std::int64_t c = 0; c < width_; ++c) mean[c] += row[c];
      }
      for (std::int64_t c = 0; c < width_; ++c) mean[c] /= static_cast<float>(last - first);
      for (auto r = first; r < last; ++r) {
        auto const* const row = x.row(r);
        for (std::int64_t c = 0; c < width_; ++c) squares[c] = multiply_add(row[c] - mean[c], row[c] - mean[c], squares[c]);
      }
    });
    auto* const running_mean = values_.data() + 2 * width_;
    auto* const running_variance = running_mean + width_;
    for_each_piece(exec, width_, columns_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto c = first; c < last; ++c) {
        double mean = 0, squares = 0, count = 0;
        for (std::int64_t piece = 0; piece < pieces; ++piece) {
          auto const* const of_piece = moments.data() + piece * 2 * width_ + c;
          auto const more = static_cast<double>(std::min(rows_per_piece, x.rows() - piece * rows_per_piece));
          auto const apart = static_cast<double>(of_piece[0]) - mean;
          mean += apart * more / (count + more);
          squares += static_cast<double>(of_piece[width_]) + apart * apart * count * more / (count + more);
          count += more;
        }
        statistics[c] = static_cast<float>(mean);
        statistics[width_ + c] = reciprocal_deviation(squares / count);
        running_mean[c] = moved(running_mean[c], mean);
        if (x.rows() > 1) running_variance[c] = moved(running_variance[c], squares / (count - 1));
      }
    });
  }

  void normalise(host_exec const& exec, matrix_view<float const> x, float const* mean, float const* reciprocal,
                 matrix_view<float> y) const {
    auto const* const scale = values_.data();
    auto const* const shift = scale + width_;
    for_each_piece(exec, x.rows(), rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto r = first; r < last; ++r) {
        auto const* const from = x.row(r);
        auto* const to = y.row(r);
        for (std::int64_t c = 0; c < width_; ++c) to[c] = multiply_add((from[c] - mean[c]) * reciprocal[c], scale[c], shift[c]);
      }
    });
  }

  void sum_gradients(host_exec const& exec, matrix_view<float const> x, float const* mean, float const* reciprocal,
                     matrix_view<float const> gradient, batch_norm_view<float> parameter_gradient) const {
    auto const pieces = divide_up(x.rows(), rows_per_piece);
    buffer<float> sums(exec, pieces * 2 * width_);  // of each piece of rows: scale, shift
    for_each_piece(exec, x.rows(), rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      auto* const of_scale = sums.data() + first / rows_per_piece * 2 * width_;
      auto* const of_shift = of_scale + width_;
      std::fill_n(of_scale, 2 * width_, 0.0F);
      for (auto r = first; r < last; ++r) {
        auto const* const row = x.row(r);
        auto const* const slope = gradient.row(r);
        for (std::int64_t c = 0; c < width_; ++c) {
          of_scale[c] = multiply_add(slope[c], (row[c] - mean[c]) * reciprocal[c], of_scale[c]);
          of_shift[c] += slope[c];
        }
      }
    });
    for_each_piece(exec, width_, columns_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto c = first; c < last; ++c) {
        float of_scale = 0, of_shift = 0;
        for (std::int64_t piece = 0; piece < pieces; ++piece) {
          of_scale += sums[piece * 2 * width_ + c];
          of_shift += sums[piece * 2 * width_ + width_ + c];
        }
        parameter_gradient.scale[c] = of_scale;
        parameter_gradient.shift[c] = of_shift;
      }
    });
  }

  void check(char const* what, matrix_view<float const> m, std::int64_t samples) const {
    if (m.rows() != samples || m.columns() != width_ || (m.rows() > 1 && m.stride() < m.columns()))
      throw error(
          errc::shape_mismatch, std::string("batch_norm: shape of the ") + what,
          {{"rows", m.rows()}, {"expected rows", samples}, {"columns", m.columns()}, {"expected columns", width_}, {"stride", m.stride()}});
  }

  std::int64_t width_;
  float momentum_, epsilon_;
  buffer<float> values_;  // scale, shift, running mean, running variance
};

}  // namespace TESSERA_ABI
}  // namespace tessera
