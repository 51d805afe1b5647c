// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup_backward.cuh>
#include <tessera/embed/device_table_group.cuh>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/expanded_saved.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_gradients.cuh>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/shared_bags.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/permute_keys.cuh>

namespace tessera {
inline namespace TESSERA_ABI {

/// What `device_tables` keeps of a batch from `begin` to the end of its backward. Its memory is kept from batch to batch, except for the
/// ids of kinds whose keys do not follow each other.
template <device_execution Exec>
struct device_tables_saved {
  /// What it keeps of the tables of one kind.
  struct kind {
    keyed_jagged<std::int64_t, std::int64_t, Exec> own;  ///< its keys, where they do not follow each other in the batch
    basic_lookup_saved<Exec> lookup;
  };

  inverse_keyed_jagged_view<std::int64_t const> batch;
  std::vector<kind> kinds;
  vector_view<matrix_view<float const> const> gradients;  ///< the caller's
  bool is_begun = false, is_finished = false, has_gradients = false;

  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& of : kinds) sum += of.own.bytes() + of.lookup.bytes();
    return sum;
  }

  /// Forgets the batch and keeps the memory.
  void clear() noexcept {
    batch = {};
    for (auto& of : kinds) of.lookup.clear();
    gradients = {};
    is_begun = is_finished = has_gradients = false;
  }
};

/// What `device_tables` prepares ahead: nothing.
struct nothing_prepared {};

/// The embedding source of a process that has all rows itself, on a device. The source is `local_tables` for tables of any kinds and dims
/// whose rows lie on the device, with an optimizer each.
///
///     basic_table_list<cuda_exec> tables;
///     tables.add(dense_table<float, cuda_exec>(exec, users, sgd{}), sgd{.learning_rate = 0.1F});
///     tables.add(bucket_table<bfloat16, cuda_exec, evict_lru>(exec, items, rowwise_adagrad{}), rowwise_adagrad{.learning_rate = 0.02F});
///     device_tables source(exec, std::move(tables), {{.name = "user", .table = 0}, {.name = "seen", .table = 1, .sequence = true}});
///
/// Feature k reads key k of a batch, and none pools by maximum. The content of views is in the device's memory: ids, offsets, weights,
/// inverses, outputs and gradients. Lists of matrices, `first_row` and `groups` are in the host's. A matrix of a sequence may have more
/// rows than its key has ids; those stay as they are, and add no gradient.
///
/// Tables of one kind, of one store and optimizer, share every launch. A kind whose keys do not follow each other in the batch reads a copy
/// of its ids (`permute_keys`). Each kind takes workspace for as many values as the batch has `room` for.
///
/// `synchronize()` reports invalid ids, offsets, inverses and sizes of sequences, as for lookups; it counts rows and positions within the
/// keys of a kind. Invalid ids read as zeros, and add no gradient. Calls wait for what their contracts name, and in these cases:
/// - a batch that does not say its `room`, at least once a kind for the number of its values;
/// - a kind with hundreds of features, for the list of them;
/// - evicted rows that are kept, for their number;
/// - expanded sums of batches in groups, in backwards, as `expand` waits, and once a hashed kind.
///
/// Between the forward and the backward of a batch, others may begin: table_options::batches_in_flight bounds their number for tables that
/// evict and for cached ones. When a call throws, no row has changed and the same ids have rows. Only where memory runs out in `begin`,
/// hashed tables have counted a batch, and new ids may have rows.
/// @post outputs and updates have the bits of `local_tables` on the host
template <device_execution Exec>
class device_tables {
 public:
  using execution_type = Exec;
  using saved_type = device_tables_saved<Exec>;
  using prepared_type = nothing_prepared;
  using gradients_type = basic_row_gradients<Exec>;

  /// `exec` serves `parts()` before the first step.
  /// @throws tessera::error invalid_argument for two tables of one id, and a feature that pools by maximum, or does not both read and learn.
  /// invalid_argument also where source ranks differ in the number of features or in their tables. out_of_range for a feature of no table.
  device_tables(Exec const& exec, basic_table_list<Exec> tables, std::vector<table_feature> features,
                local_tables_options const& options = {})
      : last_(exec), tables_(std::move(tables)), features_(std::move(features)), options_(options), kinds_(tables_.groups().size()) {
    detail::check_choice("device_tables", "out_of_range", options.lookup.out_of_range, out_of_range_ids::zero);
    detail::check_choice("device_tables", "sums", options.sums, shared_gradients::expanded);
    detail::check_features("device_tables", tables_, features_);
    detail::check_source_ranks("device_tables", vector_view<table_feature const>(features_), options.lookup.source_ranks);
    for (std::int64_t t = 0; t < table_count(); ++t) kinds_[tables_.group_number_of(t)].tables.push_back(t);
    for (std::size_t f = 0; f < features_.size(); ++f) {
      auto const& feature = features_[f];
      auto const key = static_cast<std::int64_t>(f);
      if (feature.is_largest())
        throw error(errc::invalid_argument, "device_tables: a maximum is pooled on the host alone", {{"feature", key}});
      if (!feature.reads || !feature.learns)
        throw error(errc::invalid_argument, "device_tables: a feature that reads or learns alone is one of the host", {{"feature", key}});
      auto& kind = kinds_[tables_.group_number_of(feature.table)];
      kind.keys.push_back(key);
      kind.features.push_back({tables_.number_of(feature.table), feature.pooling, feature.sequence, key});
      outputs_.push_back({feature.name, table(feature.table).dim, key, feature.sequence,
                          feature.sequence && options.sums == shared_gradients::expanded, feature.table, feature.pooling});
    }
  }

