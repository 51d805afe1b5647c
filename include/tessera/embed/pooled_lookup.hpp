// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera::inline TESSERA_ABI {

/// How the rows of a bag become one vector. An empty bag gives zeros.
enum class pooling : std::uint8_t {
  sum,
  mean,  ///< the sum over the bag's length; weights do not change the divisor
};

/// What a bag's sum is multiplied by.
TESSERA_HOST_DEVICE constexpr float pooling_scale(pooling mode, std::int64_t length) noexcept {
  return mode == pooling::mean && length > 1 ? 1.0F / static_cast<float>(length) : 1.0F;
}

/// How one key of a batch is looked up.
struct pooled_feature {
  std::int64_t table = 0;  // index into the tables of the call; several features may share a table
  tessera::pooling pooling = tessera::pooling::sum;
};

namespace detail {

inline constexpr std::int64_t prefetch_rows_ahead = 8;

/// Samples a piece, so that a piece reads about 64 KiB of rows whatever the shape.
constexpr std::int64_t bags_per_piece(std::int64_t bags, std::int64_t values, std::int64_t row_bytes) noexcept {
  std::int64_t const bytes_a_bag = bags == 0 ? row_bytes : (divide_up(values, bags) + 1) * row_bytes;
  return std::clamp<std::int64_t>((std::int64_t{1} << 16) / (bytes_a_bag < 1 ? 1 : bytes_a_bag), 4, 4096);
}

template <class Exec>
struct pooled_lookup_impl {
  static_assert(dependent_false<Exec>, "pooled_lookup: no back end for this execution; for CUDA include <tessera/embed/pooled_lookup.cuh>");
};

// One feature's part of a call.
template <class Store>
struct bag_reader {
  using element = typename Store::element;

  Store const& table;
  jagged_view<std::int64_t const> bags;  // ids
  std::int64_t const* slots;             // slots[p - first_position] belongs to bags.values[p]
  std::int64_t first_position;           // of the batch
  float const* weights;                  // of position p: weights[p * weight_step]
  std::int64_t weight_step;              // 0: one weight for all
  pooling mode;
  std::int64_t feature;
  lookup_options const& options;

  std::int64_t slot(std::int64_t position) const noexcept { return held_slot(table, slots[position - first_position]); }

  void prefetch(std::int64_t position) const noexcept {
    auto const s = slot(position);
    if (s < 0) return;
    auto const* const row = reinterpret_cast<char const*>(table.row(s));
    for (std::int64_t byte = 0; byte < table.dim() * static_cast<std::int64_t>(sizeof(element)); byte += 64) __builtin_prefetch(row + byte);
  }

  // Whether all ids of a bag have rows.
  bool complete(std::int64_t bag) const {
    std::int64_t lacking = 0;
    for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p) lacking += slot(p) < 0;
    if (lacking == 0) [[likely]]
      return true;
    if constexpr (Store::slots_are_ids) {
      if (options.out_of_range == out_of_range_ids::refuse) refuse(bag);
      count_out_of_range(options, lacking);
    }
    return false;
  }
  [[noreturn]] void refuse(std::int64_t bag) const {
    auto p = bags.begin_of(bag);
    while (slot(p) >= 0) ++p;
    throw error(errc::out_of_range, "pooled_lookup: id out of range",
                {{"feature", feature},
                 {"table", table.options().id.value},
                 {"row", bag},
                 {"position", p - bags.begin_of(bag)},
                 {"id", bags.values[p]},
                 {"rows", table.rows()}});
  }

  // Columns [first, first + Width) of one bag whose ids all have rows; Width 0: `width` columns, of any bag. The sum runs over the bag in
  // order, column by column.
  template <int Width>
  void pool_columns(std::int64_t bag, std::int64_t first, std::int64_t width, float* out) const {
    constexpr std::size_t capacity = Width == 0 ? max_width : Width;
    auto const n = Width == 0 ? width : Width;
    constexpr bool may_lack_rows = Width == 0;  // apart, as its call costs the others their registers
    float sum[capacity];
    for (std::int64_t c = 0; c < n; ++c) sum[c] = 0;
    for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p) {
      float const weight = weights[p * weight_step];
      if (may_lack_rows && slot(p) < 0) {
        if constexpr (Store::slots_are_ids) continue;  // reads as zeros
        float initial[capacity];
        write_initial<element>(table.options(), bags.values[p], first, n, initial);
        for (std::int64_t c = 0; c < n; ++c) sum[c] = multiply_add(weight, initial[c], sum[c]);
        continue;
      }
      auto const* const row = opaque(table.row(slots[p - first_position]) + first);
      for (std::int64_t c = 0; c < n; ++c) sum[c] = multiply_add(weight, to_float(row[c]), sum[c]);
    }
    auto const scale = pooling_scale(mode, bags.length(bag));
    for (std::int64_t c = 0; c < n; ++c) out[c] = sum[c] * scale;
  }

  static constexpr int max_width = 128;

  void pool(std::int64_t first_bag, std::int64_t last_bag, matrix_view<float> out) const {
    if (first_bag == last_bag) return;
    auto const last_position = bags.end_of(last_bag - 1);
    auto ahead = bags.begin_of(first_bag);
    for (auto bag = first_bag; bag < last_bag; ++bag) {
      for (auto const until = std::min(last_position, bags.end_of(bag) + prefetch_rows_ahead); ahead < until; ++ahead) prefetch(ahead);
      pool_bag(bag, out.row(bag));
    }
  }

  void pool_bag(std::int64_t bag, float* to) const {
    auto const dim = table.dim();
    bool const all = complete(bag);
    switch (all ? dim : 0) {
      case 4: return pool_columns<4>(bag, 0, 4, to);
      case 8: return pool_columns<8>(bag, 0, 8, to);
      case 16: return pool_columns<16>(bag, 0, 16, to);
      case 32: return pool_columns<32>(bag, 0, 32, to);
      case 64: return pool_columns<64>(bag, 0, 64, to);
      default: {
        std::int64_t column = 0;
        for (; all && column + max_width <= dim; column += max_width) pool_columns<max_width>(bag, column, max_width, to + column);
        for (; column < dim; column += max_width)
          pool_columns<0>(bag, column, std::min<std::int64_t>(max_width, dim - column), to + column);
      }
    }
  }
};

