// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/hot/hot_rows.hpp>
#include <tessera/hot/parted_batch.hpp>
#include <tessera/hot/row_marks.hpp>
#include <tessera/shard/move_rows.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Which table and output each key of a batch has. @throws tessera::error invalid_argument for an output that is not of one key and table.
std::vector<hot_key> keys_of_outputs(vector_view<embedding_output const> outputs);
/// Refuses sums that no `hot_source` makes. @throws tessera::error invalid_argument.
void check_hot_source(vector_view<embedding_output const> outputs, int ranks, bool rows_stay, shared_gradients sums);

/// Rows that move, and what shows them.
class rows_on_the_move {
 public:
  rows_on_the_move(hot_rows const& hot, row_marks const& marks, sharded_tables* twins);

  vector_view<moving_rows const> view() const noexcept { return rows_; }
  std::int64_t count() const noexcept {
    std::int64_t sum = 0;
    for (auto const& some : rows_) sum += some.ids.size();
    return sum;
  }

 private:
  table_parts parts_;  // of the twins
  std::vector<std::vector<std::int64_t>> ids_, numbers_;
  std::vector<moving_rows> rows_;  // of each table
};

/// The twins of a worker: a table of each table's hot rows, on all workers. A rank that is none has no twins.
class hot_tables {
 public:
  /// What is hot, and of which tables.
  struct origin {
    hot_rows const& hot;
    std::vector<table_spec> const& specs;
    table_parts const& parts;  // of the inner source, and their places
    table_places const& places;
  };

  /// All ranks of `comm` call it, and all throw where one does. @throws tessera::error as `hot_source`.
  hot_tables(host_exec const& exec, any_communicator& comm, origin const& of, std::vector<table_feature> const& features,
             sharded_tables_options const& options, std::optional<any_communicator> workers, row_mover const& mover);

  sharded_tables* twins() noexcept { return twins_ ? &*twins_ : nullptr; }
  sharded_tables const* twins() const noexcept { return twins_ ? &*twins_ : nullptr; }
  /// Whether another worker counts the gradients of twins.
  bool is_copy() const noexcept { return is_copy_; }
  /// The elements of a row of each twin; none where there are no twins.
  std::vector<std::int64_t> const& dims() const noexcept { return dims_; }
  rows_on_the_move rows_to_move(hot_rows const& hot, row_marks const& marks) { return {hot, marks, twins()}; }
  std::size_t bytes() const noexcept { return twins_ ? twins_->bytes() : 0; }

 private:
  static void check(origin const& of);

  std::vector<std::int64_t> no_rows_{0};  // the ids of a twin without hot rows, which has one row that nobody reads
  std::optional<sharded_tables> twins_;
  bool is_copy_ = false;
  std::vector<std::int64_t> dims_;
};

// Copies the rows of a table from one list to another.
void copy_row_gradients(row_gradients const& from, std::int64_t table, row_gradients& to, std::int64_t to_table);
/// One list of gradients of two, each of which may be none: then its tables have no rows.
void join_row_gradients(host_exec const& exec, std::vector<std::int64_t> const& first_dims, row_gradients const& first,
                        std::vector<std::int64_t> const& second_dims, row_gradients const& second, row_gradients& sum);
/// The gradients of the first tables, and of the others.
void split_row_gradients(host_exec const& exec, std::int64_t first_tables, row_gradients const& sum, row_gradients& first,
                         row_gradients& second);

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/hot/hot_tables.ipp>
#endif
