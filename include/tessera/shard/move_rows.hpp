// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/hashed_row.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

constexpr std::int64_t whole_words(std::int64_t bytes) noexcept { return divide_up(bytes, 8) * 8; }

// Copies `bytes` bytes of each of `rows` rows. Strides are in bytes.
inline void copy_columns(std::byte* to, std::int64_t to_stride, std::byte const* from, std::int64_t from_stride, std::int64_t rows,
                         std::int64_t bytes) noexcept {
  for (std::int64_t r = 0; r < rows; ++r) std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<std::size_t>(bytes));
}

}  // namespace detail

/// Rows of one table that move between where they lie and copies of them.
struct moving_rows {
  std::int64_t table = 0;                   ///< its number
  vector_view<std::int64_t const> ids{};    ///< distinct, the same on all ranks
  table_part* copy = nullptr;               ///< the table that has this rank's copies; null on a rank without copies
  vector_view<std::int64_t const> slots{};  ///< (ids,): where the copies are in it; empty on a rank without copies
};

/// Moves rows of a source whose tables are cut over ranks: to copies on some of the ranks, and back. Weights, scales, optimizer states and
/// the tables' step counts move, byte for byte. Ranks find out once where all parts lie; then each row travels from the rank that has it to
/// those that need it, and no other. Messages are built in the execution's memory.
///
/// A source whose rows lie elsewhere moves them itself (`moves_rows`).
class row_mover {
 public:
  /// Gathers where the parts of all ranks lie, and who has copies. All ranks call it, and all calls below, together.
  /// @throws tessera::error incompatible, naming the table, for one whose rows have a state or a scale of their own and are cut by columns:
  /// a copy has one for all columns.
  row_mover(host_exec const& exec, any_communicator comm, table_parts const& parts, table_places const& places, bool has_copies);

  /// Overwrites the copies with the rows. A row that its table does not have, as a hashed one may not, leaves its copy as it was.
  /// @throws tessera::error as `communicator`; incompatible for a copy of another kind than its table.
  void to_copies(host_exec const& exec, table_parts const& parts, vector_view<moving_rows const> rows);
  /// Overwrites the rows with the copies of the lowest rank that has copies. A hashed table that is full leaves rows out. @pre as above
  /// @throws tessera::error as above; incompatible for a dense table that lacks a row.
  void from_copies(host_exec const& exec, table_parts const& parts, vector_view<moving_rows const> rows);

  /// Refuses a table that is to have copies of another one's rows, and is of another kind. @throws tessera::error incompatible, naming what
  /// differs.
  void check_copy(std::int64_t table, table_part const& copy) const;

 private:
  // Where a part of any rank lies.
  struct place {
    std::int64_t table, first_column, columns, first_row, rows, hashed_rows;
    std::int64_t is_copy, is_hashed;
    std::int64_t weight_type, weight_bytes;       // of an element
    std::int64_t has_step, per_row, per_element;  // of a row's state
    std::int64_t optimizer;                       // a number of its name

    bool has(std::int64_t id) const noexcept;
    std::int64_t state_width() const noexcept { return per_row + per_element * columns; }
    // Of so many rows: steps of the table, whether each row is there, weights, scales, states; each from a multiple of 8 bytes on.
    std::int64_t message_bytes(std::int64_t rows) const noexcept;
    bool is_whole(std::int64_t dim) const noexcept { return first_column == 0 && columns == dim; }
  };
  // What of the moving rows is in a part: which of the ids, ascending.
  using picks = std::vector<std::int64_t>;

  static place place_of(table_part const& part, part_place const& of_source);
  static void check(moving_rows const& rows);
  static picks picks_of(place const& part, moving_rows const& rows);
  void pack(host_exec const& exec, table_part const& from, place const& part, vector_view<std::int64_t const> slots, std::byte* to) const;
  void pack_part(host_exec const& exec, table_part const& from, place const& part, moving_rows const& rows, std::byte* to) const;
  void pack_copy(host_exec const& exec, place const& part, moving_rows const& rows, std::byte* to) const;
  template <class F>
  void unpack(host_exec const& exec, F const& f);
  void unpack_into_copy(host_exec const& exec, place const& part, moving_rows const& rows, std::byte const* from) const;
  void unpack_into_part(host_exec const& exec, table_part& to, place const& part, moving_rows const& rows, std::byte const* from) const;

  any_communicator comm_;
  std::vector<std::vector<place>> places_;  // of each rank's parts
  std::vector<int> copy_ranks_;             // ascending
};

/// A source that moves rows to copies and back itself, as `row_mover` does for others.
template <class S>
concept moves_rows = requires(S& source, host_exec const& exec, vector_view<moving_rows const> rows) {
  source.to_copies(exec, rows);
  source.from_copies(exec, rows);
};

// Where `f` throws on one rank, all throw.
template <class F>
void row_mover::unpack(host_exec const& exec, F const& f) {
  std::exception_ptr failure;
  try {
    f();
  } catch (...) {
    failure = std::current_exception();
  }
  if (comm_.size() > 1)
    barrier(exec, comm_, "row_mover: rows have moved", failure);
  else if (failure)
    std::rethrow_exception(failure);
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/shard/move_rows.ipp>
#endif
