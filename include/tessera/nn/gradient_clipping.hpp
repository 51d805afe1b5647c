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

/// Options of `clip_global_norm`.
struct clip_options {
  bool error_if_nonfinite = false;  ///< an infinite or NaN norm is thrown as an error before anything changes
};

/// The Euclidean norm of all gradients together; `gradients` (blocks,): views (n,) of any sizes. Sums are of double, by pieces whose bounds
/// depend on the sizes alone: the number of threads changes nothing.
inline double gradient_norm(host_exec const& exec, vector_view<vector_view<float> const> gradients);

/// Multiplies all gradients by `factor`. After `gradient_norm` it clips by a norm over ranks.
inline void scale_gradients(host_exec const& exec, vector_view<vector_view<float> const> gradients, float factor);

/// Scales all gradients down together where their common norm is above `max_norm`, as torch.nn.utils.clip_grad_norm_: by max_norm / (norm +
/// 1e-6) where that is below 1. It returns the norm before.
///
/// `gradients` as in `gradient_norm`. `max_norm` >= 0; with infinity it only returns the norm. An infinite norm makes infinite elements NaN
/// and others 0; a NaN norm makes everything NaN. @throws tessera::error invalid_argument, also for such a norm with `error_if_nonfinite`.
inline double clip_global_norm(host_exec const& exec, vector_view<vector_view<float> const> gradients, double max_norm,
                               clip_options options = {});

/// Clips each element to [-limit, limit], as torch.nn.utils.clip_grad_value_; NaN stays. @pre limit >= 0 @throws tessera::error
/// invalid_argument.
inline void clip_values(host_exec const& exec, vector_view<vector_view<float> const> gradients, float limit);

namespace detail {

inline constexpr std::int64_t clipping_piece = 1 << 14;

// Calls f(piece, view) for pieces of the blocks, numbered in order: their bounds depend on the blocks' sizes alone.
template <class F>
void for_each_block_piece(host_exec const& exec, vector_view<vector_view<float> const> gradients, F const& f) {
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
inline double squares_in_double(vector_view<float const> values) noexcept {
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

}  // namespace detail

inline double gradient_norm(host_exec const& exec, vector_view<vector_view<float> const> gradients) {
  std::int64_t pieces = 0;
  for (auto const& block : gradients) pieces += divide_up(block.size(), detail::clipping_piece);
  buffer<double> sums(exec, pieces);
  detail::for_each_block_piece(exec, gradients,
                               [&](std::int64_t piece, vector_view<float> part) { sums[piece] = detail::squares_in_double(part); });
  double total = 0;
  for (auto const sum : sums) total += sum;
  return std::sqrt(total);
}

inline void scale_gradients(host_exec const& exec, vector_view<vector_view<float> const> gradients, float factor) {
  detail::for_each_block_piece(exec, gradients, [&](std::int64_t, vector_view<float> part) {
    for (auto& g : part) g *= factor;
  });
}

inline double clip_global_norm(host_exec const& exec, vector_view<vector_view<float> const> gradients, double max_norm,
                               clip_options options) {
  if (!(max_norm >= 0)) throw error(errc::invalid_argument, "clip_global_norm: a norm is 0 or more", {{"max_norm", max_norm}});
  auto const norm = gradient_norm(exec, gradients);
  if (options.error_if_nonfinite && !std::isfinite(norm))
    throw error(errc::invalid_argument, "clip_global_norm: the gradients have no finite norm", {{"norm", norm}});
  auto const factor = std::isinf(max_norm) ? 1 : max_norm / (norm + 1e-6);
  if (!(factor >= 1)) scale_gradients(exec, gradients, static_cast<float>(factor));  // below 1, or NaN
  return norm;
}

inline void clip_values(host_exec const& exec, vector_view<vector_view<float> const> gradients, float limit) {
  if (!(limit >= 0)) throw error(errc::invalid_argument, "clip_values: a limit is 0 or more", {{"limit", limit}});
  detail::for_each_block_piece(exec, gradients, [&](std::int64_t, vector_view<float> part) {
    for (auto& g : part) g = update_rules::clip(g, limit);
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
