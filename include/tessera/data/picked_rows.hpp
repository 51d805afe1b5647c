// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The samples of a batch among those of a block: the listed ones, or, where none is listed, those from `first` on.
struct picked_rows {
  sample_columns_view from;
  std::int64_t size = 0;
  std::int64_t first = 0;
  vector_view<std::int64_t const> listed{};

  std::int64_t row(std::int64_t i) const noexcept { return listed.empty() ? first + i : listed.data()[i]; }
  /// Calls f(row_of), where row_of(i) is row(i).
  template <class F>
  void visit(F const& f) const {
    if (listed.empty())
      f([first = first](std::int64_t i) { return first + i; });
    else
      f([rows = listed.data()](std::int64_t i) { return rows[i]; });
  }
};

/// Memory for one buffer of integers at a time. It stays from buffer to buffer, and so does what is written there.
class lent_integers {
 public:
  /// Whether no buffer has it.
  bool is_free() const noexcept { return is_free_; }
  /// Makes room for a buffer of `size`. @pre is_free().
  void reserve(host_exec const& exec, std::int64_t size) {
    if (static_cast<std::size_t>(size) * sizeof(std::int64_t) > integers_.capacity_bytes()) counted_ = 0;
    integers_.resize(exec, std::max(size, integers_.size()));
  }
  /// The same, and the integers are 0, 1, …, as they stay where no buffer's owner changes them.
  void count_up(host_exec const& exec, std::int64_t size) {
    reserve(exec, size);
    for (; counted_ < size; ++counted_) integers_.data()[counted_] = counted_;
  }
  std::size_t bytes() const noexcept { return integers_.capacity_bytes(); }

  void* allocate(host_exec const&, std::size_t, std::size_t) noexcept {
    is_free_ = false;
    return integers_.data();
  }
  void deallocate(host_exec const&, void*, std::size_t, std::size_t) noexcept { is_free_ = true; }

 private:
  buffer<std::int64_t> integers_;
  std::int64_t counted_ = 0;
  bool is_free_ = true;
};

/// Makes the keys of a batch without groups, a row a sample, of the columns of a block.
///
/// Where each row has one id, ids and offsets lie in memory that stays from batch to batch, and offsets are written once.
class key_maker {
 public:
  /// Key k is made of column columns[k]. `keeps_missing`: `missing_id` stays in columns of single ids, else the row becomes empty.
  keyed_jagged<> operator()(host_exec const& exec, picked_rows const& rows, std::vector<std::int64_t> const& columns, bool keeps_missing);

  std::size_t bytes() const noexcept {
    return first_value_.capacity_bytes() + (lent_ == nullptr ? 0 : lent_->ids.bytes() + lent_->offsets.bytes());
  }

 private:
  static constexpr std::int64_t samples_per_piece = 512, ids_per_piece = 4096;

  struct lent {
    lent_integers ids, offsets;
  };

  static std::int64_t const* ids_of(jagged_view<std::int64_t const> const& column) noexcept {
    return column.values + (column.rows == 0 ? 0 : column.begin_of(0));
  }

  keyed_jagged<> single_ids(host_exec const& exec, picked_rows const& rows, std::vector<std::int64_t> const& columns);

  // Calls f(key, column, first, last, piece) for pieces of each key's samples.
  template <class F>
  static void for_each_piece_of(host_exec const& exec, picked_rows const& rows, std::vector<std::int64_t> const& columns, F const& f) {
    auto const pieces = divide_up(rows.size, samples_per_piece);
    exec.run(static_cast<std::int64_t>(columns.size()) * pieces, [&](std::int64_t piece) {
      auto const key = piece / pieces, first = piece % pieces * samples_per_piece;
      f(key, columns[static_cast<std::size_t>(key)], first, std::min(rows.size, first + samples_per_piece), piece);
    });
  }

  // Where each piece's values begin in the batch; returns how many values there are in all.
  std::int64_t count(host_exec const& exec, picked_rows const& rows, std::vector<std::int64_t> const& columns, bool keeps_missing);

  keyed_jagged<> lists(host_exec const& exec, picked_rows const& rows, std::vector<std::int64_t> const& columns, bool keeps_missing,
                       std::int64_t values);

  std::vector<std::int64_t> rows_per_key_;
  buffer<std::int64_t> first_value_;  // (keys, pieces)
  std::unique_ptr<lent> lent_;        // where buffers find it, whoever moves the reader
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/picked_rows.ipp>
#endif
