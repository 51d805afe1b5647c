// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/raw_rows.hpp>
#include <tessera/data/value_counts.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Count, mean and sum of squared deviations of numbers, mergeable. Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise
/// algorithm for computing sample variances", 1979.
struct moments {
  std::int64_t count = 0;
  double mean = 0;
  double squared_deviations = 0;

  /// Of all, not of a sample; 0 where there is nothing.
  double variance() const noexcept { return count == 0 ? 0 : squared_deviations / static_cast<double>(count); }

  void merge(moments const& other) noexcept {
    if (other.count == 0) return;
    auto const n = static_cast<double>(count), m = static_cast<double>(other.count);
    auto const difference = other.mean - mean;
    count += other.count;
    mean += difference * (m / (n + m));
    squared_deviations += other.squared_deviations + difference * difference * (n * m / (n + m));
  }

  friend bool operator==(moments const&, moments const&) = default;
};

/// What a pass over a log counts. Without the values of a column no exact vocabulary can be made of it.
struct click_statistics_options {
  bool count_categories = true;  ///< how often each value of a category came
  bool count_integers = false;   ///< and of an integer
  std::int64_t value_limit = 0;  ///< > 0: holds at most so many values a column, as value_counts does
};

/// What a preprocessing is fitted to: gathered over samples in their order, so the same whatever the number of threads.
class click_statistics {
 public:
  /// @throws tessera::error invalid_argument for value_limit < 0.
  explicit click_statistics(click_statistics_options options = {}) : options_(options) {
    for (auto& column : integers_) column.values = value_counts(options.value_limit);
    for (auto& column : categories_) column.values = value_counts(options.value_limit);
  }

  /// Adds samples behind those before. One chunk of work a column.
  /// Allocates within chunks: `exec`'s memory must be thread-safe when it has several threads, and outlive this object.
  void add(host_exec const& exec, raw_rows_view rows) {
    exec.run(click_layout::integers + click_layout::categories, [&](std::int64_t chunk) {
      if (chunk < click_layout::categories) {
        add_category(exec, chunk, {rows.categories.row(chunk), rows.size()});
      } else {
        auto const column = chunk - click_layout::categories;
        add_integer(exec, column, {rows.integers.row(column), rows.size()});
      }
    });
    for (auto const label : rows.labels) clicks_ += label != 0;
    rows_ += rows.size();
  }

  click_statistics_options const& options() const noexcept { return options_; }
  std::int64_t rows() const noexcept { return rows_; }
  /// Samples of label 1.
  std::int64_t clicks() const noexcept { return clicks_; }
  /// Of the values that are not missing.
  moments const& integer_moments(std::int64_t column) const noexcept { return integers_[at(column)].numbers; }
  std::int64_t missing_integers(std::int64_t column) const noexcept { return integers_[at(column)].missing; }
  std::int64_t missing_categories(std::int64_t column) const noexcept { return categories_[at(column)].missing; }
  /// Empty unless options().count_integers.
  value_counts const& integer_values(std::int64_t column) const noexcept { return integers_[at(column)].values; }
  /// Empty unless options().count_categories.
  value_counts const& category_values(std::int64_t column) const noexcept { return categories_[at(column)].values; }

  std::size_t bytes() const noexcept {
    std::size_t sum = sizeof(*this);
    for (auto const& column : integers_) sum += column.values.bytes();
    for (auto const& column : categories_) sum += column.values.bytes();
    return sum;
  }

 private:
  struct integer_column {
    std::int64_t missing = 0;
    moments numbers;
    value_counts values;
  };
  struct category_column {
    std::int64_t missing = 0;
    value_counts values;
  };

  static constexpr std::size_t at(std::int64_t column) noexcept { return static_cast<std::size_t>(column); }

  void add_integer(host_exec const& exec, std::int64_t column, vector_view<std::int32_t const> values) {
    auto& into = integers_[at(column)];
    moments added;
    std::int64_t sum = 0;  // exact: 2^31 rows a call at most, of 32 bits each
    for (auto const value : values)
      if (value != click_layout::missing_integer) {
        sum += value;
        ++added.count;
      }
    into.missing += values.size() - added.count;
    if (added.count == 0) return;
    added.mean = static_cast<double>(sum) / static_cast<double>(added.count);
    for (auto const value : values)
      if (value != click_layout::missing_integer) {
        auto const deviation = value - added.mean;
        added.squared_deviations += deviation * deviation;
      }
    into.numbers.merge(added);
    if (options_.count_integers) into.values.add(exec, values, click_layout::missing_integer);
  }

  void add_category(host_exec const& exec, std::int64_t column, vector_view<std::int64_t const> values) {
    auto& into = categories_[at(column)];
    into.missing += options_.count_categories ? into.values.add(exec, values, click_layout::missing_category)
                                              : std::count(values.begin(), values.end(), click_layout::missing_category);
  }

  click_statistics_options options_;
  std::int64_t rows_ = 0;
  std::int64_t clicks_ = 0;
  std::array<integer_column, click_layout::integers> integers_;
  std::array<category_column, click_layout::categories> categories_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
