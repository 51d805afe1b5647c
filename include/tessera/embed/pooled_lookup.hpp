// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera::inline TESSERA_ABI {

/// How the rows of a bag become one vector. An empty bag gives zeros.
enum class pooling : std::uint8_t {
  sum,
  mean,  ///< the sum over the bag's length; weights do not change the divisor
  max,   ///< the largest element of each column, of an unweighted batch on the host; its gradient goes to the first row that has it
};

/// As a checkpoint has it.
constexpr std::string_view name(pooling mode) noexcept {
  switch (mode) {
    case pooling::sum: return "sum";
    case pooling::mean: return "mean";
    case pooling::max: return "max";
  }
  return "pooling";
}

/// What a bag's sum is multiplied by.
TESSERA_HOST_DEVICE constexpr float pooling_scale(pooling mode, std::int64_t length) noexcept {
  return mode == pooling::mean && length > 1 ? 1.0F / static_cast<float>(length) : 1.0F;
}

/// How one key of a batch is looked up.
struct pooled_feature {
  std::int64_t table = 0;  // index into the tables of the call; several features may share a table
  tessera::pooling pooling = tessera::pooling::sum;

  /// Whether a bag's vector is the maximum of its rows.
  constexpr bool is_largest() const noexcept { return pooling == tessera::pooling::max; }
};

namespace detail {

inline void check_poolings(char const* call, vector_view<pooled_feature const> features) {
  for (std::int64_t key = 0; key < features.size(); ++key)
    if (features[key].pooling > pooling::max)
      throw error(errc::invalid_argument, std::string(call) + ": no such pooling",
                  {{"feature", key}, {"pooling", static_cast<int>(features[key].pooling)}});
}

/// Samples a piece, so that a piece reads about 256 KiB of rows whatever the shape.
constexpr std::int64_t bags_per_piece(std::int64_t bags, std::int64_t values, std::int64_t row_bytes) noexcept {
  std::int64_t const bytes_a_bag = bags == 0 ? row_bytes : (divide_up(values, bags) + 1) * row_bytes;
  return std::clamp<std::int64_t>((std::int64_t{1} << 18) / (bytes_a_bag < 1 ? 1 : bytes_a_bag), 4, 4096);
}

template <class Exec>
struct pooled_lookup_impl {
  static_assert(dependent_false<Exec>, "pooled_lookup: no back end for this execution; for CUDA include <tessera/embed/pooled_lookup.cuh>");
};

// The rows of some bags in the order of their positions, each asked for `distance` positions ahead of its use.
// Dim 0: of any dim. Plain: without weights and streams, as most are, less is read for each bag, which short bags feel.
template <class Store, int Dim, bool Plain>
class row_queue {
 public:
  using element = typename Store::element;

  [[gnu::always_inline]] row_queue(Store const& table, std::int64_t const* slots, float const* weights, std::int64_t rows, bool streams)
      : table_(table), slots_(slots), weights_(weights), rows_(rows), streams_(streams) {}

  // Asks for the first rows; says, as what follows does, whether each of them is there.
  [[gnu::always_inline]] bool begin() {
    for (auto const until = std::min(rows_, distance()); asked_ < until;)
      if (!ask()) return false;
    return true;
  }

  // Columns [first, first + Width) of the rows of positions [begin, end), summed in order, in registers. The next rows are asked for one by
  // one meanwhile: many at once would fill the lines that a core can have under way, and what is summed now would wait behind them.
  template <int Width>
  [[gnu::always_inline]] bool sum_columns(std::int64_t begin, std::int64_t end, std::int64_t first, float scale, float* to) {
    float sum[std::size_t{Width}] = {};
    auto const until = std::min(rows_, end + distance());
    for (auto p = begin; p < end; ++p) {
      if (asked_ < until && !ask()) [[unlikely]]
        return false;
      auto const* const whole = table_.row(slots_[p]);
      auto const scale_of_row = row_scale<element>::of(whole);
      auto const* const row = opaque(whole + first);
      float const weight = Plain || weights_ == nullptr ? 1.0F : weights_[p];
      for (int c = 0; c < Width; ++c) sum[c] = multiply_add(weight, scale_of_row.value(row[c]), sum[c]);
    }
    write_floats<Width>(to + first, !Plain && streams_, [&](int c) { return sum[c] * scale; });
    return true;
  }
  // Columns [first, dim), by blocks of `Width` as far as they go, then of half of it.
  template <int Width>
  bool sum_blocks(std::int64_t begin, std::int64_t end, std::int64_t first, float scale, float* to) {
    for (; first + Width <= dim(); first += Width)
      if (!sum_columns<Width>(begin, end, first, scale, to)) return false;
    if constexpr (Width > 1) return sum_blocks<Width / 2>(begin, end, first, scale, to);
    return true;
  }

