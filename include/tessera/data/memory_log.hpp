// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/tensor/jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A column of lists of ids, in memory that the caller owns: row i is values[offsets[i], offsets[i + 1]).
struct id_lists {
  vector_view<std::int64_t const> values;
  vector_view<std::int64_t const> offsets;  // (n + 1,)
};

/// Columns of samples by name, in memory that the caller owns: vectors, or tensors by `from_dlpack`.
struct column_views {
  std::map<std::string, vector_view<float const>> numbers{};          ///< (n,) each: label, dense, weight and other labels
  std::map<std::string, vector_view<std::int64_t const>> integers{};  ///< (n,) each: session, time and single ids
  std::map<std::string, id_lists> lists{};                            ///< n rows each: lists of ids
  matrix_view<float const> dense{};  ///< (n, dense columns) in the schema's order, in place of dense columns one by one
};

/// A data set of samples that lie in memory. The log owns the samples, or shows those of the caller without a copy. A block has
/// `block_rows` samples; the last may have fewer. Threads may read through one object at once. Move-only.
///
///     std::vector<float> clicks, ages;
///     std::vector<std::int64_t> items, history;
///     std::vector<std::int64_t> history_offsets;  // history of sample i: from history_offsets[i] to history_offsets[i + 1]
///     …
///     sample_schema const schema{.label = "click", .dense = {"age"}, .sparse = {"history", "item"}, .single = {"item"}};
///     memory_log const log(schema, {.numbers = {{"click", clicks}, {"age", ages}},
///                                   .integers = {{"item", items}},
///                                   .lists = {{"history", {history, history_offsets}}}});
///     sample_reader reader(exec, log, {.batch_size = 128, .order = sample_order::samples});
///
/// A tensor of another framework stands in a vector's place: `{"age", from_dlpack<vector_view<float const>>(tensor)}`. Where all dense
/// columns of a sample lie side by side, it is `.dense = from_dlpack<matrix_view<float const>>(tensor)`.
class memory_log {
 public:
  /// Takes over the samples. @pre the memory that they came from outlives the log.
  /// @throws tessera::error invalid_argument for block_rows < 1 and as `check_schema`. shape_mismatch for samples with another number of
  /// dense or sparse columns than the schema, or naming a column that they lack.
  memory_log(sample_schema schema, sample_columns samples, std::int64_t block_rows = 65536)
      : memory_log(std::move(schema), samples.view(), block_rows) {
    samples_ = std::move(samples);
  }

  /// Shows samples of the caller. @pre the samples outlive the log and do not change.
  /// @throws tessera::error as above; shape_mismatch naming a column of another length, or one that has single ids in the schema or in the
  /// samples alone.
  memory_log(sample_schema schema, sample_columns_view samples, std::int64_t block_rows = 65536)
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

  /// Shows columns of the caller. The label says how many samples there are; columns that the schema does not name are never read.
  /// @pre the columns outlive the log and do not change.
  /// @throws tessera::error as above; invalid_argument or out_of_range naming a column whose offsets are not in order or reach past the
  /// values.
  memory_log(sample_schema const& schema, column_views const& columns, std::int64_t block_rows = 65536)
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

  sample_schema const& schema() const noexcept { return schema_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t block_count() const noexcept { return divide_up(rows(), block_rows_); }
  /// How many samples a block has, at least one. @pre 0 <= block < block_count(), here and below.
  std::int64_t rows(std::int64_t block) const noexcept { return std::min(block_rows_, rows() - first_row(block)); }
  /// The number of a block's first sample.
  std::int64_t first_row(std::int64_t block) const noexcept { return block * block_rows_; }

  /// `out` becomes a copy of a block. Each column is one chunk of work. The call allocates only when a buffer grows, or `out` had other
  /// columns.
  /// @throws tessera::error out_of_range naming a block that is not there.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
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

 private:
  struct number_column {
    float const* data = nullptr;
    std::int64_t stride = 1;  // from one sample to the next
  };
  struct id_column {
    std::int64_t const* ids;
    std::int64_t const* offsets;  // (n + 1,), or null: single ids
  };

  memory_log(sample_schema schema, std::int64_t rows, std::int64_t block_rows)
      : schema_(std::move(schema)), rows_(rows), block_rows_(block_rows) {
    if (block_rows < 1) throw error(errc::invalid_argument, "memory_log: block_rows", {{"block_rows", block_rows}, {"least", 1}});
    check_schema("memory_log", schema_);
  }

  static void check_number_of(char const* what, std::int64_t columns, std::size_t expected) {
    if (columns != static_cast<std::int64_t>(expected))
      throw error(errc::shape_mismatch, "memory_log: samples with other columns than the schema's",
                  {{"columns", what}, {"found", columns}, {"expected", expected}});
  }
  void check_rows(std::string const& name, std::int64_t rows) const {
    if (rows != rows_)
      throw error(errc::shape_mismatch, "memory_log: a column of another number of samples than the label's",
                  {{"column", name}, {"samples", rows}, {"expected", rows_}});
  }
  template <class Column>
  static Column const& found(std::map<std::string, Column> const& columns, std::string const& name) {
    auto const column = columns.find(name);
    if (column == columns.end()) throw error(errc::shape_mismatch, "memory_log: no such column of this kind", {{"column", name}});
    return column->second;
  }
  number_column checked(std::string const& name, vector_view<float const> values) const {
    check_rows(name, values.size());
    return {values.data(), 1};
  }
  std::int64_t const* checked(std::string const& name, vector_view<std::int64_t const> values) const {
    check_rows(name, values.size());
    return values.data();
  }
  id_column checked(std::string const& name, id_lists const& lists) const {
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

  static void copy(number_column const& from, std::int64_t first, float* to, std::int64_t count) noexcept {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from.data[(first + i) * from.stride];
  }
  void read_numbers(std::int64_t first, sample_columns& out) const noexcept {
    copy(labels_, first, out.labels().data(), out.size());
    for (std::size_t c = 0; c < other_labels_.size(); ++c)
      copy(other_labels_[c], first, out.other_labels().row(static_cast<std::int64_t>(c)), out.size());
    copy(weights_, first, out.weights().data(), out.weights().size());
    std::copy_n(sessions_ + (sessions_ == nullptr ? 0 : first), out.sessions().size(), out.sessions().data());
    std::copy_n(times_ + (times_ == nullptr ? 0 : first), out.times().size(), out.times().data());
  }

  sample_schema schema_;
  std::int64_t rows_, block_rows_;
  sample_columns samples_;  // what the columns show, where they are its own
  number_column labels_, weights_;
  std::vector<number_column> dense_, other_labels_;
  std::vector<id_column> sparse_;
  std::int64_t const* sessions_ = nullptr;
  std::int64_t const* times_ = nullptr;
};
static_assert(sample_source<memory_log>);

}  // namespace TESSERA_ABI
}  // namespace tessera
