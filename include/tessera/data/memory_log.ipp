// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/memory_log.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE memory_log::memory_log(sample_schema schema, sample_columns_view samples, std::int64_t block_rows)
    : memory_log(std::move(schema), samples.size(), block_rows) {
  check_number_of("dense", samples.dense.rows(), schema_.dense.size());
  check_number_of("sparse", samples.sparse.size(), schema_.sparse.size());
  labels_ = checked(schema_.label, samples.labels);
  for (auto const& name : schema_.dense) {
    auto const c = static_cast<std::int64_t>(dense_.size());
    dense_.push_back(checked(name, vector_view<float const>(samples.dense.row(c), samples.dense.columns())));
  }
  for (auto const& name : schema_.sparse) {
    auto const c = static_cast<std::int64_t>(sparse_.size());
    auto const& column = samples.sparse[c];
    check_rows(name, column.rows);
    if (samples.single(c) != schema_.is_single(name))
      throw error(errc::shape_mismatch, "memory_log: a column has single ids in the schema alone, or in the samples alone",
                  {{"column", name}});
    if (samples.single(c))
      sparse_.push_back({column.values + (rows_ == 0 ? 0 : column.begin_of(0)), nullptr});
    else
      sparse_.push_back({column.values, column.offsets});
  }
  if (!schema_.other_labels.empty()) check_number_of("other labels", samples.other_labels.rows(), schema_.other_labels.size());
  for (auto const& name : schema_.other_labels) {
    auto const c = static_cast<std::int64_t>(other_labels_.size());
    other_labels_.push_back(checked(name, vector_view<float const>(samples.other_labels.row(c), samples.other_labels.columns())));
  }
  if (!schema_.weight.empty()) weights_ = checked(schema_.weight, samples.weights);
  if (!schema_.session.empty()) sessions_ = checked(schema_.session, samples.sessions);
  if (!schema_.time.empty()) times_ = checked(schema_.time, samples.times);
}

TESSERA_INLINE memory_log::memory_log(sample_schema const& schema, column_views const& columns, std::int64_t block_rows)
    : memory_log(schema, found(columns.numbers, schema.label).size(), block_rows) {
  auto const number = [&](std::string const& name) { return checked(name, found(columns.numbers, name)); };
  auto const integer = [&](std::string const& name) { return checked(name, found(columns.integers, name)); };
  labels_ = number(schema_.label);
  bool const is_matrix = columns.dense.columns() > 0;
  if (is_matrix) {
    check_number_of("dense", columns.dense.columns(), schema_.dense.size());
    check_rows("dense", columns.dense.rows());
  }
  for (auto const& name : schema_.dense) {
    if (is_matrix)
      dense_.push_back({columns.dense.data() + dense_.size(), columns.dense.stride()});
    else
      dense_.push_back(number(name));
  }
  for (auto const& name : schema_.sparse) {
    if (schema_.is_single(name))
      sparse_.push_back({integer(name), nullptr});
    else
      sparse_.push_back(checked(name, found(columns.lists, name)));
  }
  for (auto const& name : schema_.other_labels) other_labels_.push_back(number(name));
  if (!schema_.weight.empty()) weights_ = number(schema_.weight);
  if (!schema_.session.empty()) sessions_ = integer(schema_.session);
  if (!schema_.time.empty()) times_ = integer(schema_.time);
}

TESSERA_INLINE void memory_log::read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
  if (block < 0 || block >= block_count())
    throw error(errc::out_of_range, "memory_log: no such block", {{"block", block}, {"blocks", block_count()}});
  if (!out.has_columns_of(schema_)) out = sample_columns(schema_);
  auto const first = first_row(block), count = rows(block);
  out.resize(exec, count);
  auto const columns = static_cast<std::int64_t>(sparse_.size());
  auto const is_list = [&](std::int64_t c) { return sparse_[static_cast<std::size_t>(c)].offsets != nullptr; };
  exec.run(columns, [&](std::int64_t c) {
    if (!is_list(c)) return;
    auto const* const offsets = sparse_[static_cast<std::size_t>(c)].offsets + first;
    for (std::int64_t i = 0; i <= count; ++i) out.offsets(c).data()[i] = offsets[i] - offsets[0];
  });
  for (std::int64_t c = 0; c < columns; ++c)
    if (is_list(c)) out.ids(exec, c);  // takes what memory it needs before threads write

  auto const dense = static_cast<std::int64_t>(dense_.size());
  exec.run(1 + dense + columns, [&](std::int64_t task) {
    if (task == 0) return read_numbers(first, out);
    if (task <= dense) return copy(dense_[static_cast<std::size_t>(task - 1)], first, out.dense().row(task - 1), count);
    auto const c = task - 1 - dense;
    auto const& column = sparse_[static_cast<std::size_t>(c)];
    auto const to = is_list(c) ? out.ids(exec, c) : out.single_ids(c);
    std::copy_n(column.ids + (is_list(c) ? column.offsets[first] : first), to.size(), to.data());
  });
}

TESSERA_INLINE memory_log::memory_log(sample_schema schema, std::int64_t rows, std::int64_t block_rows)
    : schema_(std::move(schema)), rows_(rows), block_rows_(block_rows) {
  if (block_rows < 1) throw error(errc::invalid_argument, "memory_log: block_rows", {{"block_rows", block_rows}, {"least", 1}});
  check_schema("memory_log", schema_);
}

TESSERA_INLINE void memory_log::check_number_of(char const* what, std::int64_t columns, std::size_t expected) {
  if (columns != static_cast<std::int64_t>(expected))
    throw error(errc::shape_mismatch, "memory_log: samples with other columns than the schema's",
                {{"columns", what}, {"found", columns}, {"expected", expected}});
}

TESSERA_INLINE void memory_log::check_rows(std::string const& name, std::int64_t rows) const {
  if (rows != rows_)
    throw error(errc::shape_mismatch, "memory_log: a column of another number of samples than the label's",
                {{"column", name}, {"samples", rows}, {"expected", rows_}});
}

TESSERA_INLINE memory_log::id_column memory_log::checked(std::string const& name, id_lists const& lists) const {
  check_rows(name, lists.offsets.size() - 1);
  try {
    validate(jagged_view<std::int64_t const>{lists.values.data(), lists.offsets.data(), rows_}, lists.values.size());
  } catch (error const& refusal) {
    auto values = refusal.values();
    values.insert(values.begin(), {"column", name});
    throw error(refusal.code(), "memory_log: " + std::string(refusal.sentence()), std::move(values));
  }
  return {lists.values.data(), lists.offsets.data()};
}

}  // namespace TESSERA_ABI
}  // namespace tessera
