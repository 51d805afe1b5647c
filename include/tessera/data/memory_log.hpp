// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/sample_columns.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A data set of samples that lie in memory, in blocks of `block_rows`, the last perhaps smaller. Threads may read through one object at
/// once. Move-only.
class memory_log {
 public:
  /// Takes over the samples, and the memory that they came from, which outlives it; a session or time that the schema does not name is never
  /// read. `block_rows`: samples of a block.
  /// @throws tessera::error invalid_argument for block_rows < 1; shape_mismatch for samples without the columns that the schema names.
  memory_log(sample_schema schema, sample_columns samples, std::int64_t block_rows = 65536)
      : schema_(std::move(schema)), samples_(std::move(samples)), block_rows_(block_rows) {
    if (block_rows < 1) throw error(errc::invalid_argument, "memory_log: block_rows", {{"block_rows", block_rows}, {"least", 1}});
    if (samples_.dense_columns() != static_cast<std::int64_t>(schema_.dense.size()) ||
        samples_.sparse_columns() != static_cast<std::int64_t>(schema_.sparse.size()))
      throw error(errc::shape_mismatch, "memory_log: samples with other columns than the schema's",
                  {{"dense", samples_.dense_columns()},
                   {"dense of the schema", schema_.dense.size()},
                   {"sparse", samples_.sparse_columns()},
                   {"sparse of the schema", schema_.sparse.size()}});
    if (!schema_.session.empty() && !samples_.with_sessions())
      throw error(errc::shape_mismatch, "memory_log: samples without the schema's session", {{"session", schema_.session}});
    if (!schema_.time.empty() && !samples_.with_times())
      throw error(errc::shape_mismatch, "memory_log: samples without the schema's time", {{"time", schema_.time}});
  }

  sample_schema const& schema() const noexcept { return schema_; }
  std::int64_t rows() const noexcept { return samples_.size(); }
  std::int64_t block_count() const noexcept { return divide_up(rows(), block_rows_); }
  /// Samples in a block, at least one; the number of its first. @pre the block is there.
  std::int64_t rows(std::int64_t block) const noexcept { return std::min(block_rows_, rows() - first_row(block)); }
  std::int64_t first_row(std::int64_t block) const noexcept { return block * block_rows_; }

  /// `out` becomes a copy of a block. Allocates only when a buffer grows, or `out` had other columns.
  /// @throws tessera::error out_of_range for no such block.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "memory_log: no such block", {{"block", block}, {"blocks", block_count()}});
    if (!out.has_columns_of(schema_)) out = sample_columns(schema_);
    out.clear();
    out.append(exec, samples_.view(), first_row(block), rows(block));
  }

 private:
  sample_schema schema_;
  sample_columns samples_;
  std::int64_t block_rows_;
};
static_assert(sample_source<memory_log>);

}  // namespace TESSERA_ABI
}  // namespace tessera
