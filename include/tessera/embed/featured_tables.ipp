// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/embed/featured_tables.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE featured_tables::featured_tables(table_list tables, std::vector<table_feature> features, lookup_options const& lookup)
    : tables_(std::move(tables)), features_(std::move(features)), lookup_(lookup) {
  check_choice("local_tables", "out_of_range", lookup.out_of_range, out_of_range_ids::zero);
  check_features("local_tables", tables_, features_of_keys());
  check_source_ranks("local_tables", features_of_keys(), lookup.source_ranks);
}

TESSERA_INLINE table_parts featured_tables::parts() {
  table_parts all;
  for (std::int64_t t = 0; t < table_count(); ++t) all.push_back(group_of(t).part(number_of(t)));
  return all;
}

TESSERA_INLINE buffer<row_places> featured_tables::places_of_tables(host_exec const& exec) const {
  buffer<row_places> places(exec, table_count());
  for (std::int64_t t = 0; t < table_count(); ++t) places[t] = group_of(t).places(number_of(t));
  return places;
}

TESSERA_INLINE void featured_tables::locate(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch,
                                            buffer<std::int64_t>& slots) {
  check_ids(batch);
  slots.resize(exec, batch.size());
  std::fill(slots.begin(), slots.end(), std::int64_t{-1});
  for (auto& group : tables_.groups()) group->begin_batch();
  for (auto const pass : {locate_pass::held, locate_pass::rest})
    for_each_hashed_key(batch, slots, [&](std::int64_t t, auto ids, auto to) { group_of(t).locate(exec, number_of(t), ids, to, pass); });
}

TESSERA_INLINE void featured_tables::find(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch,
                                          buffer<std::int64_t>& slots) const {
  slots.resize(exec, batch.size());
  std::fill(slots.begin(), slots.end(), std::int64_t{-1});
  for_each_hashed_key(batch, slots, [&](std::int64_t t, auto ids, auto to) { group_of(t).find(exec, number_of(t), ids, to); });
}

TESSERA_INLINE void featured_tables::sort(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
                                          row_order& order) const {
  buffer<std::int64_t> bounds(exec, table_count()), table_of_key(exec, batch.keys);
  buffer<std::int64_t const*> slots_of_key(exec, batch.keys);
  for (std::int64_t t = 0; t < table_count(); ++t) bounds[t] = slot_bound(t);
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    table_of_key[key] = features_[static_cast<std::size_t>(key)].learns ? table_of(key) : -1;
    slots_of_key[key] = slots_of(key, batch, slots);
  }
  order.sort(exec, {batch, table_of_key.view(), bounds.view(), slots_of_key.view(), lookup_.source_ranks});
}

TESSERA_INLINE void featured_tables::read(host_exec const& exec, char const* call, inverse_keyed_jagged_view<std::int64_t const> batch,
                                          std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                                          pooled_argmax* argmax) const {
  check_outputs(call, batch, out, false);
  shared_bags<host_exec> const shared(exec, batch, features_of_keys(), [&](std::int64_t key) { return out[key].columns(); });
  buffer<matrix_view<float>> to(exec, batch.keys());
  for (std::int64_t key = 0; key < batch.keys(); ++key) to[key] = out[key];
  shared.put_into(to.view());
  auto const rows = batch.distinct;
  if (argmax != nullptr) argmax->resize(exec, features_of_keys(), rows, [&](std::int64_t key) { return to[key].columns(); });
  bool const is_large = exceeds_caches(to.view());
  auto const places = places_of_tables(exec);
  auto const size = [&](std::int64_t key) {
    if (!features_[static_cast<std::size_t>(key)].reads) return std::int64_t{0};
    return features_[static_cast<std::size_t>(key)].sequence ? rows.key(key).size() : rows.rows(key);
  };
  auto const grain = [&](std::int64_t key) {
    return features_[static_cast<std::size_t>(key)].sequence
               ? values_per_piece
               : bags_per_piece(rows.rows(key), rows.key(key).size(), places[table_of(key)].row_bytes);
  };
  for_each_piece_of(exec, batch.keys(), size, grain, [&](std::int64_t key, std::int64_t first, std::int64_t last) {
    auto const& feature = features_[static_cast<std::size_t>(key)];
    auto const& group = group_of(feature.table);
    auto const* const of_key = slots_of(key, rows, slots);
    if (feature.sequence)
      group.read(number_of(feature.table), value_request_of(key, rows, of_key, is_large, lookup_, to[key]), first, last);
    else
      group.pool(number_of(feature.table), bag_request_of(key, rows, of_key, feature.pooling, is_large, argmax, lookup_, to[key]), first,
                 last);
  });
  shared.expand(exec, batch.samples, out);
}

TESSERA_INLINE void featured_tables::check_batch(host_exec const& exec, char const* call, batch_view const& batch) const {
  check_keys(call, features_of_keys(), batch.inverse_keyed(), lookup_.source_ranks);
  validate_batch(exec, batch.sparse);
  if (!batch.groups.empty()) check_inverse_rows(exec, batch.inverse_keyed());
  for (std::int64_t key = 0; key < batch.sparse.keys; ++key)
    if (features_[static_cast<std::size_t>(key)].is_largest() && batch.sparse.weighted())
      throw error(errc::invalid_argument, std::string(call) + ": a maximum is of an unweighted batch", {{"feature", key}});
}

TESSERA_INLINE void featured_tables::check_ids(keyed_jagged_view<std::int64_t const> batch) const {
  if (lookup_.out_of_range != out_of_range_ids::refuse) return;
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    if (is_hashed(key)) continue;
    auto const bags = batch.key(key);
    auto const rows = static_cast<std::uint64_t>(table(table_of(key)).rows);
    for (std::int64_t row = 0; row < bags.rows; ++row)
      for (auto p = bags.begin_of(row); p < bags.end_of(row); ++p)
        if (static_cast<std::uint64_t>(bags.values[p]) >= rows)
          throw error(errc::out_of_range, "local_tables: id out of range",
                      {{"feature", key},
                       {"table", table(table_of(key)).id.value},
                       {"row", row},
                       {"position", p - bags.begin_of(row)},
                       {"id", bags.values[p]},
                       {"rows", table(table_of(key)).rows}});
  }
}

TESSERA_INLINE void featured_tables::check_rows(host_exec const& exec, char const* call, keyed_jagged_view<std::int64_t const> batch,
                                                buffer<std::int64_t> const& slots) const {
  if constexpr (checked)
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      auto const bags = batch.key(key);
      if (!is_hashed(key) || bags.rows == 0) continue;
      check_rows_stay(exec, call, "feature", key, table_of(key), {bags.values + bags.offsets[0], bags.size()},
                      slots.data() + (bags.offsets[0] - first_value(batch)));
    }
}

TESSERA_INLINE void featured_tables::check_rows_stay(host_exec const& exec, char const* call, char const* of, std::int64_t number,
                                                     std::int64_t t, vector_view<std::int64_t const> ids, std::int64_t const* slots) const {
  auto const find = [&](auto some, auto found) { group_of(t).find(exec, number_of(t), some, found); };
  detail::check_rows_stay(exec, call, of, number, find, ids, slots);
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
