// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/fixed_divisor.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/click_statistics.hpp>
#include <tessera/data/raw_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// ln(y) of an integer 1 <= y <= 2^31, within a few units in the last place, in code that compilers turn into vectors: y = 2^k m with m from
// sqrt(1/2) to sqrt(2), and ln(m) = 2 artanh(s) for s = (m - 1) / (m + 1) by its series, whose first term left out is below 2^-52 of the sum.
inline double log_of_integer(double y) noexcept {
  constexpr auto least_bits = std::bit_cast<std::uint64_t>(0.70710678118654752);
  constexpr auto two_to_52_bits = std::bit_cast<std::uint64_t>(0x1p52);
  auto const bits = std::bit_cast<std::uint64_t>(y);
  auto const k = (bits - least_bits) >> 52;
  auto const m = std::bit_cast<double>(bits - (k << 52));
  auto const s = (m - 1) / (m + 1), square = s * s;
  double series = 1.0 / 19;
  for (int odd = 17; odd >= 3; odd -= 2) series = series * square + 1.0 / odd;
  return (std::bit_cast<double>(k | two_to_52_bits) - 0x1p52) * 0.69314718055994531 + 2 * (s + s * square * series);
}

}  // namespace detail

/// log: ln(max(x, 0) + 1). standard: (x − mean) / standard deviation of the training data. A missing value becomes 0 either way.
enum class dense_scaling : std::uint8_t { log, standard };

struct preprocessing_options {
  dense_scaling dense = dense_scaling::log;
  bool dense_as_category = false;     ///< every integer column is a sparse feature too
  std::int64_t min_count = 1;         ///< vocabulary: values that training has fewer times share one id
  std::int64_t hash_size = 0;         ///< > 0: no vocabulary, ids are hashes below this
  std::int64_t vocabulary_limit = 0;  ///< > 0: at most so many values in a vocabulary, found in memory for twice as many

  friend bool operator==(preprocessing_options const&, preprocessing_options const&) = default;
};

/// A fitted preprocessing as plain data: what a checkpoint saves and restores.
struct preprocessing_state {
  preprocessing_options options;
  std::vector<std::int64_t> dense_columns;              // (dense features,): which integers, ascending
  std::vector<double> dense_means;                      // (dense features,)
  std::vector<double> dense_deviations;                 // (dense features,), > 0
  std::vector<std::int64_t> sparse_columns;             // (sparse features,): c for category c, 26 + i for integer i; ascending
  std::vector<std::vector<std::int64_t>> vocabularies;  // (sparse features,): value v of id 2 + v; empty ones when hashing
};

/// From samples as they stand in a log to what a model reads: fitted to training data, then applied to any.
///
/// Columns that are empty everywhere in the training data are dropped. The others give
/// - one dense feature an integer column;
/// - one sparse feature a category column, then, on demand, one an integer column, with one id a sample. Exact vocabulary: id 0 for values
///   that training lacks or has fewer than min_count times, 1 for a missing value, from 2 on values in the order of their first appearance.
///   Limited vocabulary: the same, but from 2 on the most frequent values, most frequent first, of those counted min_count times at least;
///   counts are as `value_counts` has them, so that they lack at most training rows / vocabulary_limit. Hashing:
///   hash(column, value) % hash_size, and hash_size for a missing value.
/// Move-only. Its memory is that of the `exec` it was made with.
class preprocessing {
 public:
  static constexpr std::int64_t unknown_id = 0;
  static constexpr std::int64_t missing_id = 1;
  static constexpr std::int64_t first_value_id = 2;

  /// What `fit` with these options needs to have counted. @throws tessera::error invalid_argument naming an option that is out of range
  /// or contradicts another.
  static click_statistics_options needed_statistics(preprocessing_options const& options) {
    check(options);
    bool const count = options.hash_size == 0;
    return {.count_categories = count,
            .count_integers = count && options.dense_as_category,
            .value_limit = held_values_per_limit * options.vocabulary_limit};
  }