 private:
  static constexpr std::int64_t slots_ahead = 128;

  std::int64_t dim() const noexcept { return Dim == 0 ? table_.dim() : Dim; }
  std::int64_t distance() const noexcept { return prefetch_distance<element>(dim()); }
  [[gnu::always_inline]] bool ask() {
    __builtin_prefetch(slots_ + asked_ + slots_ahead);
    auto const slot = slots_[asked_++];
    if (held_slot(table_, slot) < 0) [[unlikely]]
      return false;
    prefetch_row(table_.row(slot), dim());
    return true;
  }

  Store const& table_;
  std::int64_t const* slots_;
  float const* weights_;
  std::int64_t rows_, asked_ = 0;
  bool streams_;
};

// One feature's part of a call.
template <class Store>
struct bag_reader {
  using element = typename Store::element;

  Store const& table;
  jagged_view<std::int64_t const> bags;  // ids
  std::int64_t const* slots;             // slots[p - first_position] belongs to bags.values[p]
  std::int64_t first_position;           // of the batch
  float const* weights;                  // weights[p] of position p; nullptr: 1 of all
  pooling mode;
  std::int64_t feature;
  bool streams;  // past the caches, as far as vectors are whole lines
  lookup_options const& options;
  std::int32_t* winners = nullptr;  // (bags, dim), of a maximum: which row of the bag has it; nullptr: nobody asks

  std::int64_t slot(std::int64_t position) const noexcept { return held_slot(table, slots[position - first_position]); }
  float weight_of(std::int64_t position) const noexcept { return weights == nullptr ? 1.0F : weights[position]; }

  // Bags [first, last).
  void pool(std::int64_t first, std::int64_t last, matrix_view<float> out) const {
    if (mode == pooling::max) return pool_largest(first, last, out);
    bool const is_whole = pool_complete(first, last, out);
    if (streams) finish_streams();
    if (!is_whole) pool_incomplete(first, last, out);
  }

  // Says whether all ids of these bags have rows; where one has none, nothing is promised of the vectors.
  bool pool_complete(std::int64_t first, std::int64_t last, matrix_view<float> out) const {
    return with_static_dim(table.dim(), [&](auto dim) { return pool_bags<dim()>(first, last, out); });
  }
  template <int Dim>
  bool pool_bags(std::int64_t first, std::int64_t last, matrix_view<float> out) const {
    return weights == nullptr && !streams ? pool_bags<Dim, true>(first, last, out) : pool_bags<Dim, false>(first, last, out);
  }
  template <int Dim, bool Plain>
  [[gnu::noinline]] bool pool_bags(std::int64_t first_bag, std::int64_t last_bag, matrix_view<float> out) const {
    if (Dim > 0 && table.dim() != Dim) __builtin_unreachable();
    auto const first = bags.begin_of(first_bag);
    row_queue<Store, Dim, Plain> rows(table, slots + (first - first_position), weights == nullptr ? nullptr : weights + first,
                                      bags.begin_of(last_bag) - first, streams);
    if (!rows.begin()) return false;
    auto const pooled = mode;
    auto const* const offsets = bags.offsets;
    float* to = out.row(first_bag);
    std::int64_t p = 0;
    for (auto bag = first_bag; bag < last_bag; ++bag, to += out.stride()) {
      auto const end = offsets[bag + 1] - first;
      auto const scale = pooling_scale(pooled, end - p);
      bool is_whole = true;
      if constexpr (Dim > 0)
        is_whole = rows.template sum_columns<Dim>(p, end, 0, scale, to);
      else
        is_whole = rows.template sum_blocks<128>(p, end, 0, scale, to);
      if (!is_whole) [[unlikely]]
        return false;
      p = end;
    }
    return true;
  }

