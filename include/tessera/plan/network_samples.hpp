// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Samples that a network of costs learns from. A sample is some rows of features, as one a table or one a device, and the targets that a
/// network shall give for them: one a sample, or one a row, as the network has it.
struct network_samples {
  std::int64_t width = 0;                     ///< features a row
  std::vector<float> features;                ///< (rows, width)
  std::vector<std::int64_t> first_row{0};     ///< (samples + 1,)
  std::vector<float> targets;                 ///< those of a sample after those of the one before
  std::vector<std::int64_t> first_target{0};  ///< (samples + 1,)

  /// No samples of rows of this width.
  explicit network_samples(std::int64_t width) : width(width) {}

  std::int64_t samples() const noexcept { return static_cast<std::int64_t>(first_row.size()) - 1; }
  std::int64_t rows() const noexcept { return first_row.back(); }

  /// Adds a sample: `rows` is (rows, width) in one piece. @throws tessera::error shape_mismatch for a part of a row; invalid_argument naming
  /// sample and position for a number that is not finite. Nothing has changed then.
  void add(vector_view<float const> rows, vector_view<float const> of_sample) {
    if (width < 1 || rows.size() % width != 0)
      throw error(errc::shape_mismatch, "network_samples: no whole number of rows", {{"values", rows.size()}, {"width", width}});
    expect_finite("feature", rows);
    expect_finite("target", of_sample);
    features.insert(features.end(), rows.begin(), rows.end());
    targets.insert(targets.end(), of_sample.begin(), of_sample.end());
    first_row.push_back(first_row.back() + rows.size() / width);
    first_target.push_back(first_target.back() + of_sample.size());
  }

  jagged_vectors_view<float const> rows_view() const noexcept { return {{features.data(), rows(), width}, first_row.data(), samples()}; }

 private:
  void expect_finite(char const* what, vector_view<float const> values) const {
    for (std::int64_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        throw error(errc::invalid_argument, "network_samples: a number that is not finite",
                    {{"sample", samples()}, {what, i}, {"value", values[i]}});
  }
};

/// Mean and standard deviation of each feature.
struct feature_statistics {
  std::vector<float> means, deviations;  ///< (width,) each; a deviation is that of n - 1, plus 1e-6

  /// Those of all rows of some features, (rows, width). One row or none: deviations are 1e-6.
  static feature_statistics of(matrix_view<float const> rows) {
    feature_statistics result;
    auto const n = static_cast<double>(rows.rows());
    for (std::int64_t c = 0; c < rows.columns(); ++c) {
      double mean = 0, squares = 0;
      for (std::int64_t r = 0; r < rows.rows(); ++r) mean += static_cast<double>(rows(r, c)) / std::max(n, 1.0);
      for (std::int64_t r = 0; r < rows.rows(); ++r) squares += std::pow(static_cast<double>(rows(r, c)) - mean, 2);
      result.means.push_back(static_cast<float>(mean));
      result.deviations.push_back(static_cast<float>(std::sqrt(squares / std::max(n - 1, 1.0)) + 1e-6));
    }
    return result;
  }

  std::int64_t width() const noexcept { return static_cast<std::int64_t>(means.size()); }

  /// Gives features that are the same in all rows so large a deviation that other values of them are about 0 too. Nothing was learned of
  /// them, and divided by 1e-6 they would drown everything else.
  void ignore_constants() noexcept {
    for (auto& deviation : deviations)
      if (deviation <= 2e-6F) deviation = 1e30F;
  }

  /// Replaces a row of features (width,) by (feature - mean) / deviation.
  void normalise(vector_view<float> row) const noexcept(!checks_indices) {
    for (std::int64_t c = 0; c < row.size(); ++c) {
      auto const i = static_cast<std::size_t>(c);
      row[c] = (row[c] - means[i]) / deviations[i];
    }
  }

  friend bool operator==(feature_statistics const&, feature_statistics const&) = default;
};

namespace detail {

/// The samples of a batch, gathered. Its memory is kept from batch to batch.
struct network_batch {
  std::vector<float> features, targets;
  std::vector<std::int64_t> first_row;
  std::int64_t width = 0;

  void gather(network_samples const& from, vector_view<std::int64_t const> samples) {
    features.clear(), targets.clear(), first_row.assign(1, 0);
    width = from.width;
    for (auto const s : samples) {
      auto const i = static_cast<std::size_t>(s);
      features.insert(features.end(), from.features.begin() + from.first_row[i] * width,
                      from.features.begin() + from.first_row[i + 1] * width);
      targets.insert(targets.end(), from.targets.begin() + from.first_target[i], from.targets.begin() + from.first_target[i + 1]);
      first_row.push_back(first_row.back() + from.first_row[i + 1] - from.first_row[i]);
    }
  }
  jagged_vectors_view<float const> rows() const noexcept {
    return {{features.data(), first_row.back(), width}, first_row.data(), static_cast<std::int64_t>(first_row.size()) - 1};
  }
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
