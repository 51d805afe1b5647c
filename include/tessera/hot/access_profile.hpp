// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/data/value_counts.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How often each row of one table was read. Of a table whose ids are rows, every row has a count of its own. Of a hashed table, ids have
/// counts, the most frequent ones alone where their number is limited. Move-only.
class table_accesses {
 public:
  /// Counts nothing yet. @param max_ids of a hashed table, the most ids that are counted at once; 0: all
  table_accesses(host_exec const& exec, table_options const& table, bool slots_are_ids, std::int64_t max_ids);
  /// Takes over the counts (rows,) of a table whose ids are rows. @throws tessera::error shape_mismatch for another number of rows.
  table_accesses(table_options const& table, buffer<std::uint32_t> counts);
  /// Takes over the counts of a hashed table's ids, of so many accesses in all. @throws tessera::error invalid_argument for fewer accesses
  /// than are counted.
  table_accesses(table_options const& table, value_counts ids, std::int64_t accesses);

  table_options const& table() const noexcept { return table_; }
  bool slots_are_ids() const noexcept { return slots_are_ids_; }
  /// How often rows were read in all.
  std::int64_t accesses() const noexcept { return accesses_; }
  /// Whether every count is exact.
  bool is_exact() const noexcept { return ids_.unheld() == 0; }
  /// Rows with a count: all of the table, or the ids that are counted.
  std::int64_t size() const noexcept { return slots_are_ids_ ? counts_.size() : ids_.size(); }
  /// The count at a place, and the id that it is of. @pre 0 <= i < size(), here and below.
  std::int64_t count(std::int64_t i) const noexcept { return slots_are_ids_ ? std::int64_t{counts_[i]} : ids_.counts()[i]; }
  std::int64_t id(std::int64_t i) const noexcept { return slots_are_ids_ ? i : ids_.values()[i]; }
  /// How often an id's row was read; 0 of an id that is not counted, or that the table has no row for.
  std::int64_t count_of(std::int64_t id) const noexcept {
    if (!slots_are_ids_) return ids_.count_of(id);
    return static_cast<std::uint64_t>(id) < static_cast<std::uint64_t>(counts_.size()) ? std::int64_t{counts_[id]} : 0;
  }
  /// The counts of rows, (rows,); empty of a hashed table.
  vector_view<std::uint32_t const> counts() const noexcept { return counts_.view(); }
  /// The counts of a hashed table's ids.
  value_counts const& ids() const noexcept { return ids_; }
  std::size_t bytes() const noexcept { return counts_.capacity_bytes() + ids_.bytes(); }

  /// @private Throws what `merge` would.
  void check_merge(table_accesses const& other) const;
  /// Adds accesses of other samples. @throws tessera::error incompatible for those of another table, or counted within another limit;
  /// out_of_range for a row that was read 2^32 times. Then nothing is added.
  void merge(host_exec const& exec, table_accesses const& other);

  /// @private Counts the ids of rows, each `times` as often; of a table whose ids are rows. Throws for an id that is none.
  void count(jagged_view<std::int64_t const> rows, vector_view<std::int64_t const> times, std::int64_t key);
  /// @private Counts the ids of each sample's row; of a hashed table.
  void count(host_exec const& exec, jagged_view<std::int64_t const> rows, vector_view<std::int64_t const> inverse, std::int64_t samples);

 private:
  table_options table_;
  bool slots_are_ids_;
  std::int64_t accesses_ = 0;
  buffer<std::uint32_t> counts_;
  value_counts ids_;
};

/// How often the rows of all tables were read, as a sample of the data shows it. Source: FAE, Section 4.1.2, the embedding logger.
struct access_profile {
  std::int64_t samples = 0;  ///< samples that were read
  std::vector<table_accesses> tables;

  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& table : tables) sum += table.bytes();
    return sum;
  }
  /// Adds the profile of other samples. @throws tessera::error as `table_accesses::merge`, before anything is added.
  void merge(host_exec const& exec, access_profile const& other);
};

/// Options of `profile_accesses`.
struct access_profile_options {
  /// Of each hashed table, the most ids that are counted at once, at some 200 bytes each; 0: all. After n accesses a count is too low by at
  /// most 2 n / max_ids (`value_counts`).
  std::int64_t max_ids = 0;
};

/// Counts how often each row is read until the reader's epoch ends.
///
///     sample_reader sample(exec, sampled_blocks, prepare, {.batch_size = 4096});
///     auto const profile = profile_accesses(exec, sample, features, specs);
///
/// Key k of a batch reads the table of feature k. Of a key in a row group, a distinct row counts as often as samples have it, so that a batch
/// with groups counts as the same batch without. Ranks that are to agree on hot rows all read the same sample.
/// @throws tessera::error what the reader throws. shape_mismatch for batches of other keys than features. out_of_range for a feature of no table;
/// for an id that a table has no row for, naming key, row, position and id; and for a row that is read 2^32 times. invalid_argument for an option
/// that cannot be.
template <reader Reader>
access_profile profile_accesses(host_exec const& exec, Reader& sample, std::vector<table_feature> const& features,
                                std::vector<table_spec> const& specs, access_profile_options const& options = {});

namespace detail {

// A profile of no samples. @throws tessera::error out_of_range for a feature of no table.
access_profile empty_profile(host_exec const& exec, std::vector<table_feature> const& features, std::vector<table_spec> const& specs,
                             access_profile_options const& options);
// Adds the accesses of a batch.
void add_accesses(host_exec const& exec, access_profile& profile, std::vector<table_feature> const& features, batch_view const& batch);
// Refuses batches of other keys than features.
void check_keys_of_features(char const* call, batch_view const& batch, std::vector<table_feature> const& features);

}  // namespace detail

template <reader Reader>
access_profile profile_accesses(host_exec const& exec, Reader& sample, std::vector<table_feature> const& features,
                                std::vector<table_spec> const& specs, access_profile_options const& options) {
  auto profile = detail::empty_profile(exec, features, specs, options);
  for (batch_view batch; sample.next(exec, batch);) detail::add_accesses(exec, profile, features, batch);
  return profile;
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/hot/access_profile.ipp>
#endif
