// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/column_rules.hpp>
#include <tessera/data/dense_steps.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Makes a model's dense features of a data set's columns of numbers.
///
/// Each column that is not dropped gives one feature of its name, in order. Where the column's rule has `indicate_missing`, the feature
/// "price missing", say, follows directly. Steps calculate in double precision, and the result is rounded to float once. A number that is
/// still missing at the end becomes 0.
///
///     dense_pipeline const scale({"age", "price"}, {{.columns = {"price"}, .steps = {log_values{}, indicate_missing{}}}});
class dense_pipeline {
 public:
  dense_pipeline() = default;
  /// Takes the names of a schema's dense columns, in order. `dropped` are those of them that give no feature.
  /// @throws tessera::error invalid_argument naming the column, where one of these holds. A rule names no column, or two rules name one.
  /// Options of a step are out of range. A fit would have to find two steps of one column. A column has `indicate_missing` twice. A dropped
  /// name is no column. Two features have one name.
  explicit dense_pipeline(std::vector<std::string> columns, std::vector<dense_rule> const& rules = {},
                          std::vector<std::string> dropped = {});

  /// The columns that the pipeline reads, dropped ones too, in order.
  std::vector<std::string> const& columns() const noexcept { return columns_; }
  /// One rule a column, in the order of `columns()`.
  std::vector<dense_rule> const& rules() const noexcept { return rules_; }
  /// The names of the columns that give no feature.
  std::vector<std::string> const& dropped() const noexcept { return dropped_; }
  /// The names of the features, in order.
  std::vector<std::string> const& names() const noexcept { return names_; }
  /// How many features there are.
  std::int64_t features() const noexcept { return static_cast<std::int64_t>(names_.size()); }
  /// Whether a step is still to be found by a `preprocessing_fit`.
  bool needs_fit() const noexcept { return needs_fit_; }

  /// Row i of `out` becomes the features of sample first + i, for `count` samples. `columns` (columns().size(), n), `out` (count,
  /// features()). Never allocates.
  /// @throws tessera::error shape_mismatch; out_of_range for samples that are not there; invalid_argument naming column and step, for a
  /// step that is not fitted.
  void operator()(host_exec const& exec, matrix_view<float const> columns, std::int64_t first, std::int64_t count,
                  matrix_view<float> out) const;
  /// Does the same for samples rows[0], rows[1], …; a sample may come again. `rows` (n,), `out` (n, features()). @throws tessera::error as
  /// above.
  void operator()(host_exec const& exec, matrix_view<float const> columns, vector_view<std::int64_t const> rows,
                  matrix_view<float> out) const;

  friend bool operator==(dense_pipeline const& a, dense_pipeline const& b) {
    return a.columns_ == b.columns_ && a.rules_ == b.rules_ && a.dropped_ == b.dropped_;
  }

 private:
  struct column_plan {
    std::int64_t column;
    bool indicates;
    std::vector<dense_step> steps;  // the others
  };

  static constexpr std::int64_t samples_per_piece = 256;

  void check(matrix_view<float const> columns, std::int64_t count, matrix_view<float> out) const;

  template <class RowOf>
  void run(host_exec const& exec, matrix_view<float const> columns, std::int64_t count, RowOf const& row_of, matrix_view<float> out) const {
    check(columns, count, out);
    for_each_piece(exec, count, samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
      std::array<double, samples_per_piece> values;
      auto const n = end - begin;
      std::int64_t feature = 0;
      auto const write = [&](auto const& value_of) {
        auto* to = out.row(begin) + feature++;
        for (std::int64_t i = 0; i < n; ++i, to += out.stride()) *to = value_of(i);
      };
      for (auto const& plan : plans_) {
        auto const* const from = columns.row(plan.column);
        for (std::int64_t i = 0; i < n; ++i) values.data()[i] = from[row_of(begin + i)];
        for (auto const& step : plan.steps) detail::apply_step(step, values.data(), n);
        write([&](std::int64_t i) {
          auto const value = static_cast<float>(values.data()[i]);
          return std::isnan(value) ? 0.0F : value;
        });
        if (plan.indicates) write([&](std::int64_t i) { return std::isnan(from[row_of(begin + i)]) ? 1.0F : 0.0F; });
      }
    });
  }

  std::vector<std::string> columns_;
  std::vector<dense_rule> rules_;  // one a column
  std::vector<std::string> dropped_;
  std::vector<std::string> names_;
  std::vector<column_plan> plans_;  // of the columns that are not dropped
  bool needs_fit_ = false;
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/dense_pipeline.ipp>
#endif
