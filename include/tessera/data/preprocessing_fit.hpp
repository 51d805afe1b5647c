// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/moments.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/quantile_sample.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/value_counts.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `preprocessing_fit`.
struct preprocessing_fit_options {
  std::int64_t first_row = 0;                   ///< the number in the data set of the first sample that is added
  std::int64_t quantile_sample_size = 1 << 16;  ///< numbers of a column from which quantiles are taken; exact where a column has no more
};

/// What a fit knows of a column of numbers.
struct dense_column_fit {
  std::int64_t present = 0;               ///< samples that have a number
  moments numbers{};                      ///< of the finite numbers, behind the steps that come before the step to be fitted
  std::vector<quantile_sample> sample{};  ///< one where quantiles are to be found, else none
};

/// What a fit knows of a column of ids.
struct sparse_column_fit {
  std::int64_t present = 0;            ///< ids that are not missing
  std::vector<value_counts> counts{};  ///< one where a vocabulary is to be found, else none
};

/// Finds what a preprocessing's steps must know of the training data, in one pass over blocks in their order.
///
/// Parts of a data set may be fitted apart and merged in their order. Means, deviations, quantiles and vocabularies without a limit are then
/// those of one pass, bit for bit. Limited vocabularies keep the bounds of `value_counts`. Nothing depends on the number of threads, or on how
/// the samples are cut into blocks. Move-only.
class preprocessing_fit {
 public:
  /// Makes a fit of no samples. `unfitted` is copied but for its vocabularies.
  /// @throws tessera::error invalid_argument for a first_row below 0. The same where quantiles are to be found, for a quantile_sample_size
  /// that `quantile_sample` refuses.
  explicit preprocessing_fit(preprocessing const& unfitted, preprocessing_fit_options options = {});

  /// Adds samples behind those before. Each column is one chunk of work. After an exception of the memory the fit is half done, and of no
  /// use.
  ///
  /// The chunks allocate. @pre `exec`'s memory is thread-safe where `exec` has several threads, and outlives the fit.
  /// @throws tessera::error shape_mismatch for another number of dense or sparse columns, before anything is added; and what the memory
  /// throws.
  void add(host_exec const& exec, sample_columns_view samples);

  /// Adds the fit of the samples directly behind those of this fit. A fit of no samples takes over the other's place in the data set.
  /// @throws tessera::error invalid_argument for a fit of another preprocessing, of another quantile_sample_size, or of samples that are
  /// not the next.
  void merge(host_exec const& exec, preprocessing_fit const& behind);

  /// Returns the fitted preprocessing, in `exec`'s memory. Columns that were empty everywhere are dropped.
  ///
  /// A vocabulary counts each value in all the columns that share it. Without a limit the first column's values come first, then those that
  /// the next column adds, and so on.
  /// @throws tessera::error invalid_argument for a fit to no samples.
  preprocessing finish(host_exec const& exec) &&;

  /// The number in the data set of the first sample.
  std::int64_t first_row() const noexcept { return options_.first_row; }
  /// How many samples were added.
  std::int64_t rows() const noexcept { return rows_; }
  preprocessing_fit_options const& options() const noexcept { return options_; }
  /// Returns a preprocessing as the one that is fitted, without what a fit finds.
  preprocessing unfitted() const { return preprocessing(schema_, dense_rules_, sparse_rules_); }

  /// What the fit knows of each dense column so far, in the schema's order: to be saved.
  std::vector<dense_column_fit> const& dense() const noexcept { return dense_; }
  /// What the fit knows of each sparse column so far, in the schema's order: to be saved.
  std::vector<sparse_column_fit> const& sparse() const noexcept { return sparse_; }
  /// Goes on from what another fit of the same preprocessing knew: its rows(), dense() and sparse(). @throws tessera::error
  /// invalid_argument for what a fit of this preprocessing does not know.
  void restore(std::int64_t rows, std::vector<dense_column_fit> dense, std::vector<sparse_column_fit> sparse);

  std::size_t bytes() const noexcept {
    std::size_t sum = sizeof(*this);
    for (auto const& column : dense_)
      for (auto const& sample : column.sample) sum += sample.bytes();
    for (auto const& column : sparse_)
      for (auto const& counts : column.counts) sum += counts.bytes();
    return sum;
  }

 private:
  static constexpr std::int64_t held_values_per_limit = 2;  // the quarter that eviction leaves at least is then half a vocabulary
  static constexpr std::int64_t values_per_piece = 2048;

  static std::size_t unfitted_step(dense_rule const& rule) noexcept {
    std::size_t step = 0;
    while (step < rule.steps.size() && detail::is_fitted(rule.steps[step])) ++step;
    return step;
  }

  void add_numbers(std::size_t c, vector_view<float const> values);

  void add_ids(host_exec const& exec, std::size_t c, jagged_view<std::int64_t const> rows);

  static void finish(dense_rule& rule, dense_column_fit const& column);

  // The vocabulary of column c and of those behind it that share it, whose counts are empty then.
  fitted_vocabulary finish(host_exec const& exec, std::size_t c, vocabulary const& options);

  sample_schema schema_;
  std::vector<dense_rule> dense_rules_;    // one a column
  std::vector<sparse_rule> sparse_rules_;  // one a column
  preprocessing_fit_options options_;
  std::int64_t rows_ = 0;
  std::vector<dense_column_fit> dense_;
  std::vector<sparse_column_fit> sparse_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/preprocessing_fit.ipp>
#endif
