// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/raw_rows.hpp>

namespace tessera::inline TESSERA_ABI {

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

/// How often each value came, values in the order of their first appearance. Counting is for one thread at a time.
class value_counts {
 public:
  std::int64_t size() const noexcept { return map_.size(); }
  vector_view<std::int64_t const> values() const noexcept { return map_.ids(); }
  vector_view<std::int64_t const> counts() const noexcept { return {counts_.data(), size()}; }
  std::size_t bytes() const noexcept { return map_.bytes() + counts_.capacity_bytes(); }

  /// Counts values[i] for all i but where it is `ignored`; returns how often that was.
  template <class T>
  std::int64_t add(host_exec const& exec, vector_view<T const> values, T ignored) {
    constexpr std::int64_t ahead = 16;
    std::int64_t ignored_count = 0;
    for (std::int64_t i = 0; i < values.size(); ++i) {
      if (i + ahead < values.size()) map_.prefetch(values[i + ahead]);
      if (values[i] == ignored) {
        ++ignored_count;
        continue;
      }
      auto const [number, is_new] = map_.insert(exec, values[i]);
      if (is_new) reserve(exec, number + 1);
      counts_[number] = is_new ? 1 : counts_[number] + 1;
    }
    return ignored_count;
  }

 private:
  void reserve(host_exec const& exec, std::int64_t count) {
    if (count <= counts_.size()) return;
    buffer<std::int64_t> larger(exec, std::max<std::int64_t>(16, 2 * count));
    std::copy(counts_.begin(), counts_.end(), larger.begin());
    counts_ = std::move(larger);
  }

  id_map map_;
  buffer<std::int64_t> counts_;  // by the value's number
};

/// What a pass over a log counts. Without the values of a column no exact vocabulary can be made of it.
struct click_statistics_options {
  bool count_categories = true;  ///< how often each value of a category came
  bool count_integers = false;   ///< and of an integer
};

/// What a preprocessing is fitted to: gathered over samples in their order, so the same whatever the number of threads.
class click_statistics {
 public:
  explicit click_statistics(click_statistics_options options = {}) : options_(options) {}

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

}  // namespace tessera::inline TESSERA_ABI