  /// Fits to what was counted. @throws tessera::error invalid_argument as `needed_statistics`; for what was not counted; for statistics
  /// of no samples.
  static preprocessing fit(host_exec const& exec, click_statistics const& training, preprocessing_options options) {
    auto const needed = needed_statistics(options);
    if (training.rows() == 0) throw error(errc::invalid_argument, "preprocessing: no samples to fit to");
    if (needed.count_categories && !training.options().count_categories)
      throw error(errc::invalid_argument, "preprocessing: an exact vocabulary needs count_categories in the statistics");
    if (needed.count_integers && !training.options().count_integers)
      throw error(errc::invalid_argument, "preprocessing: integers in an exact vocabulary need count_integers in the statistics");
    auto const held = training.options().value_limit;
    if (needed.count_categories && held > 0 && (needed.value_limit == 0 || held < needed.value_limit))
      throw error(errc::invalid_argument, "preprocessing: the vocabulary needs statistics that hold more values",
                  {{"value_limit", held}, {"vocabulary_limit", options.vocabulary_limit}});

    preprocessing_state state{};
    state.options = options;
    auto const add_sparse = [&](std::int64_t column, value_counts const& seen) {
      state.sparse_columns.push_back(column);
      auto& vocabulary = state.vocabularies.emplace_back();
      if (options.hash_size > 0) return;
      if (options.vocabulary_limit > 0) {
        vocabulary = seen.most_frequent(options.min_count, options.vocabulary_limit);
        return;
      }
      for (std::int64_t i = 0; i < seen.size(); ++i)
        if (seen.counts()[i] >= options.min_count) vocabulary.push_back(seen.values()[i]);
    };
    for (std::int64_t c = 0; c < click_layout::categories; ++c)
      if (training.missing_categories(c) < training.rows()) add_sparse(c, training.category_values(c));
    for (std::int64_t i = 0; i < click_layout::integers; ++i) {
      if (training.missing_integers(i) == training.rows()) continue;
      auto const& numbers = training.integer_moments(i);
      auto const deviation = std::sqrt(numbers.variance());
      state.dense_columns.push_back(i);
      state.dense_means.push_back(numbers.mean);
      state.dense_deviations.push_back(deviation > 0 ? deviation : 1);  // a constant column becomes 0
      if (options.dense_as_category) add_sparse(click_layout::categories + i, training.integer_values(i));
    }
    return preprocessing(exec, std::move(state));
  }

  /// Restores. @throws tessera::error invalid_argument naming what does not fit together.
  preprocessing(host_exec const& exec, preprocessing_state state) : state_(std::move(state)) {
    check(state_);
    for (auto& values : state_.vocabularies) {
      auto& map = maps_.emplace_back();
      map.reserve(exec, static_cast<std::int64_t>(values.size()));
      for (auto const value : values)
        if (!map.insert(exec, value).second)
          throw error(errc::invalid_argument, "preprocessing: a value twice in a vocabulary",
                      {{"feature", column_name(state_.sparse_columns[maps_.size() - 1])}, {"value", value}});
    }
  }

  preprocessing_state const& state() const noexcept { return state_; }
  preprocessing_options const& options() const noexcept { return state_.options; }

  std::int64_t dense_features() const noexcept { return static_cast<std::int64_t>(state_.dense_columns.size()); }
  std::int64_t sparse_features() const noexcept { return static_cast<std::int64_t>(state_.sparse_columns.size()); }
  /// "integer 3".
  std::string dense_name(std::int64_t feature) const { return click_layout::integer_name(state_.dense_columns[at(feature)]); }
  /// "category 9", or "integer 3" for an integer as category.
  std::string sparse_name(std::int64_t feature) const { return column_name(state_.sparse_columns[at(feature)]); }
  /// Ids of a sparse feature are below this: the rows its table needs.
  std::int64_t id_count(std::int64_t feature) const noexcept {
    if (state_.options.hash_size > 0) return state_.options.hash_size + 1;
    return first_value_id + static_cast<std::int64_t>(state_.vocabularies[at(feature)].size());
  }
  /// Names of the columns that were empty everywhere.
  std::vector<std::string> dropped() const {
    std::vector<std::string> names;
    auto const kept = [](std::vector<std::int64_t> const& columns, std::int64_t column) {
      return std::binary_search(columns.begin(), columns.end(), column);
    };
    for (std::int64_t i = 0; i < click_layout::integers; ++i)
      if (!kept(state_.dense_columns, i)) names.push_back(click_layout::integer_name(i));
    for (std::int64_t c = 0; c < click_layout::categories; ++c)
      if (!kept(state_.sparse_columns, c)) names.push_back(click_layout::category_name(c));
    return names;
  }

