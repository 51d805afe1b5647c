// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/target_attention.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE target_attention::target_attention(host_exec const& exec, target_attention_options const& options)
    : dim_(options.dim),
      softmax_(options.softmax),
      pairs_at_once_(options.pairs_at_once),
      net_(exec, mlp_options{widths(options), activation::identity, options.seed, options.stream}) {}

TESSERA_INLINE std::vector<std::int64_t> target_attention::widths(target_attention_options const& options) {
  constexpr std::int64_t largest = std::int64_t{1} << 24;
  if (options.dim < 1 || options.dim > largest)
    throw error(errc::invalid_argument, "target_attention: dim", {{"dim", options.dim}, {"least", 1}, {"most", largest}});
  if (options.pairs_at_once < 1)
    throw error(errc::invalid_argument, "target_attention: pairs_at_once", {{"pairs_at_once", options.pairs_at_once}, {"least", 1}});
  std::vector<std::int64_t> result{4 * options.dim};
  result.insert(result.end(), options.hidden.begin(), options.hidden.end());
  result.push_back(1);
  return result;
}

TESSERA_INLINE target_attention::workspace::workspace(target_attention const& owner, host_exec const& exec,
                                                      target_attention_saved const& saved, bool backward) {
  auto const dim = owner.dim_, width = owner.width(), vectors = saved.history.rows(), samples = saved.targets.rows();
  auto const& widths = owner.net_.widths();
  auto const hidden = owner.net_.hidden_width();
  auto const widest = *std::max_element(widths.begin() + 1, widths.end());
  pairs = saved.order.largest_chunk(owner.pairs_at_once_);
  auto const parameters = owner.net_.parameters().size(), summed = std::max(vectors, samples);
  memory.resize(exec, 2 * width * dim + (vectors + samples) * width + pairs * (dim + hidden + 1) +
                          (backward ? pairs * (1 + 2 * widest) + parameters + (vectors + samples) * width + summed * dim : 0));
  auto* next = memory.data();
  auto const take = [&](std::int64_t count) { return std::exchange(next, next + count); };
  auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return matrix_view<float>(take(rows * columns), rows, columns); };
  both_combined = matrix(2 * width, dim);
  vector_part = matrix(vectors, width);
  sample_part = matrix(samples, width);
  products = take(pairs * dim);
  layers = take(pairs * hidden);
  scores = take(pairs);
  if (!backward) return;
  score_slopes = take(pairs);
  for (auto& s : slopes) s = take(pairs * widest);
  chunk_gradient = {take(parameters), parameters};
  vector_slopes = matrix(vectors, width);
  sample_slopes = matrix(samples, width);
  summands = matrix(summed, dim);
}

TESSERA_INLINE void target_attention::check_matrix(char const* what, matrix_view<float const> m, std::int64_t rows, std::int64_t columns) {
  if (m.rows() != rows || m.columns() != columns || (rows > 1 && m.stride() < columns))
    throw error(
        errc::shape_mismatch, std::string("target_attention: shape of the ") + what,
        {{"rows", m.rows()}, {"expected rows", rows}, {"columns", m.columns()}, {"expected columns", columns}, {"stride", m.stride()}});
}

TESSERA_INLINE void target_attention::check_backward(target_attention_saved const& saved, matrix_view<float const> gradient,
                                                     vector_view<float const> parameter_gradient, matrix_view<float const> target_gradient,
                                                     matrix_view<float const> history_gradient) const {
  if (parameter_gradient.size() != parameters().size())
    throw error(errc::shape_mismatch, "target_attention: gradient block",
                {{"size", parameter_gradient.size()}, {"parameters", parameters().size()}});
  if (saved.order.samples() != saved.targets.rows() || saved.targets.columns() != dim_)
    throw error(errc::shape_mismatch, "target_attention: saved by no forward, or by that of another shape",
                {{"samples", saved.order.samples()}, {"targets", saved.targets.rows()}, {"columns", saved.targets.columns()}});
  check_matrix("gradient", gradient, saved.targets.rows(), dim_);
  if (target_gradient.rows() > 0) check_matrix("targets' gradient", target_gradient, saved.targets.rows(), dim_);
  if (history_gradient.rows() > 0) check_matrix("history's gradient", history_gradient, saved.history.rows(), dim_);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
