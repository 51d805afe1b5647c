// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/preprocessing_fit.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE preprocessing_fit::preprocessing_fit(preprocessing const& unfitted, preprocessing_fit_options options)
    : schema_(unfitted.schema()), dense_rules_(unfitted.dense().rules()), sparse_rules_(unfitted.sparse().rules()), options_(options) {
  if (options.first_row < 0)
    throw error(errc::invalid_argument, "preprocessing_fit: option first_row", {{"first_row", options.first_row}, {"least", 0}});
  for (auto const& rule : dense_rules_) {
    auto& column = dense_.emplace_back();
    auto const step = unfitted_step(rule);
    if (step < rule.steps.size() && std::holds_alternative<bucketise>(rule.steps[step]))
      column.sample.emplace_back(options.quantile_sample_size);
  }
  for (auto const& rule : sparse_rules_) {
    auto& column = sparse_.emplace_back();
    if (auto const* const values = detail::vocabulary_of(rule.steps)) column.counts.emplace_back(held_values_per_limit * values->limit);
  }
}

TESSERA_INLINE void preprocessing_fit::add(host_exec const& exec, sample_columns_view samples) {
  auto const dense = static_cast<std::int64_t>(dense_.size()), sparse = static_cast<std::int64_t>(sparse_.size());
  if (samples.dense.rows() != dense || samples.sparse.size() != sparse)
    throw error(errc::shape_mismatch, "preprocessing_fit: samples of other columns",
                {{"dense columns", samples.dense.rows()},
                 {"expected dense columns", dense},
                 {"sparse columns", samples.sparse.size()},
                 {"expected sparse columns", sparse}});
  // Columns of ids first: they take the longest.
  exec.run(sparse + dense, [&](std::int64_t chunk) {
    if (chunk < sparse)
      add_ids(exec, static_cast<std::size_t>(chunk), samples.sparse[chunk]);
    else
      add_numbers(static_cast<std::size_t>(chunk - sparse), {samples.dense.row(chunk - sparse), samples.size()});
  });
  rows_ += samples.size();
}

TESSERA_INLINE void preprocessing_fit::merge(host_exec const& exec, preprocessing_fit const& behind) {
  if (behind.schema_ != schema_ || behind.dense_rules_ != dense_rules_ || behind.sparse_rules_ != sparse_rules_ ||
      behind.options_.quantile_sample_size != options_.quantile_sample_size)
    throw error(errc::invalid_argument, "preprocessing_fit: a fit of another preprocessing");
  if (behind.rows_ == 0) return;
  if (rows_ == 0) options_.first_row = behind.options_.first_row;
  if (behind.first_row() != first_row() + rows_)
    throw error(errc::invalid_argument, "preprocessing_fit: a fit of samples that are not the next",
                {{"first row", behind.first_row()}, {"expected", first_row() + rows_}});
  exec.run(static_cast<std::int64_t>(sparse_.size()), [&](std::int64_t chunk) {
    auto& to = sparse_[static_cast<std::size_t>(chunk)];
    auto const& from = behind.sparse_[static_cast<std::size_t>(chunk)];
    to.present += from.present;
    if (!to.counts.empty()) to.counts[0].merge(exec, from.counts[0]);
  });
  for (std::size_t c = 0; c < dense_.size(); ++c) {
    dense_[c].present += behind.dense_[c].present;
    dense_[c].numbers.merge(behind.dense_[c].numbers);
    if (!dense_[c].sample.empty()) dense_[c].sample[0].merge(behind.dense_[c].sample[0]);
  }
  rows_ += behind.rows_;
}

TESSERA_INLINE preprocessing preprocessing_fit::finish(host_exec const& exec) && {
  if (rows_ == 0) throw error(errc::invalid_argument, "preprocessing: no samples to fit to");
  std::vector<std::string> dropped_dense, dropped_sparse;
  for (std::size_t c = 0; c < dense_.size(); ++c) {
    if (dense_[c].present == 0)
      dropped_dense.push_back(schema_.dense[c]);
    else
      finish(dense_rules_[c], dense_[c]);
  }
  std::vector<fitted_vocabulary> vocabularies;
  for (std::size_t c = 0; c < sparse_.size(); ++c) {
    if (sparse_[c].present == 0) dropped_sparse.push_back(schema_.sparse[c]);
    if (auto const* const values = detail::vocabulary_of(sparse_rules_[c].steps))
      if (!sparse_[c].counts.empty()) vocabularies.push_back(finish(exec, c, *values));
  }
  sparse_pipeline sparse(exec, schema_, sparse_rules_, vocabularies, std::move(dropped_sparse));
  return preprocessing(schema_, dense_pipeline(schema_.dense, dense_rules_, std::move(dropped_dense)), std::move(sparse));
}

TESSERA_INLINE void preprocessing_fit::restore(std::int64_t rows, std::vector<dense_column_fit> dense,
                                               std::vector<sparse_column_fit> sparse) {
  bool fits = rows >= 0 && dense.size() == dense_.size() && sparse.size() == sparse_.size();
  for (std::size_t c = 0; fits && c < dense.size(); ++c)
    fits = dense[c].sample.size() == dense_[c].sample.size() && dense[c].present >= 0 && dense[c].present <= rows &&
           dense[c].numbers.count >= 0 && dense[c].numbers.count <= rows;
  for (std::size_t c = 0; fits && c < sparse.size(); ++c)
    fits = sparse[c].counts.size() == sparse_[c].counts.size() && sparse[c].present >= 0 &&
           (sparse[c].counts.empty() || sparse[c].counts[0].limit() == sparse_[c].counts[0].limit());
  if (!fits) throw error(errc::invalid_argument, "preprocessing_fit: the state of another fit", {{"rows", rows}});
  rows_ = rows;
  dense_ = std::move(dense);
  sparse_ = std::move(sparse);
}

