// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera::inline TESSERA_ABI {

namespace detail {

template <class Exec>
struct sequence_lookup_impl {
  static_assert(dependent_false<Exec>,
                "sequence_lookup: no back end for this execution; for CUDA include <tessera/embed/sequence_lookup.cuh>");
};

template <>
struct sequence_lookup_impl<host_exec> {
  static constexpr std::int64_t values_per_piece = 256;

  template <class Store>
  static void run(host_exec const& exec, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                  keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                  lookup_options const& options) {
    auto const values = [&](std::int64_t key) { return batch.key(key).size(); };
    for_each_piece_of(
        exec, batch.keys, values, [](std::int64_t) { return values_per_piece; },
        [&](std::int64_t key, std::int64_t first, std::int64_t last) {
          auto const bags = batch.key(key);
          auto const* const ids = bags.values + bags.offsets[0];
          auto const* const key_slots = slots + (bags.offsets[0] - first_value(batch));
          auto const& table = tables[features[key]];
          auto const dim = table.dim();
          auto const distance = prefetch_distance(dim * static_cast<std::int64_t>(sizeof(typename Store::element)));
          for (auto i = first; i < last; ++i) {
            if (i + distance < last)
              if (auto const next = held_slot(table, key_slots[i + distance]); next >= 0) prefetch_row(table.row(next), dim);
            auto const slot = held_slot(table, key_slots[i]);
            float* const to = out[key].row(i);
            if (slot >= 0) {
              auto const* const row = opaque(table.row(slot));
              for (std::int64_t c = 0; c < dim; ++c) to[c] = to_float(row[c]);
            } else if constexpr (Store::slots_are_ids) {
              if (options.out_of_range == out_of_range_ids::refuse)
                throw error(
                    errc::out_of_range, "sequence_lookup: id out of range",
                    {{"feature", key}, {"table", table.options().id.value}, {"position", i}, {"id", ids[i]}, {"rows", table.rows()}});
              count_out_of_range(options, 1);
              std::fill_n(to, dim, 0.0F);
            } else {
              write_initial<typename Store::element>(table.options(), ids[i], 0, dim, to);
            }
          }
        });
  }
};

template <class Store>
void check_sequence_call(char const* call, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                         keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float const> const> matrices) {
  check_lookup_call(call, tables, features, batch, matrices.size());
  for (std::int64_t key = 0; key < batch.keys; ++key)
    check_lookup_matrix(call, key, batch.key(key).size(), tables[features[key]].dim(), matrices[key]);
}

struct sequence_lookup_fn {
  template <execution Exec, row_stores Tables>
  void operator()(Exec const& exec, Tables& tables, vector_view<std::int64_t const> features, keyed_jagged_view<std::int64_t const> batch,
                  vector_view<matrix_view<float> const> out, lookup_saved& saved, lookup_options const& options = {}) const {
    using store = element_in<Tables>;
    vector_view<store> const stores(tables);
    vector_view<store const> const held(stores);
    check(exec, held, features, batch, out);
    training_lookup(exec, stores, features, batch, saved,
                    [&](std::int64_t const* slots) { sequence_lookup_impl<Exec>::run(exec, held, features, batch, slots, out, options); });
  }

  template <execution Exec, row_stores Tables>
  void operator()(Exec const& exec, Tables const& tables, vector_view<std::int64_t const> features,
                  keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                  lookup_options const& options = {}) const {
    using store = element_in<Tables const>;
    vector_view<store const> const stores(tables);
    check(exec, stores, features, batch, out);
    evaluation_lookup(exec, stores, features, batch, [&](std::int64_t const* slots) {
      sequence_lookup_impl<Exec>::run(exec, stores, features, batch, slots, out, options);
    });
  }

 private:
  template <class Exec, class Store>
  static void check(Exec const& exec, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                    keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out) {
    check_lookup_call("sequence_lookup", tables, features, batch, out.size());
    validate_batch(exec, batch);
    for (std::int64_t key = 0; key < batch.keys; ++key)
      check_lookup_matrix("sequence_lookup", key, batch.key(key).size(), tables[features[key]].dim(), out[key]);
  }
};

}  // namespace detail

/// Looks up a vector for each id, without pooling: row i of out[k] is the vector of value i of key k, so that out[k] with the key's
/// offsets is a jagged batch of vectors.
///
/// - training: `sequence_lookup(exec, tables, features, batch, out, saved, options)`. Hashed tables give new ids a row; `saved` is for
///   `sequence_lookup_backward` and its sibling.
/// - evaluation: `sequence_lookup(exec, tables, features, batch, out, options)`. Changes nothing.
///
/// `features` (keys,): the table of each key. `out` (keys,): matrices (values of the key, dim of its table), any row stride. The batch's
/// weights, if any, play no part. Ids without a row, options and errors as in `pooled_lookup`; "position" counts the key's values.
inline constexpr detail::sequence_lookup_fn sequence_lookup{};

}  // namespace tessera::inline TESSERA_ABI
