// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/locate_batch.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Looks up a vector for each id, without pooling, for training. Hashed tables give new ids a row. `saved` is for
/// `sequence_lookup_backward` and `sequence_lookup_gradients`.
///
/// `features` (keys,): the table of each key. `out` (keys,): matrices (values of the key, dim of its table) of any row stride. The batch's
/// weights are not used. Ids without a row, options and errors are those of `pooled_lookup`; "position" counts the key's values. On a
/// device a matrix may have more rows than its key has values: the others stay as they are. `synchronize()` reports a matrix that has
/// fewer.
/// @post row i of out[k] is the vector of value i of key k; with the key's offsets out[k] is a jagged batch of vectors
template <execution Exec, row_stores Tables>
void sequence_lookup(Exec const& exec, Tables& tables, vector_view<std::int64_t const> features,
                     keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                     basic_lookup_saved<Exec>& saved, lookup_options const& options = {});

/// As above, for evaluation: it changes nothing.
template <execution Exec, row_stores Tables>
void sequence_lookup(Exec const& exec, Tables const& tables, vector_view<std::int64_t const> features,
                     keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                     lookup_options const& options = {});

namespace detail {

struct sequence_lookup_tag {};

/// The values of one key that are to be read. The type of the table's elements is known to the reader alone.
struct value_request {
  std::int64_t key;
  std::int64_t const* ids;    // of the key
  std::int64_t const* slots;  // the same
  bool streams;               // past the caches, as far as vectors are whole lines
  lookup_options const* options;
  matrix_view<float> out;  // (values, dim)
};

/// `slots`: of the batch's values, its first value first. `is_large`: whether the results of all keys exceed the caches.
inline value_request value_request_of(std::int64_t key, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
                                      bool is_large, lookup_options const& options, matrix_view<float> out) noexcept {
  auto const bags = batch.key(key);
  auto const first = bags.offsets[0];
  return {key, bags.values + first, slots + (first - first_value(batch)), is_large && starts_lines(out), &options, out};
}

/// Reads the vectors of values [first, last) of a request.
template <class Element>
struct value_reader {
  host_rows<Element> const& table;
  value_request const& of;

  void read(std::int64_t first, std::int64_t last) const {
    auto const distance = prefetch_distance<Element>(table.dim());
    for (auto i = first; i < std::min(last, first + distance); ++i) prefetch(i);
    for (auto i = first; i < last; ++i) {
      if (i + distance < last) prefetch(i + distance);
      if (table.holds(of.slots[i]))
        copy(table.row(of.slots[i]), of.out.row(i));
      else
        read_absent(i, of.out.row(i));
    }
    if (of.streams) finish_streams();
  }

 private:
  [[gnu::always_inline]] void prefetch(std::int64_t position) const {
    if (table.holds(of.slots[position])) prefetch_row(table.row(of.slots[position]), table.dim());
  }
  void copy(Element const* from, float* __restrict to) const {
    auto const* const row = opaque(from);
    auto const scale = row_scale<Element>::of(row);
    auto const dim = table.dim();
    std::int64_t c = 0;
    if (of.streams)
      for (; c + line_floats <= dim; c += line_floats)
        write_floats<line_floats>(to + c, true, [&](int i) { return scale.value(row[c + i]); });
    for (; c < dim; ++c) to[c] = scale.value(row[c]);
  }
  void read_absent(std::int64_t position, float* to) const {
    if (!table.slots_are_ids) return write_initial<Element>(table.options(), of.ids[position], 0, table.dim(), to);
    if (of.options->out_of_range == out_of_range_ids::refuse)
      throw error(errc::out_of_range, "sequence_lookup: id out of range",
                  {{"feature", of.key},
                   {"table", table.options().id.value},
                   {"position", position},
                   {"id", of.ids[position]},
                   {"rows", table.slot_bound}});
    count_out_of_range(*of.options, 1);
    std::fill_n(to, table.dim(), 0.0F);
  }
};

/// Reads the vectors of values [first, last) of a request. Its callers are compiled without what it does, where an instance of it is declared.
template <class Element>
void read_vectors(host_rows<Element> const& table, value_request const& request, std::int64_t first, std::int64_t last) {
  value_reader<Element>{table, request}.read(first, last);
}

#define TESSERA_INSTANCE_OF_READ_VECTORS(how, Element) \
  how void read_vectors(host_rows<Element> const&, value_request const&, std::int64_t, std::int64_t);
#if TESSERA_COMPILED
TESSERA_FOR_ROW_ELEMENTS(TESSERA_INSTANCE_OF_READ_VECTORS, extern template)
#endif

inline constexpr std::int64_t values_per_piece = 1024;

/// Calls read(request, first value, last value) for all keys, piece by piece, on any threads.
template <class Read>
void read_values(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
                 vector_view<matrix_view<float> const> out, lookup_options const& options, Read const& read) {
  bool const is_large = exceeds_caches(out);
  for_each_piece_of(
      exec, batch.keys, [&](std::int64_t key) { return batch.key(key).size(); }, [](std::int64_t) { return values_per_piece; },
      [&](std::int64_t key, std::int64_t first, std::int64_t last) {
        read(value_request_of(key, batch, slots, is_large, options, out[key]), first, last);
      });
}

template <>
struct back_end<sequence_lookup_tag, host_exec> {
  static std::int64_t rows_expected(keyed_jagged_view<std::int64_t const> batch, std::int64_t key, matrix_view<float const>) {
    return batch.key(key).size();
  }

