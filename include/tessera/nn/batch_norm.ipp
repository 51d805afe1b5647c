// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/batch_norm.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE batch_norm::batch_norm(host_exec const& exec, batch_norm_options const& options)
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

TESSERA_INLINE std::vector<parameter_block> batch_norm::blocks(std::string_view prefix) {
  std::vector<parameter_block> result;
  for (auto const* const name : {".scale", ".shift", ".running_mean", ".running_variance"})
    result.push_back({std::string(prefix) + name, {width_}, {values_.data() + static_cast<std::int64_t>(result.size()) * width_, width_}});
  return result;
}

TESSERA_INLINE void batch_norm::forward(host_exec const& exec, matrix_view<float const> x, matrix_view<float> y, batch_norm_saved& saved) {
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

TESSERA_INLINE void batch_norm::predict(host_exec const& exec, matrix_view<float const> x, matrix_view<float> y) const {
  check("input", x, x.rows());
  check("output", y, x.rows());
  buffer<float> reciprocal(exec, width_);
  for (std::int64_t c = 0; c < width_; ++c) reciprocal[c] = reciprocal_deviation(static_cast<double>(running_variance()[c]));
  normalise(exec, x, running_mean().data(), reciprocal.data(), y);
}

TESSERA_INLINE void batch_norm::backward(host_exec const& exec, batch_norm_saved const& saved, matrix_view<float const> gradient,
                                         vector_view<float> parameter_gradient, matrix_view<float> x_gradient) const {
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

TESSERA_INLINE void batch_norm::measure(host_exec const& exec, matrix_view<float const> x, float* statistics) {
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

TESSERA_INLINE void batch_norm::normalise(host_exec const& exec, matrix_view<float const> x, float const* mean, float const* reciprocal,
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

TESSERA_INLINE void batch_norm::sum_gradients(host_exec const& exec, matrix_view<float const> x, float const* mean, float const* reciprocal,
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

TESSERA_INLINE void batch_norm::check(char const* what, matrix_view<float const> m, std::int64_t samples) const {
  if (m.rows() != samples || m.columns() != width_ || (m.rows() > 1 && m.stride() < m.columns()))
    throw error(
        errc::shape_mismatch, std::string("batch_norm: shape of the ") + what,
        {{"rows", m.rows()}, {"expected rows", samples}, {"columns", m.columns()}, {"expected columns", width_}, {"stride", m.stride()}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
