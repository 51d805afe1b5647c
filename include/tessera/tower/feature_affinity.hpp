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
  feature_affinity(host_exec const& exec, std::int64_t features);

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
  affinity_matrix result(affinity_kind kind) const;

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
  static void normalise(host_exec const& exec, matrix_view<float const> from, matrix_view<float> to);
  // Each pair adds its samples in their order. `cosines` (samples, pairs), `directed` (samples, features).
  void accumulate(host_exec const& exec, matrix_view<float const> cosines, matrix_view<std::uint8_t const> directed);

  std::int64_t features_;
  buffer<double> sums_, magnitudes_;  // (pairs,): of cosines, and of their magnitudes
  buffer<std::int64_t> samples_;      // (pairs,)
};

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
void check_affinity(matrix_view<double const> affinity);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/feature_affinity.ipp>
#endif