  template <class Store>
  static void run(host_exec const& exec, vector_view<Store const> stores, vector_view<std::int64_t const> features,
                  keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                  lookup_options const& options) {
    auto const tables = rows_of_tables(exec, stores);
    read_values(exec, batch, slots, out, options, [&](value_request const& request, std::int64_t first, std::int64_t last) {
      read_vectors(tables[features[request.key]], request, first, last);
    });
  }
};

/// Checks that there is a matrix for each key, with a row a value and the dim of its table.
template <class Exec, class Store, class Matrix>
void check_value_matrices(char const* call, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                          keyed_jagged_view<std::int64_t const> batch, vector_view<Matrix const> matrices) {
  for (std::int64_t key = 0; key < batch.keys; ++key)
    check_lookup_matrix(call, key, back_end<sequence_lookup_tag, Exec>::rows_expected(batch, key, matrices[key]),
                        tables[features[key]].dim(), matrices[key]);
}

template <class Exec, class Store>
void check_sequence_call(Exec const&, char const* call, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                         keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float const> const> matrices) {
  check_lookup_call(call, tables, features, batch, matrices.size());
  check_value_matrices<Exec>(call, tables, features, batch, matrices);
}

template <class Exec, class Store>
void check_sequence_lookup(Exec const& exec, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                           keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                           lookup_options const& options) {
  check_choice("sequence_lookup", "out_of_range", options.out_of_range, out_of_range_ids::zero);
  check_lookup_call("sequence_lookup", tables, features, batch, out.size());
  check_source_ranks("sequence_lookup", features, options.source_ranks);
  validate_batch(exec, batch);
  check_value_matrices<Exec>("sequence_lookup", tables, features, batch, out);
}

}  // namespace detail

template <execution Exec, row_stores Tables>
void sequence_lookup(Exec const& exec, Tables& tables, vector_view<std::int64_t const> features,
                     keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                     basic_lookup_saved<Exec>& saved, lookup_options const& options) {
  using store = detail::element_in<Tables>;
  detail::expect_tables_of<Exec, store>();
  detail::expect_mutable_tables<Tables>();
  vector_view<store> const stores(tables);
  vector_view<store const> const held(stores);
  saved.clear();
  detail::check_sequence_lookup(exec, held, features, batch, out, options);
  detail::training_lookup(exec, stores, features, batch, options, saved, [&](std::int64_t const* slots) {
    detail::back_end<detail::sequence_lookup_tag, Exec>::run(exec, held, features, batch, slots, out, options);
  });
}

template <execution Exec, row_stores Tables>
void sequence_lookup(Exec const& exec, Tables const& tables, vector_view<std::int64_t const> features,
                     keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                     lookup_options const& options) {
  using store = detail::element_in<Tables const>;
  detail::expect_tables_of<Exec, store>();
  vector_view<store const> const stores(tables);
  detail::check_sequence_lookup(exec, stores, features, batch, out, options);
  detail::evaluation_lookup(exec, stores, features, batch, [&](std::int64_t const* slots) {
    detail::back_end<detail::sequence_lookup_tag, Exec>::run(exec, stores, features, batch, slots, out, options);
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
