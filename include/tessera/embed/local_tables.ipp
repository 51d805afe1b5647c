// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/embed/local_tables.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE local_tables::local_tables(table_list tables, std::vector<table_feature> features, local_tables_options const& options)
    : tables_(std::move(tables), std::move(features), options.lookup), options_(options) {
  detail::check_choice("local_tables", "sums", options.sums, shared_gradients::expanded);
  for (auto const& feature : tables_.features())
    outputs_.push_back({feature.name, table(feature.table).dim, static_cast<std::int64_t>(outputs_.size()), feature.sequence,
                        feature.sequence && options.sums == shared_gradients::expanded, feature.table, feature.pooling});
}

TESSERA_INLINE void local_tables::prepare(host_exec const& exec, batch_view const& batch, row_order& order) const {
  order.clear();
  if (!tables_.all_slots_are_ids() || sums_expanded(batch.inverse_keyed())) return;
  tables_.check_batch(exec, "local_tables::prepare", batch);
  tables_.sort(exec, batch.sparse, nullptr, order);
}

TESSERA_INLINE void local_tables::begin(host_exec const& exec, batch_view const& batch, local_tables_saved& saved) {
  saved.clear();
  tables_.check_batch(exec, "local_tables::begin", batch);
  if (!tables_.all_slots_are_ids()) tables_.locate(exec, batch.sparse, saved.slots);
  saved.batch = batch.inverse_keyed();
  saved.is_begun = true;
}

TESSERA_INLINE void local_tables::begin(host_exec const& exec, batch_view const& batch, local_tables_saved& saved, row_order& prepared) {
  begin(exec, batch, saved);
  std::swap(saved.order, prepared);
  prepared.clear();
  if (saved.order.ready() && !is_order_of(exec, saved.order, batch.sparse)) {
    auto const values = saved.order.values();
    saved.clear();
    throw error(errc::shape_mismatch, "local_tables::begin: the order was prepared for another batch",
                {{"values", batch.sparse.size()}, {"values of the order", values}});
  }
}

TESSERA_INLINE void local_tables::finish(host_exec const& exec, local_tables_saved& saved,
                                         vector_view<matrix_view<float> const> out) const {
  check_begun("local_tables::finish", saved);
  tables_.read(exec, "local_tables::finish", saved.batch, saved.slots.data(), out, &saved.argmax);
  saved.is_finished = true;
}

TESSERA_INLINE void local_tables::predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
  tables_.check_batch(exec, "local_tables::predict", batch);
  buffer<std::int64_t> slots;
  if (!tables_.all_slots_are_ids()) tables_.find(exec, batch.sparse, slots);
  tables_.read(exec, "local_tables::predict", batch.inverse_keyed(), slots.data(), out, nullptr);
}

TESSERA_INLINE void local_tables::begin_backward(host_exec const& exec, local_tables_saved& saved,
                                                 vector_view<matrix_view<float const> const> gradients) const {
  constexpr auto call = "local_tables::begin_backward";
  check_begun(call, saved);
  if (!saved.is_finished) throw error(errc::invalid_argument, std::string(call) + ": the forward is not finished");
  tables_.check_outputs(call, saved.batch, gradients, sums_expanded(saved.batch));
  tables_.check_rows(exec, call, saved.batch.distinct, saved.slots);
  saved.gradients = gradients;
  saved.scales = {};
  saved.has_gradients = true;
}

TESSERA_INLINE void local_tables::begin_scaled_backward(host_exec const& exec, local_tables_saved& saved,
                                                        vector_view<matrix_view<float const> const> gradients,
                                                        vector_view<float const> scales) const {
  begin_backward(exec, saved, gradients);
  if (scales.size() == saved.batch.distinct.size() && !sums_expanded(saved.batch)) {
    saved.scales = scales;
    return;
  }
  saved.has_gradients = false;
  throw error(errc::shape_mismatch, "local_tables::begin_scaled_backward: one scale a value, of gradients that are summed merged",
              {{"values", saved.batch.distinct.size()}, {"scales", scales.size()}});
}

TESSERA_INLINE void local_tables::finish_backward(host_exec const& exec, local_tables_saved& saved) {
  constexpr auto call = "local_tables::finish_backward";
  tables_.check_optimizers(call);
  with_contributions(exec, call, saved, [&](detail::batch_contributions const& contributions, auto const& sorted) {
    auto const places = tables_.places_of_tables(exec);
    detail::row_sums sums(exec, places.view(), sorted, contributions);
    tables_.count_step();
    sums.for_each(exec, detail::summed_rows_sink([&](std::int64_t t, detail::summed_rows const& rows) { tables_.update(t, rows); }));
  });
  saved.has_gradients = false;
}

TESSERA_INLINE void local_tables::gradients(host_exec const& exec, local_tables_saved const& saved, row_gradients& sum) const {
  with_contributions(exec, "local_tables::gradients", saved, [&](detail::batch_contributions const& contributions, auto const& sorted) {
    auto const places = tables_.places_of_tables(exec);
    detail::sum_sorted_rows(exec, places.view(), sorted, contributions, sum);
  });
}

TESSERA_INLINE void local_tables::apply(host_exec const& exec, row_gradients const& sum) {
  constexpr auto call = "local_tables::apply";
  tables_.check_optimizers(call);
  check_sums(exec, call, sum);
  detail::visit_summed_rows(
      exec, sum, [&] { tables_.count_step(); },
      detail::summed_rows_sink([&](std::int64_t t, detail::summed_rows const& rows) { tables_.update(t, rows); }));
}

TESSERA_INLINE void local_tables::check_sums(host_exec const& exec, char const* call, row_gradients const& sum) const {
  detail::check_row_gradients(
      call, table_count(), [&](std::int64_t t) { return table(t).dim; }, [&](std::int64_t t) { return tables_.slot_bound(t); }, sum);
  if constexpr (checked)
    for (std::int64_t t = 0; t < table_count(); ++t) tables_.check_rows_stay(exec, call, "table", t, t, sum.ids(t), sum.slots(t).data());
}

TESSERA_INLINE bool local_tables::is_order_of(host_exec const& exec, row_order const& order,
                                              keyed_jagged_view<std::int64_t const> batch) const {
  if (order.values() != batch.size()) return false;
  if constexpr (checked) {
    row_order expected;
    tables_.sort(exec, batch, nullptr, expected);
    return order.first_difference(expected) < 0;
  }
  return true;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
