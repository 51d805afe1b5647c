// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/nn/dot_interaction.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How the cosines of a pair of features over samples become one number.
enum class affinity_kind : std::uint8_t {
  abs_of_mean,  ///< |mean of the cosines|, which signs that differ from sample to sample make small
  mean_of_abs,  ///< mean of |cosines|
};

/// A number from 0 to 1 for each pair of features; symmetric, with ones on the diagonal.
struct affinity_matrix {
  std::int64_t features = 0;
  std::vector<double> values;  ///< (features, features)

  /// All of it.
  matrix_view<double const> view() const noexcept { return {values.data(), features, features}; }
};

/// Adds up how alike the vectors of features are in the same samples: the cosine of each pair of features.
///
/// It sums over batches that are told one after the other, such as lookups in the tables of a trained model. A vector of zeros, as that of an
/// empty bag, has no direction; its sample does not count for its pairs. Neither the cut into batches nor the number of threads changes a
/// bit. Source: DMT, Section 3.3.
class feature_affinity {
 public:
  /// Of so many features, with nothing added. @throws tessera::error invalid_argument for fewer than 1, or more than 2^15.
  feature_affinity(host_exec const& exec, std::int64_t features) : features_(features) {
    if (features < 1 || features > most_features)
      throw error(errc::invalid_argument, "feature_affinity: features", {{"features", features}, {"least", 1}, {"most", most_features}});
    sums_.resize(exec, pairs());
    magnitudes_.resize(exec, pairs());
    samples_.resize(exec, pairs());
    std::fill(sums_.begin(), sums_.end(), 0.0);
    std::fill(magnitudes_.begin(), magnitudes_.end(), 0.0);
    std::fill(samples_.begin(), samples_.end(), std::int64_t{0});
  }

  /// The number of features.
  std::int64_t features() const noexcept { return features_; }
  /// How many samples had a direction for both features of a pair. @pre i and j are features, and differ
  std::int64_t samples(std::int64_t i, std::int64_t j) const noexcept(!checks_indices) { return samples_[pair(i, j)]; }

  /// Adds samples. `blocks` (features,) are the features' vectors (samples, dim), of one dim and any row stride.
  /// @throws tessera::error shape_mismatch, naming the block that does not fit; invalid_argument, naming feature and sample, for a vector that
  /// is not finite. Nothing has been added then.
  void add(host_exec const& exec, vector_view<matrix_view<float const> const> blocks);

  /// Looks up a batch in `source` and adds its vectors. Outputs of the source are the features. Nothing in the source changes.
  /// @throws tessera::error shape_mismatch for other numbers of outputs; incompatible, naming the output, for a sequence or another width than
  /// the first; and as above.
  template <embedding_source Source>
  void add_lookups(host_exec const& exec, Source const& source, batch_view const& batch);

  /// The affinity of all pairs so far. That of a pair without samples is 0. @throws tessera::error invalid_argument for no such kind.
  affinity_matrix result(affinity_kind kind) const {
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

 private:
  static constexpr std::int64_t most_features = 1 << 15;
  static constexpr std::int64_t most_floats_at_once = 1 << 22, most_rows_at_once = 1024;
  static constexpr std::int64_t rows_per_piece = 64, pairs_per_piece = 512;

  std::int64_t pairs() const noexcept { return features_ * (features_ - 1) / 2; }
  // In the order of `dot_interaction`.
  static std::int64_t pair(std::int64_t i, std::int64_t j) noexcept {
    auto const high = std::max(i, j), low = std::min(i, j);
    return high * (high - 1) / 2 + low;
  }

  void check(host_exec const& exec, vector_view<matrix_view<float const> const> blocks) const;
  // Vectors of length 1, or of zeros.
  static void normalise(host_exec const& exec, matrix_view<float const> from, matrix_view<float> to) {
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
  // Each pair adds its samples in their order. `cosines` (samples, pairs), `directed` (samples, features).
  void accumulate(host_exec const& exec, matrix_view<float const> cosines, matrix_view<std::uint8_t const> directed);

  std::int64_t features_;
  buffer<double> sums_, magnitudes_;  // (pairs,): of cosines, and of their magnitudes
  buffer<std::int64_t> samples_;      // (pairs,)
};

inline void feature_affinity::check(host_exec const& exec, vector_view<matrix_view<float const> const> blocks) const {
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

inline void feature_affinity::accumulate(host_exec const& exec, matrix_view<float const> cosines,
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

inline void feature_affinity::add(host_exec const& exec, vector_view<matrix_view<float const> const> blocks) {
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

template <embedding_source Source>
void feature_affinity::add_lookups(host_exec const& exec, Source const& source, batch_view const& batch) {
  vector_view<embedding_output const> const outputs = source.outputs();
  if (outputs.size() != features_)
    throw error(errc::shape_mismatch, "feature_affinity: one output a feature", {{"outputs", outputs.size()}, {"features", features_}});
  auto const samples = batch.samples(), dim = outputs[0].width;
  for (auto const& output : outputs)
    if (output.sequence || output.width != dim)
      throw error(errc::incompatible, "feature_affinity: an output that is a sequence, or of another width than the first",
                  {{"output", output.name}, {"width", output.width}, {"expected width", dim}, {"sequence", output.sequence}});
  buffer<float> vectors(exec, features_ * samples * dim);
  std::vector<matrix_view<float>> out;
  for (std::int64_t f = 0; f < features_; ++f) out.emplace_back(vectors.data() + f * samples * dim, samples, dim);
  source.predict(exec, batch, out);
  add(exec, std::vector<matrix_view<float const>>(out.begin(), out.end()));
}

/// Refuses what is no affinity. Entries may be off by a millionth, as of rounding. The diagonal is not read.
/// @throws tessera::error shape_mismatch for a matrix that is not square. invalid_argument, naming it, for the first entry that is not in [0,
/// 1], such as NaN, or that differs from its mirror image.
inline void check_affinity(matrix_view<double const> affinity) {
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