  // The first id without a row from this bag on.
  [[noreturn]] void refuse(std::int64_t bag) const {
    auto p = bags.begin_of(bag);
    while (slot(p) >= 0) ++p;
    while (p >= bags.end_of(bag)) ++bag;
    throw error(errc::out_of_range, "pooled_lookup: id out of range",
                {{"feature", feature},
                 {"table", table.options().id.value},
                 {"row", bag},
                 {"position", p - bags.begin_of(bag)},
                 {"id", bags.values[p]},
                 {"rows", table.rows()}});
  }

  // Bags of any rows, each summed in place.
  void pool_incomplete(std::int64_t first_bag, std::int64_t last_bag, matrix_view<float> out) const {
    if constexpr (Store::slots_are_ids)
      if (options.out_of_range == out_of_range_ids::refuse) refuse(first_bag);
    std::int64_t lacking = 0;
    auto const dim = table.dim(), last_position = bags.end_of(last_bag - 1);
    auto const distance = prefetch_distance<element>(dim);
    for (auto bag = first_bag; bag < last_bag; ++bag) {
      float* __restrict const sum = out.row(bag);
      std::fill_n(sum, dim, 0.0F);
      for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p) {
        if (p + distance < last_position && slot(p + distance) >= 0) prefetch_row(table.row(slot(p + distance)), dim);
        if (slot(p) < 0) {
          ++lacking;
          if constexpr (!Store::slots_are_ids) add_initial(p, sum);  // else it reads as zeros
          continue;
        }
        float const weight = weight_of(p);
        auto const* const row = opaque(table.row(slot(p)));
        auto const scale = row_scale<element>::of(row);
        for (std::int64_t c = 0; c < dim; ++c) sum[c] = multiply_add(weight, scale.value(row[c]), sum[c]);
      }
      auto const scale = pooling_scale(mode, bags.length(bag));
      for (std::int64_t c = 0; c < dim; ++c) sum[c] *= scale;
    }
    if constexpr (Store::slots_are_ids) count_out_of_range(options, lacking);
  }

  // Bags [first, last): the largest element of each column, and whose it is. A NaN stays.
  void pool_largest(std::int64_t first_bag, std::int64_t last_bag, matrix_view<float> out) const {
    auto const dim = table.dim(), last_position = bags.end_of(last_bag - 1);
    auto const distance = prefetch_distance<element>(dim);
    std::int64_t lacking = 0;
    for (auto bag = first_bag; bag < last_bag; ++bag) {
      float* __restrict const largest = out.row(bag);
      std::int32_t* __restrict const winner = winners == nullptr ? nullptr : winners + bag * dim;
      std::fill_n(largest, dim, 0.0F);
      if (winner != nullptr) std::fill_n(winner, dim, -1);
      for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p) {
        if (p + distance < last_position && slot(p + distance) >= 0) prefetch_row(table.row(slot(p + distance)), dim);
        auto const place = static_cast<std::int32_t>(p - bags.begin_of(bag));
        auto const take = [&](std::int64_t c, float value) {
          bool const wins = place == 0 || value > largest[c] || value != value;
          largest[c] = wins ? value : largest[c];
          if (winner != nullptr) winner[c] = wins ? place : winner[c];
        };
        if (slot(p) >= 0) {
          auto const* const row = opaque(table.row(slot(p)));
          auto const scale = row_scale<element>::of(row);
          for (std::int64_t c = 0; c < dim; ++c) take(c, scale.value(row[c]));
          continue;
        }
        if constexpr (Store::slots_are_ids) {
          if (options.out_of_range == out_of_range_ids::refuse) refuse(bag);
          ++lacking;
          for (std::int64_t c = 0; c < dim; ++c) take(c, 0.0F);
        } else {
          for_each_initial_element(table.options(), bags.values[p],
                                   [&](std::int64_t c, float value) { take(c, stored_initial<element>(table.options(), value)); });
        }
      }
    }
    if constexpr (Store::slots_are_ids) count_out_of_range(options, lacking);
  }

  // The row that the id would get. Apart, as its call costs the others their registers.
  [[gnu::noinline]] void add_initial(std::int64_t position, float* sum) const {
    float const weight = weight_of(position);
    for_each_initial_element(table.options(), bags.values[position], [&](std::int64_t c, float value) {
      sum[c] = multiply_add(weight, stored_initial<element>(table.options(), value), sum[c]);
    });
  }
};

