// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The table of a feature, which names it or is its number.
template <class Feature>
constexpr std::int64_t table_of(Feature const& feature) noexcept {
  if constexpr (requires { feature.table; })
    return feature.table;
  else
    return feature;
}

/// The number by which errors name the feature of a key: its own where it has one, else that of the key.
template <class Feature>
constexpr std::int64_t feature_number(Feature const& feature, std::int64_t key) noexcept {
  if constexpr (requires { feature.number; })
    return feature.number;
  else
    return key;
}

/// Checks that features are those of so many source ranks, which read the same tables.
template <class Feature>
void check_source_ranks(char const* call, vector_view<Feature const> features, std::int64_t source_ranks) {
  if (source_ranks < 1 || features.size() % source_ranks != 0)
    throw error(errc::invalid_argument, std::string(call) + ": as many keys a source rank",
                {{"keys", features.size()}, {"source ranks", source_ranks}});
  auto const each = features.size() / source_ranks;
  for (auto key = each; key < features.size(); ++key)
    if (auto const table = table_of(features[key]), first = table_of(features[key % each]); table != first)
      throw error(errc::invalid_argument, std::string(call) + ": source ranks that read other tables",
                  {{"feature", key}, {"table", table}, {"table of the first rank", first}, {"source ranks", source_ranks}});
}

/// Calls f(key) for all keys: for feature 0 of all source ranks, then for feature 1, and so on. Ids then come in the order of one batch
/// that has the samples of all ranks.
template <class F>
void for_each_key_by_feature(std::int64_t keys, std::int64_t source_ranks, F const& f) {
  auto const each = keys / source_ranks;
  for (std::int64_t feature = 0; feature < each; ++feature)
    for (auto key = feature; key < keys; key += each) f(key);
}

/// Checks offsets as `validate`, on all threads, without the number of values, which the view may not know. On a device kernels look at the
/// offsets.
template <device_execution Exec>
void validate_batch(Exec const&, keyed_jagged_view<std::int64_t const> batch) {
  validate_row_counts(batch);
}
void validate_batch(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch);

template <class Store, class Feature>
void check_lookup_call(char const* call, vector_view<Store const> tables, vector_view<Feature const> features,
                       keyed_jagged_view<std::int64_t const> batch, std::int64_t matrices) {
  if (features.size() != batch.keys || matrices != batch.keys)
    throw error(errc::shape_mismatch, std::string(call) + ": one feature and one matrix a key of the batch",
                {{"keys", batch.keys}, {"features", features.size()}, {"matrices", matrices}});
  for (std::int64_t key = 0; key < batch.keys; ++key)
    if (auto const table = table_of(features[key]); table < 0 || table >= tables.size())
      throw error(errc::out_of_range, std::string(call) + ": no such table",
                  {{"feature", key}, {"table", table}, {"tables", tables.size()}});
}

void check_lookup_matrix(char const* call, std::int64_t feature, std::int64_t rows, std::int64_t dim, matrix_view<float const> matrix);

/// How many values a forward saved. On a device it is the room for them, as only the device knows their number.
template <class Store, class Exec>
std::int64_t values_saved(basic_lookup_saved<Exec> const& saved) noexcept {
  return saved.batch.size();
}
template <class Store, device_execution Exec>
std::int64_t values_saved(basic_lookup_saved<Exec> const& saved) noexcept {
  if (saved.batch.rows() == 0) return 0;
  if (saved.batch.room >= 0) return saved.batch.room;
  return Store::slots_are_ids ? saved.order.values() : saved.slots.size();
}

/// Checks that the arguments of a backward fit what its forward saved.
template <class Store, class Feature, class Exec>
void check_saved(char const* call, vector_view<Feature const> features, basic_lookup_saved<Exec> const& saved) {
  if (saved.batch.keys == 0 && !features.empty())
    throw error(errc::shape_mismatch, std::string(call) + ": nothing is saved: no lookup went before, or it threw",
                {{"keys", saved.batch.keys}, {"features", features.size()}});
  check_source_ranks(call, features, saved.source_ranks);
  auto const values = values_saved<Store>(saved);
  if (!Store::slots_are_ids && saved.slots.size() != values)
    throw error(errc::shape_mismatch, std::string(call) + ": one slot a value; was it saved by a lookup in such tables?",
                {{"values", values}, {"slots", saved.slots.size()}});
  if (saved.order.ready() && saved.order.values() != values)
    throw error(errc::shape_mismatch, std::string(call) + ": the order was prepared for another batch",
                {{"values", values}, {"values of the order", saved.order.values()}});
  if constexpr (requires { saved.order.rows(); })
    if (saved.order.ready() && saved.order.rows() != saved.batch.rows())
      throw error(errc::shape_mismatch, std::string(call) + ": the order was prepared for another batch",
                  {{"rows", saved.batch.rows()}, {"rows of the order", saved.order.rows()}});
}

/// Checks that the slots still name the rows of these ids; a negative slot names none. `find(ids, slots)` looks them up. Errors name the
/// ids' owner by `of` and `number`.
template <class Find>
void check_rows_stay(host_exec const& exec, char const* call, char const* of, std::int64_t number, Find const& find,
                     vector_view<std::int64_t const> ids, std::int64_t const* slots) {
  buffer<std::int64_t> found(exec, ids.size());
  find(ids, found.view());
  for (std::int64_t i = 0; i < ids.size(); ++i)
    if (slots[i] >= 0 && slots[i] != found[i])
      throw error(errc::out_of_range, std::string(call) + ": an id's row is no longer where it was",
                  {{of, number}, {"position", i}, {"id", ids[i]}, {"slot", slots[i]}, {"slot now", found[i]}});
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/embed/lookup_checks.ipp>
#endif
