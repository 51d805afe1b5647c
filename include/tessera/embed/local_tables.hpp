// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/expanded_saved.hpp>
#include <tessera/embed/featured_tables.hpp>
#include <tessera/embed/fused_backward.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_contributions.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_sums.hpp>
#include <tessera/embed/shared_bags.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/update_rows.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `local_tables` and `device_tables`.
///
/// A source with `lookup.source_ranks` above 1 reads batches that came from so many ranks: its features are those of rank 0, then the same
/// of rank 1, and so on. Keys of a batch without groups then have their own numbers of rows, and so have the outputs. In a batch with
/// groups every rank has batch.samples() samples; a rank of fewer points the others to an empty row.
struct local_tables_options {
  shared_gradients sums = shared_gradients::merged;  ///< of batches whose repeated rows are there once
  lookup_options lookup = {};
};

/// What `local_tables` keeps of a batch from `begin` to the end of its backward. Its memory is kept from batch to batch.
struct local_tables_saved {
  inverse_keyed_jagged_view<std::int64_t const> batch;
  buffer<std::int64_t> slots;                             ///< one a value of the batch, -1 where a dense table has it; empty: all are dense
  row_order order;                                        ///< where it was prepared
  detail::pooled_argmax argmax;                           ///< of features that pool by maximum
  vector_view<matrix_view<float const> const> gradients;  ///< the caller's
  vector_view<float const> scales;                        ///< likewise, of sequences' gradients; empty: all are 1
  bool is_begun = false, is_finished = false, has_gradients = false;

  std::size_t bytes() const noexcept { return slots.capacity_bytes() + order.bytes() + argmax.bytes(); }

  /// Forgets the batch and keeps the memory.
  void clear() noexcept {
    batch = {};
    order.clear();
    argmax.clear();
    gradients = {};
    scales = {};
    is_begun = is_finished = has_gradients = false;
  }
};

/// The embedding source of a process that has all rows itself: tables of any kinds and dims, with an optimizer each.
///
///     table_list tables;
///     tables.add(dense_table<>(exec, users, sgd{}), sgd{.learning_rate = 0.1F});
///     tables.add(hash_table<bfloat16, admit_all, evict_lru>(exec, items, rowwise_adagrad{}), rowwise_adagrad{.learning_rate = 0.02F});
///     local_tables source(std::move(tables), {{.name = "user", .table = 0}, {.name = "seen", .table = 1, .sequence = true}});
///
/// Feature k reads key k of a batch. Its output is that of `pooled_lookup`, a vector a sample, or that of `sequence_lookup`, a vector for
/// each id of the key's rows. The rows of a key in a row group are the distinct ones. Gradients of a sequence have the shape of its output;
/// where `sums` is expanded, that of the expanded batch. The bits are those of separate calls for each kind of table. All kinds share the
/// parallel regions of a call.
///
/// When a call throws, no row has changed and the same ids have rows. Only where memory runs out, new ids may have got rows.
class local_tables {
 public:
  using execution_type = host_exec;
  using saved_type = local_tables_saved;
  using prepared_type = row_order;
  using gradients_type = row_gradients;

  /// @throws tessera::error invalid_argument for two tables of one id, or features that are not as many of each source rank and of the
  /// same tables; out_of_range for a feature of no table.
  local_tables(table_list tables, std::vector<table_feature> features, local_tables_options const& options = {});

  vector_view<embedding_output const> outputs() const noexcept { return outputs_; }
  /// The features, in the order of the batch's keys.
  std::vector<table_feature> const& features() const noexcept { return tables_.features(); }
  local_tables_options const& options() const noexcept { return options_; }
  /// The number of tables.
  std::int64_t table_count() const noexcept { return tables_.table_count(); }
  /// The number of kinds of tables.
  std::int64_t group_count() const noexcept { return tables_.group_count(); }
  std::size_t bytes() const noexcept { return tables_.bytes(); }

