// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Every id of every feature to its slot, before any row is read. Where rows may leave, ids that have one come first, those of all keys: what
// one key brings in would else push out what another names. Which ids get which rows does not depend on how many ranks the samples are of.
template <bool Insert, class Stores, class Feature>
void locate_all(host_exec const& exec, Stores tables, vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch,
                buffer<std::int64_t>& slots, std::int64_t source_ranks) {
  if constexpr (Insert)
    for (auto& table : tables)
      if constexpr (requires { table.begin_batch(); }) table.begin_batch();
  slots.resize(exec, batch.size());
  auto const for_each_key = [&](auto const& f) {
    for_each_key_by_feature(batch.keys, source_ranks, [&](std::int64_t key) {
      auto const bags = batch.key(key);
      if (bags.rows == 0) return;
      vector_view<std::int64_t const> const ids{bags.values + bags.offsets[0], bags.size()};
      f(tables[table_of(features[key])], ids, slots.view().slice(bags.offsets[0] - first_value(batch), bags.size()));
    });
  };
  if constexpr (!Insert) {
    for_each_key([&](auto& table, auto ids, auto to) { table.find(exec, ids, to); });
  } else if constexpr (requires(vector_view<std::int64_t const> ids, vector_view<std::int64_t> to) {
                         tables.data()->locate_held(exec, ids, to);
                       }) {
    for_each_key([&](auto& table, auto ids, auto to) { table.locate_held(exec, ids, to); });
    for_each_key([&](auto& table, auto ids, auto to) { table.locate_new(exec, ids, to); });
  } else {
    for_each_key([&](auto& table, auto ids, auto to) { table.locate(exec, ids, to, {}); });
  }
}

struct locate_all_tag {};
// Likewise, all keys at once, in no order.
template <bool Insert, device_execution Exec, class Store, class Feature>
void locate_all(Exec const& exec, vector_view<Store> tables, vector_view<Feature const> features,
                keyed_jagged_view<std::int64_t const> batch, buffer<std::int64_t, Exec>& slots, std::int64_t = 1) {
  if constexpr (Insert)
    for (auto& table : tables)
      if constexpr (requires { table.begin_batch(); }) table.begin_batch();
  back_end<locate_all_tag, Exec>::template run<Insert>(exec, tables, features, batch, slots);
}

/// Locates a batch's ids, then calls `read(slots)`, which reads rows. It fills `saved` only when nothing has thrown. @pre `saved` is clear,
/// so that it fits no batch after an exception
template <execution Exec, class Store, class Feature, class Read>
void training_lookup(Exec const& exec, vector_view<Store> tables, vector_view<Feature const> features,
                     keyed_jagged_view<std::int64_t const> batch, lookup_options const& options, basic_lookup_saved<Exec>& saved,
                     Read const& read) {
  if constexpr (!Store::slots_are_ids) locate_all<true>(exec, tables, features, batch, saved.slots, options.source_ranks);
  read(slots_in<Store>(batch, saved.slots));
  saved.batch = batch;
  saved.source_ranks = options.source_ranks;
}

template <execution Exec, class Store, class Feature, class Read>
void evaluation_lookup(Exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features,
                       keyed_jagged_view<std::int64_t const> batch, Read const& read) {
  basic_lookup_saved<Exec> local{batch, {}, {}};
  if constexpr (!Store::slots_are_ids) locate_all<false>(exec, tables, features, batch, local.slots, 1);
  read(local.template slots_of<Store>());
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
