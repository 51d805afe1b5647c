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
#include <tessera/core/streamed_copy.hpp>
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

// Values [first, last) of one feature.
template <class Store>
struct value_reader {
  using element = typename Store::element;

  Store const& table;
  std::int64_t const* ids;    // of the feature
  std::int64_t const* slots;  // the same
  std::int64_t feature;
  bool streams;  // past the caches, as far as vectors are whole lines
  lookup_options const& options;

  void read(std::int64_t first, std::int64_t last, matrix_view<float> out) const {
    auto const distance = prefetch_distance<element>(table.dim());
    for (auto i = first; i < std::min(last, first + distance); ++i) ask_for(i);
    for (auto i = first; i < last; ++i) {
      if (i + distance < last) ask_for(i + distance);
      if (auto const slot = held_slot(table, slots[i]); slot >= 0)
        copy(table.row(slot), out.row(i));
      else
        read_absent(i, out.row(i));
    }
    if (streams) finish_streams();
  }

 private:
  [[gnu::always_inline]] void ask_for(std::int64_t position) const {
    if (auto const slot = held_slot(table, slots[position]); slot >= 0) prefetch_row(table.row(slot), table.dim());
  }
  void copy(element const* from, float* __restrict to) const {
    auto const* const row = opaque(from);
    auto const scale = row_scale<element>::of(row);
    auto const dim = table.dim();
    std::int64_t c = 0;
    if (streams)
      for (; c + line_floats <= dim; c += line_floats)
        write_floats<line_floats>(to + c, true, [&](int i) { return scale.value(row[c + i]); });
    for (; c < dim; ++c) to[c] = scale.value(row[c]);
  }
  void read_absent(std::int64_t position, float* to) const {
    if constexpr (Store::slots_are_ids) {
      if (options.out_of_range == out_of_range_ids::refuse)
        throw error(errc::out_of_range, "sequence_lookup: id out of range",
                    {{"feature", feature},
                     {"table", table.options().id.value},
                     {"position", position},
                     {"id", ids[position]},
                     {"rows", table.rows()}});
      count_out_of_range(options, 1);
      std::fill_n(to, table.dim(), 0.0F);
    } else {
      write_initial<element>(table.options(), ids[position], 0, table.dim(), to);
    }
  }
};

template <>
struct sequence_lookup_impl<host_exec> {
  static constexpr std::int64_t values_per_piece = 1024;

  template <class Store>
  static void run(host_exec const& exec, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                  keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                  lookup_options const& options) {
    bool const is_large = exceeds_caches(out);
    auto const values = [&](std::int64_t key) { return batch.key(key).size(); };
    for_each_piece_of(
        exec, batch.keys, values, [](std::int64_t) { return values_per_piece; },
        [&](std::int64_t key, std::int64_t first, std::int64_t last) {
          auto const bags = batch.key(key);
          value_reader<Store> const reader{tables[features[key]],
                                           bags.values + bags.offsets[0],
                                           slots + (bags.offsets[0] - first_value(batch)),
                                           key,
                                           is_large && starts_lines(out[key]),
                                           options};
          reader.read(first, last, out[key]);
        });
  }
};

// How many values a key has, a device alone knows: what its matrix has no row for is left out, and told.
template <class Exec, class Store>
void check_sequence_call(Exec const&, char const* call, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                         keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float const> const> matrices) {
  check_lookup_call(call, tables, features, batch, matrices.size());
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    auto rows = matrices[key].rows();
    if constexpr (!device_execution<Exec>) rows = batch.key(key).size();
    check_lookup_matrix(call, key, rows, tables[features[key]].dim(), matrices[key]);
  }
}

struct sequence_lookup_fn {
  template <execution Exec, row_stores Tables>
  void operator()(Exec const& exec, Tables& tables, vector_view<std::int64_t const> features, keyed_jagged_view<std::int64_t const> batch,
                  vector_view<matrix_view<float> const> out, basic_lookup_saved<Exec>& saved, lookup_options const& options = {}) const {
    using store = element_in<Tables>;
    expect_tables_of<Exec, store>();
    vector_view<store> const stores(tables);
    vector_view<store const> const held(stores);
    saved.clear();
    check(exec, held, features, batch, out, options);
    training_lookup(exec, stores, features, batch, saved,
                    [&](std::int64_t const* slots) { sequence_lookup_impl<Exec>::run(exec, held, features, batch, slots, out, options); });
  }

  template <execution Exec, row_stores Tables>
  void operator()(Exec const& exec, Tables const& tables, vector_view<std::int64_t const> features,
                  keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                  lookup_options const& options = {}) const {
    using store = element_in<Tables const>;
    expect_tables_of<Exec, store>();
    vector_view<store const> const stores(tables);
    check(exec, stores, features, batch, out, options);
    evaluation_lookup(exec, stores, features, batch, [&](std::int64_t const* slots) {
      sequence_lookup_impl<Exec>::run(exec, stores, features, batch, slots, out, options);
    });
  }

 private:
  template <class Exec, class Store>
  static void check(Exec const& exec, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                    keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out, lookup_options const& options) {
    check_choice("sequence_lookup", "out_of_range", options.out_of_range, out_of_range_ids::zero);
    check_lookup_call("sequence_lookup", tables, features, batch, out.size());
    validate_batch(exec, batch);
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      auto rows = out[key].rows();
      if constexpr (!device_execution<Exec>) rows = batch.key(key).size();
      check_lookup_matrix("sequence_lookup", key, rows, tables[features[key]].dim(), out[key]);
    }
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
/// weights, if any, play no part. Ids without a row, options and errors as in `pooled_lookup`; "position" counts the key's values. On a
/// device a matrix may have more rows than its key has values, which stay as they are; of one that has fewer, `synchronize()` tells.
inline constexpr detail::sequence_lookup_fn sequence_lookup{};

}  // namespace tessera::inline TESSERA_ABI
