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
  batch_norm(host_exec const& exec, batch_norm_options const& options);

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
  std::vector<parameter_block> blocks(std::string_view prefix);

  /// Normalises by mean and biased variance of the batch, and moves the running statistics towards its mean and its unbiased variance. x
  /// and y (samples, width) have any row strides; y may be x where no backward follows. `backward` reads `saved`.
  /// - One sample: y is the shift, and the running variance stays, as one sample has no unbiased variance. No samples: nothing changes.
  /// - A NaN or an infinity in a column reaches its running statistics, and stays there.
  /// @throws tessera::error shape_mismatch. No backward takes `saved` then, and the running statistics are as before.
  void forward(host_exec const& exec, matrix_view<float const> x, matrix_view<float> y, batch_norm_saved& saved);

  /// Normalises by the running statistics, and changes y alone. Shapes are those of `forward`; y may be x. @throws tessera::error
  /// shape_mismatch.
  void predict(host_exec const& exec, matrix_view<float const> x, matrix_view<float> y) const;

  /// Computes the gradients of the forward that filled `saved`, also through the batch's statistics. `gradient` (samples, width) is that of
  /// y. `parameter_gradient`, laid out like `parameters()`, is overwritten, with 0 where there are no samples. `x_gradient` (samples,
  /// width), which may be `gradient`, is overwritten; where it is empty, it is not computed. @throws tessera::error shape_mismatch. Then
  /// nothing was written.
  void backward(host_exec const& exec, batch_norm_saved const& saved, matrix_view<float const> gradient,
                vector_view<float> parameter_gradient, matrix_view<float> x_gradient = {}) const;

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
  void measure(host_exec const& exec, matrix_view<float const> x, float* statistics);

  void normalise(host_exec const& exec, matrix_view<float const> x, float const* mean, float const* reciprocal, matrix_view<float> y) const;

  void sum_gradients(host_exec const& exec, matrix_view<float const> x, float const* mean, float const* reciprocal,
                     matrix_view<float const> gradient, batch_norm_view<float> parameter_gradient) const;

  void check(char const* what, matrix_view<float const> m, std::int64_t samples) const;

  std::int64_t width_;
  float momentum_, epsilon_;
  buffer<float> values_;  // scale, shift, running mean, running variance
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/batch_norm.ipp>
#endif
