// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/shard/table_spec.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The hot rows of one table, numbered 0, 1, … in the order of their ids. Of a table whose ids are rows it is a bitmap, with the number of
/// hot rows before each part of it. Of a hashed table it is a map of ids. A table may be hot as a whole: then each id is its number.
/// Move-only.
class table_hot_rows {
 public:
  /// All rows of a table whose ids are rows.
  static table_hot_rows all_of(table_options const& table);
  /// These rows. @throws tessera::error invalid_argument for ids that do not ascend; out_of_range for an id that the table has no row for.
  static table_hot_rows some_of(host_exec const& exec, table_options const& table, bool slots_are_ids, std::vector<std::int64_t> ids);

  /// The whole table.
  table_options const& table() const noexcept { return table_; }
  bool slots_are_ids() const noexcept { return slots_are_ids_; }
  /// Whether all rows are hot.
  bool is_whole() const noexcept { return is_whole_; }
  /// How many rows are hot.
  std::int64_t size() const noexcept { return is_whole_ ? table_.rows : static_cast<std::int64_t>(ids_.size()); }
  /// The ids of the hot rows by number, ascending, (size(),); empty where all are hot.
  vector_view<std::int64_t const> ids() const noexcept { return ids_; }
  /// The id of a hot row. @pre 0 <= number < size().
  std::int64_t id(std::int64_t number) const noexcept { return is_whole_ ? number : ids_[static_cast<std::size_t>(number)]; }

  /// Whether an id's row is hot; false for an id that the table has no row for.
  bool is_hot(std::int64_t id) const noexcept {
    if (!slots_are_ids_) return numbers_.find(id) != id_map::absent;
    if (static_cast<std::uint64_t>(id) >= static_cast<std::uint64_t>(table_.rows)) return false;
    return is_whole_ || (word_of(id) >> id % 64 & 1) != 0;
  }
  /// The number of a hot row; -1 of an id that is cold.
  std::int64_t number(std::int64_t id) const noexcept {
    if (!slots_are_ids_) return numbers_.find(id);
    if (!is_hot(id)) return -1;
    if (is_whole_) return id;
    auto number = before_[static_cast<std::size_t>(id / bits_of_part)];
    for (auto word = id / bits_of_part * (bits_of_part / 64); word < id / 64; ++word)
      number += std::popcount(words_[static_cast<std::size_t>(word)]);
    return number + std::popcount(word_of(id) & ((std::uint64_t{1} << id % 64) - 1));
  }
  std::size_t bytes() const noexcept {
    return words_.capacity() * sizeof(std::uint64_t) + (before_.capacity() + ids_.capacity()) * sizeof(std::int64_t) + numbers_.bytes();
  }

 private:
  static constexpr std::int64_t bits_of_part = 512;  // a cache line

  explicit table_hot_rows(table_options const& table, bool slots_are_ids) : table_(table), slots_are_ids_(slots_are_ids) {}
  std::uint64_t word_of(std::int64_t id) const noexcept { return words_[static_cast<std::size_t>(id / 64)]; }

  table_options table_;
  bool slots_are_ids_;
  bool is_whole_ = false;
  std::vector<std::int64_t> ids_;
  std::vector<std::uint64_t> words_;  // a bit a row of the table
  std::vector<std::int64_t> before_;  // hot rows before each part of `bits_of_part`
  id_map numbers_;                    // of a hashed table's hot ids
};

/// The hot rows of all tables: those of which each worker has a copy. Move-only.
struct hot_rows {
  double percent = 0;  ///< of a table's accesses, which made a row of a large table hot; infinity: none is
  std::vector<table_hot_rows> tables;

  /// A checksum of all ids, and of the tables that they are of.
  std::uint32_t digest() const noexcept;
  /// Bytes of the bitmaps and maps here.
  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& table : tables) sum += table.bytes();
    return sum;
  }
  /// Bytes of the hot rows with scale and optimizer state. @throws tessera::error incompatible as `check_tables`.
  std::int64_t row_bytes(std::vector<table_spec> const& specs) const;
  /// @throws tessera::error incompatible, naming what differs, where the specs are of other tables.
  void check_tables(char const* call, std::vector<table_spec> const& specs) const;
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/hot/hot_rows.ipp>
#endif
