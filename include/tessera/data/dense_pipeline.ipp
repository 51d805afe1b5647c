// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/dense_pipeline.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE dense_pipeline::dense_pipeline(std::vector<std::string> columns, std::vector<dense_rule> const& rules,
                                              std::vector<std::string> dropped)
    : columns_(std::move(columns)), rules_(detail::rules_by_column("dense_pipeline", columns_, rules)), dropped_(std::move(dropped)) {
  auto const is_dropped = detail::marked_columns("dense_pipeline", columns_, dropped_);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    column_plan plan{static_cast<std::int64_t>(c), false, {}};
    std::int64_t unfitted = 0;
    for (auto const& step : rules_[c].steps) {
      detail::check_step("dense_pipeline", columns_[c], step);
      unfitted += !detail::is_fitted(step);
      if (!std::holds_alternative<indicate_missing>(step)) {
        plan.steps.push_back(step);
      } else if (std::exchange(plan.indicates, true)) {
        throw error(errc::invalid_argument, "dense_pipeline: a column's missing numbers indicated twice", {{"column", columns_[c]}});
      }
    }
    if (unfitted > 1)
      throw error(errc::invalid_argument, "dense_pipeline: two steps of a column that need a fit", {{"column", columns_[c]}});
    if (is_dropped[c]) continue;
    needs_fit_ = needs_fit_ || unfitted > 0;
    names_.push_back(columns_[c]);
    if (plan.indicates) names_.push_back(columns_[c] + " missing");
    plans_.push_back(std::move(plan));
  }
  for (auto name = names_.begin(); name != names_.end(); ++name)
    if (std::find(names_.begin(), name, *name) != name)
      throw error(errc::invalid_argument, "dense_pipeline: two features of one name", {{"feature", *name}});
}

TESSERA_INLINE void dense_pipeline::operator()(host_exec const& exec, matrix_view<float const> columns, std::int64_t first,
                                               std::int64_t count, matrix_view<float> out) const {
  if (first < 0 || count < 0 || first > columns.columns() - count)
    throw error(errc::out_of_range, "dense_pipeline: no such samples",
                {{"first", first}, {"count", count}, {"samples", columns.columns()}});
  run(
      exec, columns, count, [=](std::int64_t i) { return first + i; }, out);
}

TESSERA_INLINE void dense_pipeline::operator()(host_exec const& exec, matrix_view<float const> columns,
                                               vector_view<std::int64_t const> rows, matrix_view<float> out) const {
  for (auto const row : rows)
    if (row < 0 || row >= columns.columns())
      throw error(errc::out_of_range, "dense_pipeline: no such sample", {{"sample", row}, {"samples", columns.columns()}});
  run(
      exec, columns, rows.size(), [=](std::int64_t i) { return rows.data()[i]; }, out);
}

TESSERA_INLINE void dense_pipeline::check(matrix_view<float const> columns, std::int64_t count, matrix_view<float> out) const {
  if (columns.rows() != static_cast<std::int64_t>(columns_.size()) || out.rows() != count || out.columns() != features())
    throw error(errc::shape_mismatch, "dense_pipeline: extents",
                {{"columns", columns.rows()},
                 {"expected columns", columns_.size()},
                 {"rows of the result", out.rows()},
                 {"samples", count},
                 {"columns of the result", out.columns()},
                 {"features", features()}});
  if (!needs_fit_) return;
  for (auto const& plan : plans_)
    for (auto const& step : plan.steps)
      if (!detail::is_fitted(step))
        throw error(errc::invalid_argument, "dense_pipeline: a step that is not fitted",
                    {{"column", columns_[static_cast<std::size_t>(plan.column)]},
                     {"step", std::holds_alternative<standardise>(step) ? "standardise" : "bucketise"}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
