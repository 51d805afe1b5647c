// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bag_reader.hpp>
#include <tessera/embed/canonical_sums.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/pooled_argmax.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_contributions.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_sums.hpp>
#include <tessera/embed/sequence_lookup.hpp>
#include <tessera/embed/shared_bags.hpp>
#include <tessera/embed/table_group.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Tables of any kinds and the features that read them. A call does its part of a step for all kinds at once.
class featured_tables {
 public:
  /// @throws tessera::error as `local_tables`.
  featured_tables(table_list tables, std::vector<table_feature> features, lookup_options const& lookup);

  table_list const& list() const noexcept { return tables_; }
  std::int64_t table_count() const noexcept { return tables_.size(); }
  std::int64_t group_count() const noexcept { return tables_.group_count(); }
  table_options const& table(std::int64_t t) const noexcept { return tables_.options(t); }
  std::vector<table_feature> const& features() const noexcept { return features_; }
  std::size_t bytes() const noexcept { return tables_.bytes(); }
  void check_optimizers(char const* call) const {
    for (auto const& group : tables_.groups()) group->check_optimizers(call);
  }

  host_table_group& group_of(std::int64_t t) const noexcept { return tables_.group_of(t); }
  std::int64_t number_of(std::int64_t t) const noexcept { return tables_.number_of(t); }
  std::int64_t slot_bound(std::int64_t t) const noexcept { return group_of(t).slot_bound(number_of(t)); }
  vector_view<table_feature const> features_of_keys() const noexcept { return features_; }
  std::int64_t table_of(std::int64_t key) const noexcept { return features_[static_cast<std::size_t>(key)].table; }
  bool is_hashed(std::int64_t key) const noexcept { return !group_of(table_of(key)).slots_are_ids(); }
  bool all_slots_are_ids() const noexcept {
    return std::all_of(tables_.groups().begin(), tables_.groups().end(), [](auto const& group) { return group->slots_are_ids(); });
  }
  void count_step() noexcept {
    for (auto& group : tables_.groups()) group->count_step();
  }

  table_parts parts();

  void update(std::int64_t t, summed_rows const& rows) const noexcept { group_of(t).update(number_of(t), rows); }

  buffer<row_places> places_of_tables(host_exec const& exec) const;

  /// The slots of a key's values. `slots` are those of hashed tables' keys, the batch's first value first; a dense table's ids are its
  /// slots.
  std::int64_t const* slots_of(std::int64_t key, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots) const noexcept {
    if (is_hashed(key)) return slots;
    return batch.size() == 0 ? nullptr : batch.values + first_value(batch);
  }

  /// Calls f(table, ids, slots) for each key of a hashed table, in the order of `locate_all`.
  template <class F>
  void for_each_hashed_key(keyed_jagged_view<std::int64_t const> batch, buffer<std::int64_t>& slots, F const& f) const {
    for_each_key_by_feature(batch.keys, lookup_.source_ranks, [&](std::int64_t key) {
      auto const bags = batch.key(key);
      if (!is_hashed(key) || bags.rows == 0) return;
      vector_view<std::int64_t const> const ids{bags.values + bags.offsets[0], bags.size()};
      f(table_of(key), ids, slots.view().slice(bags.offsets[0] - first_value(batch), bags.size()));
    });
  }

  void locate(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, buffer<std::int64_t>& slots);

  void find(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, buffer<std::int64_t>& slots) const;

  void sort(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, row_order& order) const;

  /// Writes all outputs, all kinds of tables in one parallel region; then what was pooled once for several samples is expanded.
  void read(host_exec const& exec, char const* call, inverse_keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
            vector_view<matrix_view<float> const> out, pooled_argmax* argmax) const;

  /// `scales`: as for `contribute`.
  template <class F>
  void with_contributions(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
                          pooled_argmax const& argmax, row_order const& prepared, vector_view<matrix_view<float const> const> gradients,
                          float const* scales, F const& f) const {
    buffer<float> maxima;
    buffer<row_contribution> contributions(exec, batch.size());
    contribute(exec, features_of_keys(), batch, argmax, gradients, maxima, contributions.view(), scales);
    row_order own;
    if (!prepared.ready()) sort(exec, batch, slots, own);
    batch_contributions const all{contributions.data(), batch.values + first_value(batch), argmax.size() > 0};
    (prepared.ready() ? prepared : own).visit([&](auto const& sorted) { f(all, sorted); });
  }

  void check_batch(host_exec const& exec, char const* call, batch_view const& batch) const;

  /// Refuses ids that a dense table has no row for, before a hashed table gives a row to another.
  void check_ids(keyed_jagged_view<std::int64_t const> batch) const;

  template <class Matrix>
  void check_outputs(char const* call, inverse_keyed_jagged_view<std::int64_t const> batch, vector_view<Matrix const> blocks,
                     bool expanded) const {
    if (blocks.size() != static_cast<std::int64_t>(features_.size()))
      throw error(errc::shape_mismatch, std::string(call) + ": one block an output",
                  {{"outputs", features_.size()}, {"blocks", blocks.size()}});
    for (std::int64_t key = 0; key < blocks.size(); ++key) {
      auto const& feature = features_[static_cast<std::size_t>(key)];
      if (!feature.reads && !feature.learns) continue;
      auto const rows = !feature.sequence ? pooled_vectors(batch, key, lookup_.source_ranks)
                        : expanded        ? expanded_size(batch, key)
                                          : batch.distinct.key(key).size();
      check_lookup_matrix(call, key, rows, table(feature.table).dim, blocks[key]);
    }
  }
  static std::int64_t expanded_size(inverse_keyed_jagged_view<std::int64_t const> batch, std::int64_t key) noexcept {
    auto const bags = batch.distinct.key(key);
    auto const inverse = batch.inverse(key);
    if (inverse.empty()) return bags.size();
    std::int64_t size = 0;
    for (auto const row : inverse) size += bags.length(row);
    return size;
  }

  /// In a checked build, refuses rows that are no longer where `begin` found them.
  void check_rows(host_exec const& exec, char const* call, keyed_jagged_view<std::int64_t const> batch,
                  buffer<std::int64_t> const& slots) const;
  void check_rows_stay(host_exec const& exec, char const* call, char const* of, std::int64_t number, std::int64_t t,
                       vector_view<std::int64_t const> ids, std::int64_t const* slots) const;

 private:
  table_list tables_;
  std::vector<table_feature> features_;
  lookup_options lookup_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/embed/featured_tables.ipp>
#endif