  /// Preprocesses n samples: row i of the output is sample indices[i] of `rows`.
  ///
  /// `indices` (n,), `dense` (n, dense_features()), `labels` (n,), `ids` (sparse_features(), n). Never allocates.
  /// @throws tessera::error shape_mismatch, out_of_range naming an index.
  void transform(host_exec const& exec, raw_rows_view rows, vector_view<std::int64_t const> indices, matrix_view<float> dense,
                 vector_view<float> labels, matrix_view<std::int64_t> ids) const {
    auto const n = indices.size();
    if (dense.rows() != n || dense.columns() != dense_features() || labels.size() != n || ids.columns() != n ||
        ids.rows() != sparse_features())
      throw error(errc::shape_mismatch, "preprocessing: output extents",
                  {{"samples", n},
                   {"dense rows", dense.rows()},
                   {"dense columns", dense.columns()},
                   {"dense features", dense_features()},
                   {"labels", labels.size()},
                   {"id rows", ids.rows()},
                   {"id columns", ids.columns()},
                   {"sparse features", sparse_features()}});
    for (std::int64_t i = 0; i < n; ++i)
      if (indices[i] < 0 || indices[i] >= rows.size())
        throw error(errc::out_of_range, "preprocessing: no such sample",
                    {{"position", i}, {"index", indices[i]}, {"samples", rows.size()}});

    auto const pieces = divide_up(n, samples_per_piece);
    exec.run(pieces * (1 + sparse_features()), [&](std::int64_t chunk) {
      auto const first = chunk % pieces * samples_per_piece;
      auto const count = std::min(samples_per_piece, n - first);
      auto const feature = chunk / pieces - 1;
      auto const picked = indices.slice(first, count);
      if (feature < 0) {
        scale(rows, picked, dense.rows_from(first, count), labels.slice(first, count));
      } else {
        auto const column = state_.sparse_columns[at(feature)];
        vector_view<std::int64_t> const out{ids.row(feature) + first, count};
        if (column < click_layout::categories)
          identify(feature, rows.categories.row(column), click_layout::missing_category, picked, out);
        else
          identify(feature, rows.integers.row(column - click_layout::categories), click_layout::missing_integer, picked, out);
      }
    });
  }

  /// Of the vocabularies, mostly.
  std::size_t bytes() const noexcept {
    std::size_t sum = sizeof(*this);
    for (auto const& map : maps_) sum += map.bytes();
    for (auto const& values : state_.vocabularies) sum += values.capacity() * sizeof(std::int64_t);
    return sum;
  }

  /// Same options, same columns, same ids.
  friend bool operator==(preprocessing const& a, preprocessing const& b) {
    return a.state_.options == b.state_.options && a.state_.dense_columns == b.state_.dense_columns &&
           a.state_.dense_means == b.state_.dense_means && a.state_.dense_deviations == b.state_.dense_deviations &&
           a.state_.sparse_columns == b.state_.sparse_columns && a.state_.vocabularies == b.state_.vocabularies;
  }

 private:
  static constexpr std::int64_t samples_per_piece = 512;
  static constexpr std::int64_t held_values_per_limit = 2;  // the half that eviction leaves is then a whole vocabulary