template <>
struct pooled_lookup_impl<host_exec> {
  template <class Store>
  static void run(host_exec const& exec, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                  keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                  lookup_options const& options) {
    static constexpr float one = 1;
    auto const base = first_value(batch);
    buffer<std::int64_t> first_piece(exec, batch.keys + 1);
    first_piece[0] = 0;
    auto const piece_bags = [&](std::int64_t key) {
      return bags_per_piece(batch.rows(key), batch.key(key).size(),
                            tables[features[key].table].dim() * static_cast<std::int64_t>(sizeof(typename Store::element)));
    };
    for (std::int64_t key = 0; key < batch.keys; ++key)
      first_piece[key + 1] = first_piece[key] + divide_up(batch.rows(key), piece_bags(key));
    exec.run(first_piece[batch.keys], [&](std::int64_t piece) {
      auto const key = std::upper_bound(first_piece.begin(), first_piece.end(), piece) - first_piece.begin() - 1;
      auto const bags = piece_bags(key);
      auto const first = (piece - first_piece[key]) * bags;
      bag_reader<Store> const reader{
          tables[features[key].table], batch.key(key),        slots, base,   batch.weighted() ? batch.weights : &one,
          batch.weighted() ? 1 : 0,    features[key].pooling, key,   options};
      reader.pool(first, std::min(batch.rows(key), first + bags), out[key]);
    });
  }
};

struct pooled_lookup_fn {
  template <execution Exec, row_stores Tables>
  void operator()(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features, keyed_jagged_view<std::int64_t const> batch,
                  vector_view<matrix_view<float> const> out, lookup_saved& saved, lookup_options const& options = {}) const {
    using store = element_in<Tables>;
    vector_view<store> const stores(tables);
    vector_view<store const> const held(stores);
    check(held, features, batch, out);
    training_lookup(exec, stores, features, batch, saved,
                    [&](std::int64_t const* slots) { pooled_lookup_impl<Exec>::run(exec, held, features, batch, slots, out, options); });
  }

  template <execution Exec, row_stores Tables>
  void operator()(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                  keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                  lookup_options const& options = {}) const {
    using store = element_in<Tables const>;
    vector_view<store const> const stores(tables);
    check(stores, features, batch, out);
    evaluation_lookup(exec, stores, features, batch, [&](std::int64_t const* slots) {
      pooled_lookup_impl<Exec>::run(exec, stores, features, batch, slots, out, options);
    });
  }

 private:
  template <class Store>
  static void check(vector_view<Store const> tables, vector_view<pooled_feature const> features,
                    keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out) {
    check_lookup_call("pooled_lookup", tables, features, batch, out.size());
    validate(batch, std::numeric_limits<std::int64_t>::max());  // how many values there are, the view does not know
    for (std::int64_t key = 0; key < batch.keys; ++key)
      check_lookup_matrix("pooled_lookup", key, batch.rows(key), tables[features[key].table].dim(), out[key]);
  }
};

}  // namespace detail

/// Looks up and pools many features from many tables of any dims in one call: row r of out[k] is the pooled row r of key k.
///
/// - training: `pooled_lookup(exec, tables, features, batch, out, saved, options)`. Hashed tables give new ids a row; `saved` is for
///   `pooled_lookup_backward` and its siblings.
/// - evaluation: `pooled_lookup(exec, tables, features, batch, out, options)`. Changes nothing.
///
/// An id that its store could hold but does not (not seen, not admitted) reads as the row it would get. `tables`: a container of one kind
/// of row store. `features` (keys,): which table, and how to pool. `batch`: ids, optionally weighted (a row counts weight times); each key
/// has its own number of rows. `out` (keys,): matrices (rows of the key, dim of its table) of any row stride, so that vectors land where
/// the next layer reads them. `lookup_options`: what to do with ids that a dense table has no row for.
/// @post each vector sums its bag in order, in float; the thread count changes nothing.
/// @throws tessera::error shape_mismatch; out_of_range naming feature, table, row, position and id, when a dense table has no such row and
/// the options do not say otherwise: no table has changed then; invalid_argument for offsets that decrease. Offsets past the end of the
/// values cannot be seen here: `validate(batch, number of values)` refuses them.
inline constexpr detail::pooled_lookup_fn pooled_lookup{};

}  // namespace tessera::inline TESSERA_ABI