template <>
struct pooled_lookup_impl<host_exec> {
  template <class Store>
  static void run(host_exec const& exec, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                  keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                  lookup_options const& options, largest_rows* largest = nullptr) {
    if (largest != nullptr) largest->resize(exec, features, batch, [&](std::int64_t key) { return tables[features[key].table].dim(); });
    auto const base = first_value(batch);
    bool const is_large = exceeds_caches(out);
    auto const rows = [&](std::int64_t key) { return batch.rows(key); };
    auto const grain = [&](std::int64_t key) {
      return bags_per_piece(batch.rows(key), batch.key(key).size(),
                            tables[features[key].table].dim() * static_cast<std::int64_t>(sizeof(typename Store::element)));
    };
    for_each_piece_of(exec, batch.keys, rows, grain, [&](std::int64_t key, std::int64_t first, std::int64_t last) {
      bag_reader<Store> const reader{tables[features[key].table],
                                     batch.key(key),
                                     slots,
                                     base,
                                     batch.weighted() ? batch.weights : nullptr,
                                     features[key].pooling,
                                     key,
                                     is_large && starts_lines(out[key]),
                                     options,
                                     largest == nullptr ? nullptr : largest->of(key)};
      reader.pool(first, last, out[key]);
    });
  }
};

struct pooled_lookup_fn {
  template <execution Exec, row_stores Tables>
  void operator()(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features, keyed_jagged_view<std::int64_t const> batch,
                  vector_view<matrix_view<float> const> out, basic_lookup_saved<Exec>& saved, lookup_options const& options = {}) const {
    using store = element_in<Tables>;
    expect_tables_of<Exec, store>();
    vector_view<store> const stores(tables);
    vector_view<store const> const held(stores);
    saved.clear();
    check(exec, held, features, batch, out, options);
    training_lookup(exec, stores, features, batch, saved, [&](std::int64_t const* slots) {
      if constexpr (device_execution<Exec>)
        pooled_lookup_impl<Exec>::run(exec, held, features, batch, slots, out, options);
      else
        pooled_lookup_impl<Exec>::run(exec, held, features, batch, slots, out, options, &saved.largest);
    });
  }

  template <execution Exec, row_stores Tables>
  void operator()(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                  keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                  lookup_options const& options = {}) const {
    using store = element_in<Tables const>;
    expect_tables_of<Exec, store>();
    vector_view<store const> const stores(tables);
    check(exec, stores, features, batch, out, options);
    evaluation_lookup(exec, stores, features, batch, [&](std::int64_t const* slots) {
      pooled_lookup_impl<Exec>::run(exec, stores, features, batch, slots, out, options);
    });
  }

 private:
  template <class Exec, class Store>
  static void check(Exec const& exec, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                    keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out, lookup_options const& options) {
    check_choice("pooled_lookup", "out_of_range", options.out_of_range, out_of_range_ids::zero);
    check_lookup_call("pooled_lookup", tables, features, batch, out.size());
    check_poolings("pooled_lookup", features);
    validate_batch(exec, batch);
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      check_lookup_matrix("pooled_lookup", key, batch.rows(key), tables[features[key].table].dim(), out[key]);
      if (features[key].pooling == pooling::max && (device_execution<Exec> || batch.weighted()))
        throw error(errc::invalid_argument, "pooled_lookup: a maximum is of an unweighted batch, on the host",
                    {{"feature", key}, {"weighted", batch.weighted()}});
    }
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
/// values are seen where the batch says its `room`; else `validate(batch, number of values)` refuses them.
///
/// On a device ids, slots, offsets, weights and what matrices show are the device's; tables, features and the list of matrices are read
/// before the call returns. Same bits as on the host. Nothing waits, but for a batch of hashed tables that does not say its `room`. What
/// the ids and offsets have wrong is told by `synchronize()`; such ids read as zeros, such rows as empty bags, and neither gets a gradient.
inline constexpr detail::pooled_lookup_fn pooled_lookup{};

}  // namespace tessera::inline TESSERA_ABI