  vector_view<embedding_output const> outputs() const noexcept { return outputs_; }
  /// The features, in the order of the batch's keys.
  std::vector<table_feature> const& features() const noexcept { return features_; }
  local_tables_options const& options() const noexcept { return options_; }
  /// The number of tables.
  std::int64_t table_count() const noexcept { return tables_.size(); }
  /// The number of kinds of tables.
  std::int64_t group_count() const noexcept { return tables_.group_count(); }
  std::size_t bytes() const noexcept { return tables_.bytes(); }

  /// The options of table number t.
  table_options const& table(std::int64_t t) const noexcept { return tables_.options(t); }
  /// All tables, each a whole part. They are read and written through copies on the host, on the stream of the last step before this call;
  /// that synchronises. Of a `row_cache` it is the backing table, which listing or placing rows brings up to date. The parts refer to the
  /// tables, which stay where they are when the source moves. Parts must not outlive them.
  table_parts parts() {
    table_parts all;
    for (std::int64_t t = 0; t < table_count(); ++t) all.push_back(tables_.group_of(t).part(last_, tables_.number_of(t)));
    return all;
  }
  /// Table number t as what it is, and its optimizer, whose rate may change between steps.
  /// @throws tessera::error incompatible where the table is of another type, out_of_range where there is none.
  template <row_store Store>
  Store& store(std::int64_t t) {
    return tables_.template store<Store>("device_tables", t);
  }
  /// The optimizer of table number t, as above.
  template <row_optimizer Optimizer>
  Optimizer& optimizer(std::int64_t t) {
    return tables_.template optimizer<Optimizer>("device_tables", t);
  }

  /// Does nothing: ids are sorted on the stream of the backward.
  void prepare(Exec const&, batch_view const&, nothing_prepared&) const noexcept {}