  static constexpr std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }
  static std::string column_name(std::int64_t sparse_column) {
    return sparse_column < click_layout::categories ? click_layout::category_name(sparse_column)
                                                    : click_layout::integer_name(sparse_column - click_layout::categories);
  }

  static void check(preprocessing_options const& options) {
    if (options.min_count < 1)
      throw error(errc::invalid_argument, "preprocessing: option min_count", {{"min_count", options.min_count}, {"least", 1}});
    if (options.hash_size < 0 || options.hash_size == std::numeric_limits<std::int64_t>::max())
      throw error(errc::invalid_argument, "preprocessing: option hash_size", {{"hash_size", options.hash_size}});
    if (options.hash_size > 0 && options.min_count > 1)
      throw error(errc::invalid_argument, "preprocessing: options min_count and hash_size exclude each other",
                  {{"min_count", options.min_count}, {"hash_size", options.hash_size}});
    if (options.vocabulary_limit < 0 || options.vocabulary_limit > std::numeric_limits<std::int64_t>::max() / held_values_per_limit)
      throw error(errc::invalid_argument, "preprocessing: option vocabulary_limit", {{"vocabulary_limit", options.vocabulary_limit}});
    if (options.hash_size > 0 && options.vocabulary_limit > 0)
      throw error(errc::invalid_argument, "preprocessing: options vocabulary_limit and hash_size exclude each other",
                  {{"vocabulary_limit", options.vocabulary_limit}, {"hash_size", options.hash_size}});
    if (options.dense > dense_scaling::standard)
      throw error(errc::invalid_argument, "preprocessing: option dense", {{"dense", static_cast<int>(options.dense)}});
  }

  static void check(preprocessing_state const& state) {
    check(state.options);
    auto const check_columns = [](std::string_view what, std::vector<std::int64_t> const& columns, std::int64_t bound) {
      for (std::size_t i = 0; i < columns.size(); ++i)
        if (columns[i] < 0 || columns[i] >= bound || (i > 0 && columns[i] <= columns[i - 1]))
          throw error(errc::invalid_argument, "preprocessing: columns not in order or not there",
                      {{"columns", what}, {"position", i}, {"column", columns[i]}});
    };
    check_columns("dense", state.dense_columns, click_layout::integers);
    check_columns("sparse", state.sparse_columns, click_layout::categories + click_layout::integers);
    if (state.dense_means.size() != state.dense_columns.size() || state.dense_deviations.size() != state.dense_columns.size())
      throw error(
          errc::invalid_argument, "preprocessing: one mean and one deviation a dense feature",
          {{"features", state.dense_columns.size()}, {"means", state.dense_means.size()}, {"deviations", state.dense_deviations.size()}});
    for (std::size_t i = 0; i < state.dense_columns.size(); ++i)
      if (!std::isfinite(state.dense_means[i]) || !std::isfinite(state.dense_deviations[i]) || state.dense_deviations[i] <= 0)
        throw error(errc::invalid_argument, "preprocessing: mean or deviation of a dense feature",
                    {{"feature", click_layout::integer_name(state.dense_columns[i])},
                     {"mean", state.dense_means[i]},
                     {"deviation", state.dense_deviations[i]}});
    if (state.vocabularies.size() != state.sparse_columns.size())
      throw error(errc::invalid_argument, "preprocessing: one vocabulary a sparse feature",
                  {{"features", state.sparse_columns.size()}, {"vocabularies", state.vocabularies.size()}});
  }

  // @pre at most samples_per_piece samples.
  void scale(raw_rows_view rows, vector_view<std::int64_t const> indices, matrix_view<float> dense,
             vector_view<float> labels) const noexcept {
    auto const n = indices.size();
    std::array<std::int32_t, samples_per_piece> raw;
    std::array<float, samples_per_piece> scaled;
    for (std::int64_t i = 0; i < n; ++i) labels[i] = rows.labels[indices[i]];
    for (std::int64_t feature = 0; feature < dense.columns(); ++feature) {
      auto const* const column = rows.integers.row(state_.dense_columns[at(feature)]);
      for (std::int64_t i = 0; i < n; ++i) raw[at(i)] = column[indices[i]];
      if (state_.options.dense == dense_scaling::log)
        for (std::size_t i = 0; i < at(n); ++i) scaled[i] = static_cast<float>(detail::log_of_integer(std::max(raw[i], 0) + 1.0));
      else
        standardise({raw.data(), n}, state_.dense_means[at(feature)], state_.dense_deviations[at(feature)], scaled.data());
      for (std::int64_t i = 0; i < n; ++i) dense(i, feature) = scaled[at(i)];
    }
  }

  static void standardise(vector_view<std::int32_t const> raw, double mean, double deviation, float* scaled) noexcept {
    for (std::int64_t i = 0; i < raw.size(); ++i)
      scaled[i] = raw[i] == click_layout::missing_integer ? 0 : static_cast<float>((raw[i] - mean) / deviation);
  }

  template <class T>
  void identify(std::int64_t feature, T const* raw, T missing, vector_view<std::int64_t const> indices,
                vector_view<std::int64_t> ids) const noexcept {
    if (state_.options.hash_size > 0) return hash(feature, raw, missing, indices, ids);
    auto const& map = maps_[at(feature)];
    constexpr std::int64_t ahead = 16;
    for (std::int64_t i = 0; i < indices.size(); ++i) {
      if (i + ahead < indices.size()) map.prefetch(raw[indices[i + ahead]]);
      auto const value = raw[indices[i]];
      auto const number = value == missing ? id_map::absent : map.find(value);
      ids[i] = value == missing ? missing_id : number == id_map::absent ? unknown_id : first_value_id + number;
    }
  }

  // @pre at most samples_per_piece samples.
  template <class T>
  void hash(std::int64_t feature, T const* raw, T missing, vector_view<std::int64_t const> indices,
            vector_view<std::int64_t> ids) const noexcept {
    auto const salt = mix_bits(static_cast<std::uint64_t>(state_.sparse_columns[at(feature)]) + 1);
    auto const salted = [&](T value) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) ^ salt; };
    auto const n = at(indices.size());
    std::array<std::uint64_t, samples_per_piece> hashes;
    for (std::size_t i = 0; i < n; ++i) hashes[i] = salted(raw[indices.data()[i]]);
    for (std::size_t i = 0; i < n; ++i) hashes[i] = mix_bits(hashes[i]);
    auto const missing_hash = mix_bits(salted(missing));  // no other value's: mix_bits is a bijection
    auto const size = static_cast<std::uint64_t>(state_.options.hash_size);
    fixed_divisor const divisor(size);
    for (std::size_t i = 0; i < n; ++i)
      ids.data()[i] = static_cast<std::int64_t>(hashes[i] == missing_hash ? size : divisor.remainder(hashes[i]));
  }

  preprocessing_state state_;
  std::vector<id_map> maps_;  // by sparse feature: a value's number in its vocabulary
};

}  // namespace TESSERA_ABI
}  // namespace tessera
