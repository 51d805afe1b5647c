// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/expanded_lookup.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_update.hpp>
#include <tessera/embed/sequence_lookup.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>
#include <tessera/embed/update_rows.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/feature_interaction.hpp>
#include <tessera/train/session_parts.hpp>
#include <tessera/train/session_pooling.hpp>
#include <tessera/train/session_sequences.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A click model that also pools sequences: the first keys of a batch, in groups, each group's rows put together and made one vector by
/// `Pooling`; the other keys are bags, as in `click_model`. Where a batch's repeated rows are there once, lookups and poolings run once a
/// distinct row, and what they pool is expanded (RecD, Section 5). Holds parameters only. Move-only.
template <row_store Store, gemm_policy Gemm, feature_interaction Interaction, session_pooling Pooling>
class session_model {
 public:
  using store = Store;
  using interaction_type = Interaction;
  using pooling_type = Pooling;
  using saved_type = session_model_saved<Interaction, Pooling>;

  /// Takes over the tables, all of one dim: first those of the sequences, then those of bags alone. Where a feature reads a table of the
  /// sequences, as a target that its history is compared with, a row's gradients of both are summed before its one update, and a step is two
  /// batches to a table that evicts (table_options::batches_in_flight).
  ///
  /// Keys of a batch: those of the groups in their order, then one a feature: key k behind the sequences is of feature `keys[k]`, of feature k
  /// where there are no `keys`, so that what a batch has in groups changes no model. Readers whose groups are others give keys in another
  /// order, which nothing here can see; those that share an id pipeline have the same. A group's keys are one group of the batch, or have a
  /// row a sample. @throws tessera::error shape_mismatch, invalid_argument, out_of_range.
  session_model(host_exec const& exec, click_model_options const& options, std::vector<Store> tables,
                std::vector<sequence_group<Pooling>> groups, std::vector<pooled_feature> features,
                typename Interaction::options const& interaction = {}, pooled_rows rows = pooled_rows::distinct,
                std::vector<std::int64_t> keys = {}, Gemm policy = {})
      : sums_(options.sums),
        expands_(rows == pooled_rows::expanded || options.sums == shared_gradients::expanded),
        tables_(std::move(tables)),
        groups_(std::move(groups)),
        features_(std::move(features)),
        feature_of_key_(std::move(keys)),
        net_(exec, options, group_count() + static_cast<std::int64_t>(features_.size()), check_tables(), interaction, policy) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      poolings_.emplace_back(exec, groups_[g].pooling, dim(), options.seed, static_cast<std::uint32_t>(first_pooling_stream + g));
      pooling_names_.push_back("pooling." + std::to_string(g));
    }
    detail::check_choice("session_model", "rows", rows, pooled_rows::expanded);
  }

  std::int64_t dim() const noexcept { return net_.dim(); }
  shared_gradients sums() const noexcept { return sums_; }
  /// Vectors that meet: the bottom's where there are dense features, one a group, one a pooled feature.
  std::int64_t vector_count() const noexcept { return net_.vector_count(); }
  /// Keys of a batch.
  std::int64_t key_count() const noexcept { return sequence_keys() + static_cast<std::int64_t>(features_.size()); }
  std::size_t bytes() const noexcept {
    auto sum = net_.bytes();
    for (auto const& pooling : poolings_) sum += pooling.bytes();
    for (auto const& table : tables_) sum += table.bytes();
    return sum;
  }
  std::vector<Store>& tables() noexcept { return tables_; }
  std::vector<Store> const& tables() const noexcept { return tables_; }
  std::vector<sequence_group<Pooling>> const& sequence_groups() const noexcept { return groups_; }
  /// Pooled as bags, of the keys behind the sequences.
  std::vector<pooled_feature> const& features() const noexcept { return features_; }

  /// The table that each key of a batch reads.
  std::vector<std::int64_t> tables_of_keys() const {
    auto all = sequence_features_;
    for (auto const& feature : key_features_) all.push_back(feature.table);
    return all;
  }

  /// The dense parameters, a block each of the bottom, the interaction, the top and every group's pooling; some may be empty.
  std::vector<parameter_group> groups() noexcept {
    auto const dense = net_.groups();
    std::vector<parameter_group> all(dense.begin(), dense.end());
    for (std::size_t g = 0; g < poolings_.size(); ++g) all.push_back({pooling_names_[g], poolings_[g].parameters()});
    return all;
  }
  std::int64_t parameter_count() const noexcept {
    auto sum = net_.parameter_count();
    for (auto const& pooling : poolings_) sum += pooling.parameters().size();
    return sum;
  }
  /// All dense parameters by name, for checkpoints.
  std::vector<parameter_block> blocks() {
    auto all = net_.blocks();
    for (std::size_t g = 0; g < poolings_.size(); ++g)
      for (auto& block : poolings_[g].blocks(pooling_names_[g])) all.push_back(std::move(block));
    return all;
  }

  /// Logits of a batch, (samples,), for training. They live in `saved`. @throws tessera::error shape_mismatch for a batch of another shape, or
  /// whose rows of one group's keys are not shared by all of them; and as the lookups.
  template <execution Exec>
  vector_view<float> forward(Exec const& exec, batch_view const& batch, saved_type& saved) {
    lay_out(exec, batch, saved);
    auto const pooled = blocks_of_keys(exec, net_.vectors(saved));
    auto bags = pooled_tables(tables_), singles = sequence_tables(tables_);
    stopwatch watch;
    deduplicated_lookup(exec, bags, own_features_, pooled_keys(batch, saved), pooled.view(), saved.lookup);
    saved.times.pooled_lookup += watch.lap();
    look_up_sequences(exec, batch, saved, [&](vector_view<matrix_view<float> const> out) {
      sequence_lookup(exec, singles, sequence_features_, sequence_rows(batch), out, saved.sequence_lookup);
    });
    saved.times.sequence_lookup += watch.lap();
    for (std::int64_t g = 0; g < group_count(); ++g) {
      auto const sequences = saved.sequences[at(g)].get(dim());
      poolings_[at(g)].forward(exec, net_.policy(), sequences, target(net_.vectors(saved), g), block(net_.vectors(saved), vector_of(g)),
                               saved.pooled[at(g)]);
    }
    saved.times.pooling += watch.lap();
    auto const logits = net_.forward(exec, batch.dense, saved);
    saved.times.dense += watch.lap();
    return logits;
  }

  /// The same without changing the model. @throws as `forward`.
  template <execution Exec>
  vector_view<float> predict(Exec const& exec, batch_view const& batch, saved_type& saved) const {
    lay_out(exec, batch, saved);
    auto const pooled = blocks_of_keys(exec, net_.vectors(saved));
    auto const bags = pooled_tables(tables_), singles = sequence_tables(tables_);
    deduplicated_lookup(exec, bags, own_features_, pooled_keys(batch, saved), pooled.view());
    look_up_sequences(exec, batch, saved, [&](vector_view<matrix_view<float> const> out) {
      sequence_lookup(exec, singles, sequence_features_, sequence_rows(batch), out);
    });
    for (std::int64_t g = 0; g < group_count(); ++g)
      poolings_[at(g)].predict(exec, net_.policy(), saved.sequences[at(g)].get(dim()), target(net_.vectors(saved), g),
                               block(net_.vectors(saved), vector_of(g)));
    return net_.forward(exec, batch.dense, saved);
  }

  /// Gradients of the forward that filled `saved`: of the dense parameters into `gradient` (parameter_count(),), group after group; of the
  /// vectors into `saved`. `logit_gradient` (samples,) may be overwritten. @throws tessera::error shape_mismatch; invalid_argument where
  /// `update_rows` or `gradients_of_rows` came since that forward: their gradients take the memory of the sequences' vectors.
  template <execution Exec>
  void backward(Exec const& exec, saved_type& saved, vector_view<float> logit_gradient, vector_view<float> gradient) const {
    detail::check_model_backward("session_model", saved.logits.size(), logit_gradient.size(), gradient.size(), parameter_count());
    for (auto const& sequences : saved.sequences)
      if (!sequences.has_vectors)
        throw error(errc::invalid_argument, "session_model: gradients of rows took the place of the vectors; another forward comes first",
                    {{"group", &sequences - saved.sequences.data()}});
    stopwatch watch;
    std::int64_t next = 0;
    auto const take = [&](std::int64_t size) { return gradient.slice(std::exchange(next, next + size), size); };
    net_.backward(exec, saved, logit_gradient, take(net_.parameter_count()));
    auto const of_vectors = net_.vector_gradients(saved);
    saved.times.dense += watch.lap();
    for (std::int64_t g = 0; g < group_count(); ++g) {
      auto const& pooling = poolings_[at(g)];
      auto& sequences = saved.sequences[at(g)];
      sequences.gradients.resize(exec, sequences.size() * dim());
      pooling.backward(exec, net_.policy(), saved.pooled[at(g)], block(of_vectors, vector_of(g)), take(pooling.parameters().size()),
                       {sequences.gradients.data(), sequences.size(), dim()}, target(of_vectors, g));
    }
    saved.times.pooling += watch.lap();
  }

  /// Sorting ahead is for click models; `sorted` is then of no batch.
  void use_order(saved_type&, row_order& sorted) const noexcept { sorted.clear(); }

  /// Updates the rows that the forward read with the gradients that its backward left in `saved`; one optimizer for all tables, or a
  /// container of one a table. Those of bags first, then those of sequences: what runs out of memory in between has updated the former. Where
  /// a table is of both, all at once.
  template <execution Exec, class RowOptimizers>
  void update_rows(Exec const& exec, saved_type& saved, RowOptimizers const& optimizers) {
    auto const each = detail::per_table(optimizers);
    auto const part = [&](std::int64_t first, std::int64_t count) { return each.size() == 1 ? each : each.slice(first, count); };
    if (each.size() != 1 && each.size() != static_cast<std::int64_t>(tables_.size()))
      throw error(errc::shape_mismatch, "session_model: one optimizer, or one a table",
                  {{"tables", tables_.size()}, {"optimizers", each.size()}});
    stopwatch watch;
    if (first_pooled_table_ < sequence_table_count_) {
      gradients_of_rows(exec, saved, saved.rows);
      tessera::update_rows(exec, tables_, saved.rows, each);
      saved.times.sequence_update += watch.lap();
      return;
    }
    auto stores = pooled_tables(tables_);
    auto const gradients = pooled_gradients(exec, saved);
    if (!features_.empty())
      deduplicated_lookup_backward(exec, stores, own_features_, saved.lookup, gradients.view(), part(first_pooled_table_, stores.size()),
                                   {sums_});
    saved.times.pooled_update += watch.lap();
    auto of_sequences = sequence_tables(tables_);
    with_sequence_gradients(exec, of_sequences, saved, [&](lookup_saved const& lookup, auto matrices) {
      sequence_lookup_backward(exec, of_sequences, sequence_features_, lookup, matrices, part(0, sequence_table_count_));
    });
    saved.times.sequence_update += watch.lap();
  }

  /// The gradients of these rows instead of the update, to be clipped, added up or sent.
  template <execution Exec>
  void gradients_of_rows(Exec const& exec, saved_type& saved, row_gradients& out) const {
    auto const gradients = pooled_gradients(exec, saved);
    row_gradients of_sequences, spare;
    deduplicated_lookup_gradients(exec, tables_, key_features_, saved.lookup, gradients.view(), out, {sums_});
    with_sequence_gradients(exec, tables_, saved, [&](lookup_saved const& lookup, auto matrices) {
      sequence_lookup_gradients(exec, tables_, sequence_features_, lookup, matrices, of_sequences);
      add_row_gradients(exec, out, of_sequences, spare);
    });
  }

 private:
  static constexpr std::uint32_t first_pooling_stream = 16;  // behind those of bottom, top and interaction

  static constexpr std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }
  std::int64_t group_count() const noexcept { return static_cast<std::int64_t>(groups_.size()); }
  std::int64_t sequence_keys() const noexcept { return static_cast<std::int64_t>(sequence_features_.size()); }

  // Also sets apart the tables of sequences. Gives the dim of all.
  std::int64_t check_tables() {
    auto const dim = detail::dim_of_tables("session_model", tables_);
    auto const tables = static_cast<std::int64_t>(tables_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (auto const table : groups_[g].tables) {
        if (table < 0 || table >= tables)
          throw error(errc::out_of_range, "session_model: no such table", {{"group", g}, {"table", table}, {"tables", tables}});
        sequence_features_.push_back(table);
        sequence_table_count_ = std::max(sequence_table_count_, table + 1);
      }
      if (groups_[g].tables.empty()) throw error(errc::invalid_argument, "session_model: a group without features", {{"group", g}});
      if (detail::reads_target<Pooling>(groups_[g].pooling) &&
          (groups_[g].target < 0 || groups_[g].target >= static_cast<std::int64_t>(features_.size())))
        throw error(errc::out_of_range, "session_model: no such target",
                    {{"group", g}, {"target", groups_[g].target}, {"pooled features", features_.size()}});
    }
    first_pooled_table_ = sequence_table_count_;
    for (std::size_t f = 0; f < features_.size(); ++f) {
      if (features_[f].table < 0 || features_[f].table >= tables)
        throw error(errc::out_of_range, "session_model: no such table",
                    {{"feature", f}, {"table", features_[f].table}, {"tables", tables}});
      first_pooled_table_ = std::min(first_pooled_table_, features_[f].table);
    }
    order_keys();
    return dim;
  }

  void order_keys() {
    auto const count = features_.size();
    if (feature_of_key_.empty())
      for (std::size_t f = 0; f < count; ++f) feature_of_key_.push_back(static_cast<std::int64_t>(f));
    std::vector<bool> seen(count);
    for (auto const f : feature_of_key_) {
      if (feature_of_key_.size() != count || f < 0 || at(f) >= count || seen[at(f)])
        throw error(errc::invalid_argument, "session_model: a key for each pooled feature",
                    {{"keys", feature_of_key_.size()}, {"features", count}, {"feature", f}});
      seen[at(f)] = true;
      key_features_.push_back(features_[at(f)]);
      own_features_.push_back({features_[at(f)].table - first_pooled_table_, features_[at(f)].pooling});
    }
  }

  template <class Tables>
  auto sequence_tables(Tables& tables) const noexcept {
    return vector_view(tables).slice(0, sequence_table_count_);
  }
  template <class Tables>
  auto pooled_tables(Tables& tables) const noexcept {
    return vector_view(tables).slice(first_pooled_table_, static_cast<std::int64_t>(tables.size()) - first_pooled_table_);
  }

  std::int64_t vector_of(std::int64_t group) const noexcept { return net_.first_lookup() + group; }  // features' follow the last group's
  matrix_view<float> block(matrix_view<float> all, std::int64_t vector) const { return all.columns_from(vector * dim(), dim()); }
  // The vector of the feature that a group's pooling looks at.
  matrix_view<float> target(matrix_view<float> all, std::int64_t group) const {
    auto const& own = groups_[at(group)];
    return detail::reads_target<Pooling>(own.pooling) ? block(all, vector_of(group_count()) + own.target) : matrix_view<float>{};
  }
  template <execution Exec>
  auto pooled_gradients(Exec const& exec, saved_type& saved) const {
    return blocks_of_keys(exec, matrix_view<float const>(net_.vector_gradients(saved)));
  }
  // (keys behind the sequences,): the vectors of their features.
  template <execution Exec, class T>
  buffer<matrix_view<T>> blocks_of_keys(Exec const& exec, matrix_view<T> all) const {
    buffer<matrix_view<T>> blocks(exec, static_cast<std::int64_t>(feature_of_key_.size()));
    for (std::int64_t k = 0; k < blocks.size(); ++k)
      blocks[k] = all.columns_from((vector_of(group_count()) + feature_of_key_[at(k)]) * dim(), dim());
    return blocks;
  }

  void lay_out(host_exec const& exec, batch_view const& batch, saved_type& saved) const {
    detail::check_model_batch("session_model", batch.dense.columns(), net_.dense_features(), batch.sparse.keys, key_count());
    detail::check_groups("session_model", batch.inverse_keyed());
    for_each_group([&](std::int64_t g, std::int64_t key, std::int64_t keys) {
      if (g < batch.groups.size() && (batch.groups[g].first_key != key || batch.groups[g].keys != keys))
        throw error(errc::shape_mismatch, "session_model: the keys of a group are one group of the batch, or have a row a sample",
                    {{"group", g}, {"first key", key}, {"keys", keys}});
    });
    net_.resize(exec, batch.samples(), saved);
    saved.sequences.resize(groups_.size());
    saved.pooled.resize(groups_.size());
  }

  keyed_jagged_view<std::int64_t const> sequence_rows(batch_view const& batch) const { return batch.sparse.slice_keys(0, sequence_keys()); }

  // The keys behind the sequences, as a batch of their own.
  inverse_keyed_jagged_view<std::int64_t const> pooled_keys(batch_view const& batch, saved_type& saved) const {
    saved.pooled_groups.clear();
    for (auto g = group_count(); g < batch.groups.size(); ++g) {
      auto group = batch.groups[g];
      group.first_key -= sequence_keys();
      saved.pooled_groups.push_back(group);
    }
    return {batch.sparse.slice_keys(sequence_keys(), static_cast<std::int64_t>(features_.size())), saved.pooled_groups, batch.samples()};
  }

  // f(group, its first key, keys)
  template <class F>
  void for_each_group(F const& f) const {
    std::int64_t key = 0;
    for (std::int64_t g = 0; g < group_count(); ++g) {
      auto const keys = static_cast<std::int64_t>(groups_[at(g)].tables.size());
      f(g, key, keys);
      key += keys;
    }
  }

  // Looks up the sequences of all groups, by look_up(matrices of the keys), and puts each group's rows together.
  template <class Exec, class LookUp>
  void look_up_sequences(Exec const& exec, batch_view const& batch, saved_type& saved, LookUp const& look_up) const {
    if (groups_.empty()) return;
    saved.sequence_groups = {};
    buffer<matrix_view<float>> vectors(exec, sequence_keys());
    for_each_group([&](std::int64_t g, std::int64_t key, std::int64_t keys) {
      vector_view<std::int64_t const> inverse;
      if (g < batch.groups.size()) inverse = {batch.groups[g].inverse, batch.samples()};
      saved.sequences[at(g)].lay_out(exec, batch.sparse.slice_keys(key, keys), inverse, expands_, dim(), vectors.view().slice(key, keys));
    });
    look_up(vectors.view());
    for (auto& sequences : saved.sequences) sequences.put_together(exec, dim());
    saved.sequence_groups = batch.groups.slice(0, std::min(group_count(), batch.groups.size()));
  }

  // Calls f(lookup, gradients of its values, key by key): of the distinct rows, or of the expanded ones where their order is asked for.
  template <class Exec, class Stores, class F>
  void with_sequence_gradients(Exec const& exec, Stores const& stores, saved_type& saved, F const& f) const {
    if (groups_.empty()) return;
    if (saved.sequence_lookup.batch.keys != sequence_keys())
      throw error(errc::shape_mismatch, "session_model: nothing is saved: no forward went before, or it threw",
                  {{"keys", saved.sequence_lookup.batch.keys}, {"keys expected", sequence_keys()}});
    auto const hand_out = [&](lookup_saved const& lookup, bool sums) {
      buffer<matrix_view<float const>> gradients(exec, sequence_keys());
      for_each_group([&](std::int64_t g, std::int64_t key, std::int64_t keys) {
        saved.sequences[at(g)].hand_out(exec, lookup.batch.slice_keys(key, keys), sums, dim(), gradients.view().slice(key, keys));
      });
      f(lookup, vector_view<matrix_view<float const> const>(gradients.view()));
    };
    if (sums_ == shared_gradients::merged || saved.sequence_groups.empty()) return hand_out(saved.sequence_lookup, true);
    auto const expanded =
        expanded_lookup::of(exec, stores, {saved.sequence_lookup.batch, saved.sequence_groups, saved.logits.size()}, saved.sequence_lookup);
    hand_out(expanded.saved(), false);
  }

  shared_gradients sums_;
  bool expands_;  // sequences to a row a sample before they are pooled
  std::vector<Store> tables_;
  std::vector<sequence_group<Pooling>> groups_;
  std::vector<pooled_feature> features_;         // tables counted from the first
  std::vector<std::int64_t> sequence_features_;  // the table of each sequence key
  std::vector<std::int64_t> feature_of_key_;     // of the keys behind the sequences, as what follows
  std::vector<pooled_feature> key_features_;
  std::vector<pooled_feature> own_features_;  // tables counted from the first of bags
  std::int64_t sequence_table_count_ = 0, first_pooled_table_ = 0;
  click_net<Gemm, Interaction> net_;
  std::vector<Pooling> poolings_;
  std::vector<std::string> pooling_names_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