  /// The options of table number t.
  table_options const& table(std::int64_t t) const noexcept { return tables_.table(t); }
  /// All tables, each a whole part. The parts refer to the tables, which stay where they are when the source moves. Parts must not outlive
  /// them.
  table_parts parts() { return tables_.parts(); }
  /// Finds the slots of ids of table number t; -1 where an id has no row. Shapes (ids,).
  void find(host_exec const& exec, std::int64_t t, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const {
    tables_.group_of(t).find(exec, tables_.number_of(t), ids, slots);
  }
  /// Table number t as what it is, and its optimizer, whose rate may change between steps.
  /// @throws tessera::error incompatible where the table is of another type, out_of_range where there is none.
  template <row_store Store>
  Store& store(std::int64_t t) {
    return tables_.list().store<Store>("local_tables", t);
  }
  /// The optimizer of table number t, as above.
  template <row_optimizer Optimizer>
  Optimizer& optimizer(std::int64_t t) {
    return tables_.list().optimizer<Optimizer>("local_tables", t);
  }

  /// Sorts the batch's ids by row. It does nothing where sums are expanded or a table is hashed: slots of a hashed table depend on earlier
  /// steps.
  void prepare(host_exec const& exec, batch_view const& batch, row_order& order) const;

  /// Finds the rows of all ids; hashed tables give new ids a row.
  /// @throws tessera::error shape_mismatch, invalid_argument as `pooled_lookup`; out_of_range for an id out of range where a table is
  /// hashed. Without hashed tables it is `finish` that throws for such an id, in the name of the lookup.
  void begin(host_exec const& exec, batch_view const& batch, local_tables_saved& saved);
  void begin(host_exec const& exec, batch_view const& batch, local_tables_saved& saved, row_order& prepared);

  void finish(host_exec const& exec, local_tables_saved& saved, vector_view<matrix_view<float> const> out) const;

  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const;

  void begin_backward(host_exec const& exec, local_tables_saved& saved, vector_view<matrix_view<float const> const> gradients) const;
  /// As above. The gradient of value p of a sequence counts scales[p] times, as that of a weighted bag counts for its values: with the bits
  /// of that bag. `scales` (values of the batch,) are from its first value on. @throws tessera::error shape_mismatch for another number.
  void begin_scaled_backward(host_exec const& exec, local_tables_saved& saved, vector_view<matrix_view<float const> const> gradients,
                             vector_view<float const> scales) const;

  /// Updates the rows: one step of every table, also of a table that the batch does not name.
  void finish_backward(host_exec const& exec, local_tables_saved& saved);

  /// As above, but of each table t with `goes_round[t]` the sums are in `sum` first, which has no rows of others. `go_round(sum)` may put
  /// other rows of these tables in their place, whose slots ascend. Where it throws, nothing is updated. @pre goes_round is (tables,)
  /// @throws tessera::error also as `apply`, for what it put there
  template <class GoRound>
  void finish_backward(host_exec const& exec, local_tables_saved& saved, std::vector<bool> const& goes_round, row_gradients& sum,
                       GoRound const& go_round) {
    constexpr auto call = "local_tables::finish_backward";
    tables_.check_optimizers(call);
    with_contributions(exec, call, saved, [&](detail::batch_contributions const& contributions, auto const& sorted) {
      auto const places = tables_.places_of_tables(exec);
      detail::row_sums sums(exec, places.view(), sorted, contributions);
      sums.write(exec, sum, &goes_round);
      go_round(sum);
      check_sums(exec, call, sum);
      auto const update = [&](std::int64_t t, detail::summed_rows const& rows) { tables_.update(t, rows); };
      detail::summed_rows_sink const sink(update);
      auto const update_others = [&] {
        tables_.count_step();
        sums.for_each(exec, sink, &goes_round);
      };
      detail::visit_summed_rows(exec, sum, update_others, sink);
    });
    saved.has_gradients = false;
  }

  void gradients(host_exec const& exec, local_tables_saved const& saved, row_gradients& sum) const;

  /// Makes one step of every table with these gradients. @throws tessera::error as `update_rows`.
  void apply(host_exec const& exec, row_gradients const& sum);

 private:
  bool sums_expanded(inverse_keyed_jagged_view<std::int64_t const> batch) const noexcept {
    return options_.sums == shared_gradients::expanded && !batch.groups.empty();
  }

  void check_sums(host_exec const& exec, char const* call, row_gradients const& sum) const;

  // A checked build compares all of it; others trust an order of as many values.
  bool is_order_of(host_exec const& exec, row_order const& order, keyed_jagged_view<std::int64_t const> batch) const;

  static void check_begun(char const* call, local_tables_saved const& saved) {
    if (!saved.is_begun) throw error(errc::invalid_argument, std::string(call) + ": nothing is saved: no begin went before, or it threw");
  }

  // Calls f(contributions, sorted positions) with what each position adds to its row: of the distinct rows, or of the expanded batch.
  template <class F>
  void with_contributions(host_exec const& exec, char const* call, local_tables_saved const& saved, F const& f) const {
    if (!saved.has_gradients) throw error(errc::invalid_argument, std::string(call) + ": the backward has not begun");
    auto const batch = saved.batch;
    if (sums_expanded(batch)) {
      auto const dim_of = [&](std::int64_t key) { return outputs_[static_cast<std::size_t>(key)].width; };
      auto expanded = detail::expanded_saved<host_exec>::of(exec, batch, tables_.all_slots_are_ids() ? nullptr : saved.slots.data());
      auto& of_samples = expanded.get();
      detail::expand_argmax(exec, tables_.features_of_keys(), batch, saved.argmax, dim_of, of_samples.batch, of_samples.argmax);
      return tables_.with_contributions(exec, of_samples.batch, of_samples.slots.data(), of_samples.argmax, of_samples.order,
                                        saved.gradients, nullptr, f);
    }
    detail::shared_bags<host_exec> const shared(exec, batch, tables_.features_of_keys(),
                                                [&](std::int64_t key) { return saved.gradients[key].columns(); });
    buffer<matrix_view<float const>> of_rows(exec, batch.keys());
    for (std::int64_t key = 0; key < batch.keys(); ++key) of_rows[key] = saved.gradients[key];
    shared.merge(exec, batch.samples, saved.gradients);
    shared.put_into(of_rows.view());
    tables_.with_contributions(exec, batch.distinct, saved.slots.data(), saved.argmax, saved.order, of_rows.view(),
                               saved.scales.empty() ? nullptr : saved.scales.data(), f);
  }

  detail::featured_tables tables_;
  local_tables_options options_;
  std::vector<embedding_output> outputs_;
};
static_assert(embedding_source<local_tables>);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/embed/local_tables.ipp>
#endif
