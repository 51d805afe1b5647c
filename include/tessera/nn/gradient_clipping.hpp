// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/update_rules.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

struct clip_options {
  bool error_if_nonfinite = false;  // an infinite or NaN norm is thrown as an error before anything changes
};

namespace detail {

inline constexpr std::int64_t clipping_piece = 1 << 14;

template <class Exec>
struct gradient_clipping_impl {
  static_assert(dependent_false<Exec>,
                "gradient clipping: no back end for this execution; for CUDA include <tessera/nn/gradient_clipping.cuh>");
};

template <>
struct gradient_clipping_impl<host_exec> {
  using blocks = vector_view<vector_view<float> const>;

  // Calls f(piece, view) for pieces of the blocks, numbered in order: their bounds depend on the blocks' sizes alone.
  template <class F>
  static void for_each_block_piece(host_exec const& exec, blocks gradients, F const& f) {
    buffer<std::int64_t> first_piece(exec, gradients.size());
    std::int64_t pieces = 0;
    for (std::int64_t b = 0; b < gradients.size(); ++b) {
      first_piece[b] = pieces;
      pieces += divide_up(gradients[b].size(), clipping_piece);
    }
    exec.run(pieces, [&](std::int64_t piece) {
      auto const b = std::upper_bound(first_piece.begin(), first_piece.end(), piece) - first_piece.begin() - 1;
      auto const first = (piece - first_piece[b]) * clipping_piece;
      f(piece, gradients[b].slice(first, std::min(clipping_piece, gradients[b].size() - first)));
    });
  }

  // Eight running sums in double, joined in order, so that the loop runs in vectors.
  static double sum_of_squares(vector_view<float const> values) noexcept {
    double lane[8] = {};
    float const* const v = values.data();
    std::int64_t i = 0;
    for (; i + 8 <= values.size(); i += 8)
      for (int k = 0; k < 8; ++k) lane[k] += static_cast<double>(v[i + k]) * static_cast<double>(v[i + k]);
    for (int k = 0; i < values.size(); ++i, ++k) lane[k] += static_cast<double>(v[i]) * static_cast<double>(v[i]);
    double sum = 0;
    for (auto const x : lane) sum += x;
    return sum;
  }

  static double norm(host_exec const& exec, blocks gradients) {
    std::int64_t pieces = 0;
    for (auto const& block : gradients) pieces += divide_up(block.size(), clipping_piece);
    buffer<double> sums(exec, pieces);
    for_each_block_piece(exec, gradients, [&](std::int64_t piece, vector_view<float> part) { sums[piece] = sum_of_squares(part); });
    double total = 0;
    for (auto const sum : sums) total += sum;
    return std::sqrt(total);
  }

  static void scale(host_exec const& exec, blocks gradients, float factor) {
    for_each_block_piece(exec, gradients, [&](std::int64_t, vector_view<float> part) {
      for (auto& g : part) g *= factor;
    });
  }

  static void clip(host_exec const& exec, blocks gradients, float limit) {
    for_each_block_piece(exec, gradients, [&](std::int64_t, vector_view<float> part) {
      for (auto& g : part) g = update_rules::clip(g, limit);
    });
  }
};

struct gradient_norm_fn {
  template <execution Exec>
  double operator()(Exec const& exec, vector_view<vector_view<float> const> gradients) const {
    return gradient_clipping_impl<Exec>::norm(exec, gradients);
  }
};

struct scale_gradients_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<vector_view<float> const> gradients, float factor) const {
    gradient_clipping_impl<Exec>::scale(exec, gradients, factor);
  }
};

struct clip_global_norm_fn {
  template <execution Exec>
  double operator()(Exec const& exec, vector_view<vector_view<float> const> gradients, double max_norm, clip_options options = {}) const {
    if (!(max_norm >= 0)) throw error(errc::invalid_argument, "clip_global_norm: a norm is 0 or more", {{"max_norm", max_norm}});
    auto const norm = gradient_clipping_impl<Exec>::norm(exec, gradients);
    if (options.error_if_nonfinite && !std::isfinite(norm))
      throw error(errc::invalid_argument, "clip_global_norm: the gradients have no finite norm", {{"norm", norm}});
    auto const factor = std::isinf(max_norm) ? 1 : max_norm / (norm + 1e-6);
    if (!(factor >= 1))  // below 1, or NaN
      gradient_clipping_impl<Exec>::scale(exec, gradients, static_cast<float>(factor));
    return norm;
  }
};

struct clip_values_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<vector_view<float> const> gradients, float limit) const {
    if (!(limit >= 0)) throw error(errc::invalid_argument, "clip_values: a limit is 0 or more", {{"limit", limit}});
    gradient_clipping_impl<Exec>::clip(exec, gradients, limit);
  }
};

}  // namespace detail

/// The Euclidean norm of all gradients together: `gradient_norm(exec, gradients) -> norm`; `gradients` (blocks,): views (n,) of any sizes.
/// Summed in double by pieces whose bounds depend on the sizes alone: the thread count changes nothing.
inline constexpr detail::gradient_norm_fn gradient_norm{};

/// Multiplies all gradients: `scale_gradients(exec, gradients, factor)`. With `gradient_norm` what clips a norm over ranks.
inline constexpr detail::scale_gradients_fn scale_gradients{};

/// Scales all gradients down together where their common norm is above `max_norm`: `clip_global_norm(exec, gradients, max_norm, options) ->
/// norm before`, as torch.nn.utils.clip_grad_norm_: by max_norm / (norm + 1e-6) where that is below 1.
///
/// `gradients` as in `gradient_norm`; `max_norm` >= 0, infinity: only the norm. An infinite norm turns infinite elements into NaN and others
/// into 0, a NaN norm everything into NaN, unless `error_if_nonfinite`. @throws tessera::error invalid_argument.
inline constexpr detail::clip_global_norm_fn clip_global_norm{};

/// Brings each element into [-limit, limit], as torch.nn.utils.clip_grad_value_; NaN stays: `clip_values(exec, gradients, limit)`;
/// `limit` >= 0. @throws tessera::error invalid_argument.
inline constexpr detail::clip_values_fn clip_values{};

}  // namespace TESSERA_ABI
}  // namespace tessera