TESSERA_INLINE void preprocessing_fit::add_numbers(std::size_t c, vector_view<float const> values) {
  auto const& steps = dense_rules_[c].steps;
  auto const step = unfitted_step(dense_rules_[c]);
  auto& to = dense_[c];
  if (step == steps.size()) {
    to.present += std::count_if(values.begin(), values.end(), [](float x) { return !std::isnan(x); });
    return;
  }
  std::array<double, values_per_piece> piece;
  for (std::int64_t first = 0; first < values.size(); first += values_per_piece) {
    auto const n = std::min(values_per_piece, values.size() - first);
    for (std::int64_t i = 0; i < n; ++i) {
      piece.data()[i] = values.data()[first + i];
      to.present += !std::isnan(values.data()[first + i]);
    }
    for (std::size_t s = 0; s < step; ++s) detail::apply_step(steps[s], piece.data(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      auto const value = piece.data()[i];
      if (!std::isfinite(value)) continue;
      if (!to.sample.empty()) to.sample[0].add(options_.first_row + rows_ + first + i, value);
      to.numbers.add(value);
    }
  }
}

TESSERA_INLINE void preprocessing_fit::add_ids(host_exec const& exec, std::size_t c, jagged_view<std::int64_t const> rows) {
  bool const is_single = schema_.is_single(schema_.sparse[c]);
  auto& to = sparse_[c];
  auto const& steps = sparse_rules_[c].steps;
  if (to.counts.empty()) {
    auto const ids = rows.all_values();
    to.present += ids.size() - (is_single ? std::count(ids.begin(), ids.end(), missing_id) : 0);
    return;
  }
  auto const functions = detail::step_functions(sparse_rules_[c], nullptr);  // those before the vocabulary
  auto const add = [&](vector_view<std::int64_t const> ids) {
    // Of a list, where no id is missing, the smallest integer is an id like others.
    if (is_single)
      to.present += ids.size() - to.counts[0].add(exec, ids, missing_id);
    else
      to.present += ids.size(), to.counts[0].add(exec, ids);
  };
  auto const* const truncation = detail::truncation_of(steps);
  if (truncation == nullptr && functions.empty()) return add(rows.all_values());
  std::array<std::int64_t, values_per_piece> piece;
  std::int64_t n = 0;
  auto const flush = [&] {
    for (auto const& function : functions) detail::apply_function(function, piece.data(), n, is_single, missing_id);
    add({piece.data(), n});
    n = 0;
  };
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    auto ids = rows.row(row);
    if (truncation != nullptr && ids.size() > truncation->most)
      ids = ids.slice(truncation->kept == kept_values::last ? ids.size() - truncation->most : 0, truncation->most);
    for (auto const id : ids) {
      if (n == values_per_piece) flush();
      piece.data()[n++] = id;
    }
  }
  flush();
}

TESSERA_INLINE void preprocessing_fit::finish(dense_rule& rule, dense_column_fit const& column) {
  auto const step = unfitted_step(rule);
  if (step == rule.steps.size()) return;
  if (auto* const s = std::get_if<standardise>(&rule.steps[step])) {
    auto const deviation = std::sqrt(column.numbers.variance());
    s->mean = column.numbers.mean();
    s->deviation = deviation > 0 ? deviation : 1;  // a constant column becomes 0
  } else if (auto* const b = std::get_if<bucketise>(&rule.steps[step])) {
    std::vector<double> values;
    for (auto const& e : column.sample[0].entries()) values.push_back(e.value);
    std::sort(values.begin(), values.end());
    auto const n = static_cast<std::int64_t>(values.size());
    // The least value is no boundary: nothing would be below it.
    auto const above_least = std::upper_bound(values.begin(), values.end(), n > 0 ? values[0] : 0);
    for (std::int64_t i = 1; i < b->buckets && above_least != values.end(); ++i) {
      __extension__ typedef __int128 wide;
      auto const value = std::max(values[static_cast<std::size_t>(wide{i} * n / b->buckets)], *above_least);
      auto boundary = static_cast<float>(value);
      // Rounded down, so that the value itself is not below.
      if (double{boundary} > value) boundary = std::nextafter(boundary, -std::numeric_limits<float>::infinity());
      if (b->boundaries.empty() || boundary > b->boundaries.back()) b->boundaries.push_back(boundary);
    }
    if (b->boundaries.empty()) b->boundaries.push_back(0);  // no two numbers differ
  }
}

TESSERA_INLINE fitted_vocabulary preprocessing_fit::finish(host_exec const& exec, std::size_t c, vocabulary const& options) {
  fitted_vocabulary result{detail::shared_name(sparse_rules_[c]), {}};
  auto counts = std::move(sparse_[c].counts[0]);
  for (auto other = c + 1; other < sparse_.size(); ++other) {
    if (detail::shared_name(sparse_rules_[other]) != result.name || sparse_[other].counts.empty()) continue;
    counts.merge(exec, sparse_[other].counts[0]);
    sparse_[other].counts.clear();
  }
  if (options.limit > 0) {
    result.values = counts.most_frequent(options.min_count, options.limit);
  } else {
    for (std::int64_t i = 0; i < counts.size(); ++i)
      if (counts.counts()[i] >= options.min_count) result.values.push_back(counts.values()[i]);
  }
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
