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
  memory_log(sample_schema schema, sample_columns_view samples, std::int64_t block_rows = 65536);

  /// Shows columns of the caller. The label says how many samples there are; columns that the schema does not name are never read.
  /// @pre the columns outlive the log and do not change.
  /// @throws tessera::error as above; invalid_argument or out_of_range naming a column whose offsets are not in order or reach past the
  /// values.
  memory_log(sample_schema const& schema, column_views const& columns, std::int64_t block_rows = 65536);

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
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const;

 private:
  struct number_column {
    float const* data = nullptr;
    std::int64_t stride = 1;  // from one sample to the next
  };
  struct id_column {
    std::int64_t const* ids;
    std::int64_t const* offsets;  // (n + 1,), or null: single ids
  };

  memory_log(sample_schema schema, std::int64_t rows, std::int64_t block_rows);

  static void check_number_of(char const* what, std::int64_t columns, std::size_t expected);
  void check_rows(std::string const& name, std::int64_t rows) const;
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
  id_column checked(std::string const& name, id_lists const& lists) const;

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

#if !TESSERA_COMPILED
#include <tessera/data/memory_log.ipp>
#endif
