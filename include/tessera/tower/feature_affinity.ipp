// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/feature_affinity.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE feature_affinity::feature_affinity(host_exec const& exec, std::int64_t features) : features_(features) {
  if (features < 1 || features > most_features)
    throw error(errc::invalid_argument, "feature_affinity: features", {{"features", features}, {"least", 1}, {"most", most_features}});
  sums_.resize(exec, pairs());
  magnitudes_.resize(exec, pairs());
  samples_.resize(exec, pairs());
  std::fill(sums_.begin(), sums_.end(), 0.0);
  std::fill(magnitudes_.begin(), magnitudes_.end(), 0.0);
  std::fill(samples_.begin(), samples_.end(), std::int64_t{0});
}

TESSERA_INLINE affinity_matrix feature_affinity::result(affinity_kind kind) const {
  detail::check_choice("feature_affinity", "kind", kind, affinity_kind::mean_of_abs);
  affinity_matrix all{features_, std::vector<double>(static_cast<std::size_t>(features_ * features_), 1.0)};
  for (std::int64_t i = 0; i < features_; ++i)
    for (std::int64_t j = 0; j < i; ++j) {
      auto const p = pair(i, j);
      auto const sum = kind == affinity_kind::abs_of_mean ? std::abs(sums_[p]) : magnitudes_[p];
      auto const value = samples_[p] == 0 ? 0.0 : std::min(sum / static_cast<double>(samples_[p]), 1.0);  // rounding may pass 1
      all.values[static_cast<std::size_t>(i * features_ + j)] = all.values[static_cast<std::size_t>(j * features_ + i)] = value;
    }
  return all;
}

TESSERA_INLINE void feature_affinity::normalise(host_exec const& exec, matrix_view<float const> from, matrix_view<float> to) {
  for_each_piece(exec, from.rows(), rows_per_piece, [&](std::int64_t first, std::int64_t last) {
    for (auto s = first; s < last; ++s) {
      auto const* const vector = from.row(s);
      double squares = 0;
      for (std::int64_t c = 0; c < from.columns(); ++c) squares += static_cast<double>(vector[c]) * static_cast<double>(vector[c]);
      auto const scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
      for (std::int64_t c = 0; c < from.columns(); ++c) to(s, c) = static_cast<float>(static_cast<double>(vector[c]) * scale);
    }
  });
}

TESSERA_INLINE void feature_affinity::check(host_exec const& exec, vector_view<matrix_view<float const> const> blocks) const {
  if (blocks.size() != features_)
    throw error(errc::shape_mismatch, "feature_affinity: one block a feature", {{"blocks", blocks.size()}, {"features", features_}});
  auto const rows = blocks[0].rows(), dim = blocks[0].columns();
  for (std::int64_t f = 0; f < features_; ++f)
    if (blocks[f].rows() != rows || blocks[f].columns() != dim || (rows > 1 && blocks[f].stride() < dim))
      throw error(errc::shape_mismatch, "feature_affinity: a block of another shape than feature 0's",
                  {{"feature", f},
                   {"rows", blocks[f].rows()},
                   {"expected rows", rows},
                   {"columns", blocks[f].columns()},
                   {"expected columns", dim},
                   {"stride", blocks[f].stride()}});
  exec.run(features_, [&](std::int64_t f) {
    for (std::int64_t s = 0; s < rows; ++s)
      for (std::int64_t c = 0; c < dim; ++c)
        if (!std::isfinite(blocks[f](s, c)))
          throw error(errc::invalid_argument, "feature_affinity: a vector is not finite",
                      {{"feature", f}, {"sample", s}, {"element", c}, {"value", blocks[f](s, c)}});
  });
}

TESSERA_INLINE void feature_affinity::accumulate(host_exec const& exec, matrix_view<float const> cosines,
                                                 matrix_view<std::uint8_t const> directed) {
  for_each_piece(exec, pairs(), pairs_per_piece, [&](std::int64_t first, std::int64_t last) {
    // The pair of the piece's first cosine.
    auto first_high = static_cast<std::int64_t>((1 + std::sqrt(1 + 8 * static_cast<double>(first))) / 2);
    while (pair(first_high, 0) > first) --first_high;
    while (pair(first_high + 1, 0) <= first) ++first_high;
    for (std::int64_t s = 0; s < cosines.rows(); ++s) {
      auto const* const cosine = cosines.row(s);
      auto const* const has = directed.row(s);
      auto high = first_high, low = first - pair(first_high, 0);
      for (auto p = first; p < last; ++p) {
        auto const value = static_cast<double>(cosine[p]);  // 0 where one has no direction
        sums_[p] += value;
        magnitudes_[p] += std::abs(value);
        samples_[p] += has[high] & has[low];
        if (++low == high) {
          ++high;
          low = 0;
        }
      }
    }
  });
}

TESSERA_INLINE void feature_affinity::add(host_exec const& exec, vector_view<matrix_view<float const> const> blocks) {
  check(exec, blocks);
  auto const samples = blocks[0].rows(), dim = blocks[0].columns(), width = dot_interaction_width(features_, dim);
  auto const rows = std::clamp<std::int64_t>(most_floats_at_once / (features_ * dim + width + 1), 1, most_rows_at_once);
  buffer<float> vectors(exec, std::min(rows, samples) * features_ * dim), products(exec, std::min(rows, samples) * width);
  buffer<std::uint8_t> directed(exec, std::min(rows, samples) * features_);
  std::vector<matrix_view<float const>> normalised(static_cast<std::size_t>(features_));
  for (std::int64_t first = 0; first < samples; first += rows) {
    auto const here = std::min(rows, samples - first);
    matrix_view<std::uint8_t> const has(directed.data(), here, features_);
    for (std::int64_t f = 0; f < features_; ++f) {
      matrix_view<float> const to(vectors.data() + f * here * dim, here, dim);
      normalise(exec, blocks[f].rows_from(first, here), to);
      for (std::int64_t s = 0; s < here; ++s) has(s, f) = std::any_of(to.row(s), to.row(s) + dim, [](float x) { return x != 0; });
      normalised[static_cast<std::size_t>(f)] = to;
    }
    matrix_view<float> const all(products.data(), here, width);
    dot_interaction(exec, normalised, all);
    accumulate(exec, all.columns_from(dim, pairs()), has);
  }
}

TESSERA_INLINE void check_affinity(matrix_view<double const> affinity) {
  constexpr double rounding = 1e-6;
  if (affinity.rows() != affinity.columns())
    throw error(errc::shape_mismatch, "affinity: not square", {{"rows", affinity.rows()}, {"columns", affinity.columns()}});
  for (std::int64_t i = 0; i < affinity.rows(); ++i)
    for (std::int64_t j = 0; j < affinity.columns(); ++j) {
      if (i == j) continue;
      auto const value = affinity(i, j), mirrored = affinity(j, i);
      if (!(value >= 0 && value <= 1 + rounding))
        throw error(errc::invalid_argument, "affinity: an entry from 0 to 1", {{"row", i}, {"column", j}, {"value", value}});
      if (std::abs(value - mirrored) > rounding)
        throw error(errc::invalid_argument, "affinity: not symmetric",
                    {{"row", i}, {"column", j}, {"value", value}, {"mirrored", mirrored}});
    }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