  /// Finds the rows of all ids; hashed tables give new ids a row.
  /// @throws tessera::error shape_mismatch, and invalid_argument for what the host sees of a batch.
  void begin(Exec const& exec, batch_view const& batch, saved_type& saved) {
    saved.clear();
    check_batch(exec, "device_tables::begin", batch);
    bring_keys_together(exec, batch.sparse, saved);
    last_ = exec;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      auto& lookup = saved.kinds[k].lookup;
      group(k).locate(exec, kinds_[k].features, lookup.batch, lookup.slots);
    }
    saved.batch = batch.inverse_keyed();
    saved.is_begun = true;
  }
  void begin(Exec const& exec, batch_view const& batch, saved_type& saved, nothing_prepared&) { begin(exec, batch, saved); }

  void finish(Exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) const {
    check_begun("device_tables::finish", saved);
    read(exec, "device_tables::finish", saved.batch, saved, out);
    saved.is_finished = true;
  }

  void predict(Exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    check_batch(exec, "device_tables::predict", batch);
    saved_type found;
    bring_keys_together(exec, batch.sparse, found);
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      auto& lookup = found.kinds[k].lookup;
      group(k).find(exec, kinds_[k].features, lookup.batch, lookup.slots);
    }
    read(exec, "device_tables::predict", batch.inverse_keyed(), found, out);
  }

  void begin_backward(Exec const&, saved_type& saved, vector_view<matrix_view<float const> const> gradients) const {
    constexpr auto call = "device_tables::begin_backward";
    check_begun(call, saved);
    if (!saved.is_finished) throw error(errc::invalid_argument, std::string(call) + ": the forward is not finished");
    check_blocks(call, saved.batch, gradients);
    saved.gradients = gradients;
    saved.has_gradients = true;
  }

  /// Updates the rows: one step of every table, also of a table that the batch does not name.
  void finish_backward(Exec const& exec, saved_type& saved) {
    constexpr auto call = "device_tables::finish_backward";
    check_step(call);
    with_gradients(exec, call, saved, [&](lookups const& of_kinds, matrices const& gradients) {
      last_ = exec;
      update_from(0, exec, call, of_kinds, gradients);
    });
    saved.has_gradients = false;
  }

  /// Sums the gradients of rows. It waits for the number of rows, once a kind.
  void gradients(Exec const& exec, saved_type const& saved, gradients_type& sum) const {
    with_gradients(exec, "device_tables::gradients", saved, [&](lookups const& of_kinds, matrices const& gradients) {
      std::vector<std::int64_t> rows(static_cast<std::size_t>(table_count()));
      sum_from(0, exec, of_kinds, gradients, rows, sum);
    });
  }

  /// Makes one step of every table with these gradients. As `update_rows`, it passes over slots that a table does not have.
  /// @throws tessera::error shape_mismatch.
  void apply(Exec const& exec, gradients_type const& sum) {
    constexpr auto call = "device_tables::apply";
    check_step(call);
    detail::check_row_gradients(
        call, table_count(), [&](std::int64_t t) { return table(t).dim; },
        [&](std::int64_t t) { return tables_.group_of(t).slot_bound(tables_.number_of(t)); }, sum);
    last_ = exec;
    for (auto const& group : tables_.groups()) group->count_step();
    for (std::int64_t t = 0; t < table_count(); ++t) tables_.group_of(t).apply(exec, tables_.number_of(t), t, sum.slots(t), sum.values(t));
  }

 private:
  using lookups = std::vector<basic_lookup_saved<Exec> const*>;  // (kinds,): of the rows that gradients are of
  using matrices = std::vector<matrix_view<float const>>;        // (keys,)

  // The tables and the keys of one kind.
  struct kind_of_tables {
    std::vector<std::int64_t> tables, keys;       // ascending
    std::vector<detail::group_feature> features;  // (keys,)

    bool keys_follow_each_other() const noexcept {
      return keys.empty() || keys.back() - keys.front() + 1 == static_cast<std::int64_t>(keys.size());
    }
    template <class Matrix>
    std::vector<Matrix> of_keys(std::vector<Matrix> const& of_all) const {
      std::vector<Matrix> result;
      for (auto const key : keys) result.push_back(of_all[static_cast<std::size_t>(key)]);
      return result;
    }
    // Groups of a batch as its keys of this kind are in them.
    std::vector<row_group> groups_of(inverse_keyed_jagged_view<std::int64_t const> batch) const {
      std::vector<row_group> result;
      std::int64_t first = 0;
      for (auto const& group : batch.groups) {
        auto const count =
            std::count_if(keys.begin(), keys.end(), [&](auto key) { return key >= group.first_key && key < group.first_key + group.keys; });
        if (count > 0) result.push_back({first, count, group.inverse});
        first += count;
      }
      return result;
    }
  };

  detail::device_table_group<Exec>& group(std::size_t kind) const noexcept { return *tables_.groups()[kind]; }
  bool sums_expanded(inverse_keyed_jagged_view<std::int64_t const> batch) const noexcept {
    return options_.sums == shared_gradients::expanded && !batch.groups.empty();
  }
  void check_begun(char const* call, saved_type const& saved) const {
    if (!saved.is_begun || saved.kinds.size() != kinds_.size())
      throw error(errc::invalid_argument, std::string(call) + ": nothing is saved: no begin of this source went before, or it threw");
  }
  // Rates may have changed, and rows may have more columns than a device updates.
  void check_step(char const* call) const {
    for (auto const& group : tables_.groups()) group->check_optimizers(call);
    for (std::int64_t t = 0; t < table_count(); ++t) detail::check_updated_columns(call, t, table(t).dim);
  }
  void check_batch(Exec const& exec, char const* call, batch_view const& batch) const {
    detail::check_keys(call, features_, batch.inverse_keyed(), options_.lookup.source_ranks);
    detail::validate_batch(exec, batch.sparse);
  }
  // How many ids a sequence has, the device alone knows.
  template <class Matrix>
  void check_blocks(char const* call, inverse_keyed_jagged_view<std::int64_t const> batch, vector_view<Matrix const> blocks) const {
    if (blocks.size() != outputs().size())
      throw error(errc::shape_mismatch, std::string(call) + ": one block an output",
                  {{"outputs", outputs_.size()}, {"blocks", blocks.size()}});
    for (std::int64_t key = 0; key < blocks.size(); ++key) {
      auto const& output = outputs()[key];
      auto const rows = output.sequence ? blocks[key].rows() : detail::pooled_vectors(batch, key, options_.lookup.source_ranks);
      detail::check_lookup_matrix(call, key, rows, output.width, blocks[key]);
    }
  }

  void bring_keys_together(Exec const& exec, keyed_jagged_view<std::int64_t const> batch, saved_type& saved) const {
    saved.kinds.resize(kinds_.size());
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      auto const& keys = kinds_[k].keys;
      auto& of = saved.kinds[k];
      bool const in_place = kinds_[k].keys_follow_each_other();
      of.own = in_place ? keyed_jagged<std::int64_t, std::int64_t, Exec>() : permute_keys(exec, batch, keys);
      of.lookup.batch = in_place ? batch.slice_keys(keys.empty() ? 0 : keys.front(), static_cast<std::int64_t>(keys.size()))
                                 : std::as_const(of.own).view();
      of.lookup.source_ranks = options_.lookup.source_ranks;  // each has as many keys of the kind
    }
  }

  // All outputs; then what was pooled once for several samples is expanded.
  void read(Exec const& exec, char const* call, inverse_keyed_jagged_view<std::int64_t const> batch, saved_type const& found,
            vector_view<matrix_view<float> const> out) const {
    check_blocks(call, batch, out);
    detail::shared_bags<Exec> const shared(exec, batch, vector_view<table_feature const>(features_),
                                           [&](std::int64_t key) { return out[key].columns(); });
    std::vector<matrix_view<float>> to(out.begin(), out.end());
    shared.put_into(vector_view<matrix_view<float>>(to));
    for (std::size_t k = 0; k < kinds_.size(); ++k)
      group(k).read(exec, kinds_[k].features, found.kinds[k].lookup, kinds_[k].of_keys(to), options_.lookup);
    shared.expand(exec, batch.samples, out);
  }

  // Calls f(lookups, gradients of their rows): of the distinct rows, or of the expanded batch.
  template <class F>
  void with_gradients(Exec const& exec, char const* call, saved_type const& saved, F const& f) const {
    check_begun(call, saved);
    if (!saved.has_gradients) throw error(errc::invalid_argument, std::string(call) + ": the backward has not begun");
    auto const batch = saved.batch;
    matrices gradients(saved.gradients.begin(), saved.gradients.end());
    lookups of_kinds;
    for (auto const& of : saved.kinds) of_kinds.push_back(&of.lookup);
    if (sums_expanded(batch)) {
      std::vector<detail::expanded_saved<Exec>> expanded;
      expanded.reserve(kinds_.size());
      for (std::size_t k = 0; k < kinds_.size(); ++k) {
        auto const groups = kinds_[k].groups_of(batch);
        if (groups.empty()) continue;
        auto const& lookup = saved.kinds[k].lookup;
        expanded.push_back(detail::expanded_saved<Exec>::of(exec, {lookup.batch, groups, batch.samples},
                                                            group(k).slots_are_ids() ? nullptr : lookup.slots.data(), lookup.source_ranks));
        of_kinds[k] = &expanded.back().get();
      }
      return f(of_kinds, gradients);
    }
    detail::shared_bags<Exec> const shared(exec, batch, vector_view<table_feature const>(features_),
                                           [&](std::int64_t key) { return saved.gradients[key].columns(); });
    shared.merge(exec, batch.samples, saved.gradients);
    shared.put_into(vector_view<matrix_view<float const>>(gradients));
    f(of_kinds, gradients);
  }

  // Kinds from number k on. They nest: each takes its memory, then the next does, and nothing changes before the last one has its own.
  void update_from(std::size_t k, Exec const& exec, char const* call, lookups const& of_kinds, matrices const& gradients) {
    if (k == kinds_.size()) return;
    group(k).update(exec, call, kinds_[k].features, *of_kinds[k], kinds_[k].of_keys(gradients),
                    [&] { update_from(k + 1, exec, call, of_kinds, gradients); });
  }
  void sum_from(std::size_t k, Exec const& exec, lookups const& of_kinds, matrices const& gradients, std::vector<std::int64_t>& rows,
                gradients_type& sum) const {
    if (k == kinds_.size())
      return sum.resize(
          exec, table_count(), [&](std::int64_t t) { return rows[static_cast<std::size_t>(t)]; },
          [&](std::int64_t t) { return table(t).dim; });
    detail::group_gradients<Exec> out(kinds_[k].tables, rows, sum, [&] { sum_from(k + 1, exec, of_kinds, gradients, rows, sum); });
    group(k).sum(exec, kinds_[k].features, *of_kinds[k], kinds_[k].of_keys(gradients), out);
  }

  Exec last_;  // that of the last call that changed tables
  basic_table_list<Exec> tables_;
  std::vector<table_feature> features_;
  local_tables_options options_;
  std::vector<kind_of_tables> kinds_;
  std::vector<embedding_output> outputs_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
