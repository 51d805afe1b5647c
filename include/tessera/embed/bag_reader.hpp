// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/pooled_argmax.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The number of samples in a piece, chosen so that a piece reads about 256 KiB of rows for any shape.
constexpr std::int64_t bags_per_piece(std::int64_t bags, std::int64_t values, std::int64_t row_bytes) noexcept {
  std::int64_t const bytes_a_bag = bags == 0 ? row_bytes : (divide_up(values, bags) + 1) * row_bytes;
  return std::clamp<std::int64_t>((std::int64_t{1} << 18) / (bytes_a_bag < 1 ? 1 : bytes_a_bag), 4, 4096);
}

// The rows of some bags in the order of their positions, each asked for `distance` positions ahead of its use.
// Dim 0: of any dim. Plain: without weights, streams and slabs, as most are, less is read for each bag, which short bags feel.
template <class Element, int Dim, bool Plain>
class row_queue {
 public:
  [[gnu::always_inline]] row_queue(host_rows<Element> const& table, std::int64_t const* slots, float const* weights, std::int64_t rows,
                                   bool streams)
      : table_(table),
        places_(table.places),
        slot_bound_(table.slot_bound),
        slots_(slots),
        weights_(weights),
        rows_(rows),
        streams_(streams) {
    if constexpr (Plain) places_.slabs = nullptr;
  }

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
      auto const* const whole = row(slots_[p]);
      auto const scale_of_row = row_scale<Element>::of(whole);
      auto const* const columns = opaque(whole + first);
      float const weight = Plain || weights_ == nullptr ? 1.0F : weights_[p];
      for (int c = 0; c < Width; ++c) sum[c] = multiply_add(weight, scale_of_row.value(columns[c]), sum[c]);
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

  std::int64_t dim() const noexcept { return Dim == 0 ? places_.dim : Dim; }
  // Of a slot that was asked for, and so is there.
  Element const* row(std::int64_t slot) const noexcept(!checks_indices) {
    if constexpr (checks_indices) return table_.row(slot);
    return static_cast<Element const*>(places_.row(slot)) + row_scale<Element>::lead;
  }
  std::int64_t distance() const noexcept { return prefetch_distance<Element>(dim()); }
  [[gnu::always_inline]] bool ask() {
    __builtin_prefetch(slots_ + asked_ + slots_ahead);
    auto const slot = slots_[asked_++];
    if (static_cast<std::uint64_t>(slot) >= static_cast<std::uint64_t>(slot_bound_)) [[unlikely]]
      return false;
    prefetch_row(row(slot), dim());
    return true;
  }

  host_rows<Element> const& table_;
  row_places places_;  // a copy, which lives in registers
  std::int64_t slot_bound_;
  std::int64_t const* slots_;
  float const* weights_;
  std::int64_t rows_, asked_ = 0;
  bool streams_;
};

/// The bags of one key that are to be pooled. The type of the table's elements is known to the reader alone.
struct bag_request {
  std::int64_t key;
  jagged_view<std::int64_t const> bags;  // ids
  std::int64_t const* slots;             // slots[p - first_position] belongs to bags.values[p]
  std::int64_t first_position;           // of the batch
  float const* weights;                  // weights[p] of position p; nullptr: 1 of all
  pooling mode;
  bool streams;           // past the caches, as far as vectors are whole lines
  std::int32_t* winners;  // (bags, dim), of a maximum: which row of the bag has it; nullptr: nobody asks
  lookup_options const* options;
  matrix_view<float> out;  // (bags, dim)
};

/// `slots`: of the batch's values, its first value first. `is_large`: whether the results of all keys exceed the caches.
inline bag_request bag_request_of(std::int64_t key, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, pooling mode,
                                  bool is_large, pooled_argmax* argmax, lookup_options const& options, matrix_view<float> out) noexcept {
  return {key,
          batch.key(key),
          slots,
          first_value(batch),
          batch.weighted() ? batch.weights : nullptr,
          mode,
          is_large && starts_lines(out),
          argmax == nullptr ? nullptr : argmax->of(key),
          &options,
          out};
}

/// Pools the bags [first, last) of a request.
template <class Element>
struct bag_reader {
  host_rows<Element> const& table;
  bag_request const& of;

  // A negative number: none.
  std::int64_t slot(std::int64_t position) const noexcept {
    auto const slot = of.slots[position - of.first_position];
    return table.holds(slot) ? slot : -1;
  }
  float weight_of(std::int64_t position) const noexcept { return of.weights == nullptr ? 1.0F : of.weights[position]; }

  void pool(std::int64_t first, std::int64_t last) const {
    if (of.mode == pooling::max) return pool_largest(first, last);
    bool const is_whole = pool_complete(first, last);
    if (of.streams) finish_streams();
    if (!is_whole) pool_incomplete(first, last);
  }

  // Says whether all ids of these bags have rows; where one has none, nothing is promised of the vectors.
  bool pool_complete(std::int64_t first, std::int64_t last) const {
    return with_static_dim(table.dim(), [&](auto dim) { return pool_bags<dim()>(first, last); });
  }
  template <int Dim>
  bool pool_bags(std::int64_t first, std::int64_t last) const {
    return of.weights == nullptr && !of.streams && table.places.slabs == nullptr ? pool_bags<Dim, true>(first, last)
                                                                                 : pool_bags<Dim, false>(first, last);
  }
  template <int Dim, bool Plain>
  [[gnu::noinline]] bool pool_bags(std::int64_t first_bag, std::int64_t last_bag) const {
    if (Dim > 0 && table.dim() != Dim) __builtin_unreachable();
    auto const first = of.bags.begin_of(first_bag);
    row_queue<Element, Dim, Plain> rows(table, of.slots + (first - of.first_position), of.weights == nullptr ? nullptr : of.weights + first,
                                        of.bags.begin_of(last_bag) - first, of.streams);
    if (!rows.begin()) return false;
    auto const pooled = of.mode;
    auto const* const offsets = of.bags.offsets;
    float* to = of.out.row(first_bag);
    std::int64_t p = 0;
    for (auto bag = first_bag; bag < last_bag; ++bag, to += of.out.stride()) {
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
    auto p = of.bags.begin_of(bag);
    while (slot(p) >= 0) ++p;
    while (p >= of.bags.end_of(bag)) ++bag;
    throw error(errc::out_of_range, "pooled_lookup: id out of range",
                {{"feature", of.key},
                 {"table", table.options().id.value},
                 {"row", bag},
                 {"position", p - of.bags.begin_of(bag)},
                 {"id", of.bags.values[p]},
                 {"rows", table.slot_bound}});
  }

  // Bags of any rows, each summed in place.
  void pool_incomplete(std::int64_t first_bag, std::int64_t last_bag) const {
    if (table.slots_are_ids && of.options->out_of_range == out_of_range_ids::refuse) refuse(first_bag);
    std::int64_t lacking = 0;
    auto const dim = table.dim(), last_position = of.bags.end_of(last_bag - 1);
    auto const distance = prefetch_distance<Element>(dim);
    for (auto bag = first_bag; bag < last_bag; ++bag) {
      float* __restrict const sum = of.out.row(bag);
      std::fill_n(sum, dim, 0.0F);
      for (auto p = of.bags.begin_of(bag); p < of.bags.end_of(bag); ++p) {
        if (p + distance < last_position && slot(p + distance) >= 0) prefetch_row(table.row(slot(p + distance)), dim);
        if (slot(p) < 0) {
          ++lacking;
          if (!table.slots_are_ids) add_initial(p, sum);  // else it reads as zeros
          continue;
        }
        float const weight = weight_of(p);
        auto const* const row = opaque(table.row(slot(p)));
        auto const scale = row_scale<Element>::of(row);
        for (std::int64_t c = 0; c < dim; ++c) sum[c] = multiply_add(weight, scale.value(row[c]), sum[c]);
      }
      auto const scale = pooling_scale(of.mode, of.bags.length(bag));
      for (std::int64_t c = 0; c < dim; ++c) sum[c] *= scale;
    }
    if (table.slots_are_ids) count_out_of_range(*of.options, lacking);
  }

  // Bags [first, last): the largest element of each column, and whose it is. A NaN stays.
  void pool_largest(std::int64_t first_bag, std::int64_t last_bag) const {
    auto const dim = table.dim(), last_position = of.bags.end_of(last_bag - 1);
    auto const distance = prefetch_distance<Element>(dim);
    std::int64_t lacking = 0;
    for (auto bag = first_bag; bag < last_bag; ++bag) {
      float* __restrict const largest = of.out.row(bag);
      std::int32_t* __restrict const winner = of.winners == nullptr ? nullptr : of.winners + bag * dim;
      std::fill_n(largest, dim, 0.0F);
      if (winner != nullptr) std::fill_n(winner, dim, -1);
      for (auto p = of.bags.begin_of(bag); p < of.bags.end_of(bag); ++p) {
        if (p + distance < last_position && slot(p + distance) >= 0) prefetch_row(table.row(slot(p + distance)), dim);
        auto const place = static_cast<std::int32_t>(p - of.bags.begin_of(bag));
        auto const take = [&](std::int64_t c, float value) {
          bool const wins = place == 0 || value > largest[c] || value != value;
          largest[c] = wins ? value : largest[c];
          if (winner != nullptr) winner[c] = wins ? place : winner[c];
        };
        if (slot(p) >= 0) {
          auto const* const row = opaque(table.row(slot(p)));
          auto const scale = row_scale<Element>::of(row);
          for (std::int64_t c = 0; c < dim; ++c) take(c, scale.value(row[c]));
          continue;
        }
        if (table.slots_are_ids) {
          if (of.options->out_of_range == out_of_range_ids::refuse) refuse(bag);
          ++lacking;
          for (std::int64_t c = 0; c < dim; ++c) take(c, 0.0F);
        } else {
          for_each_initial_element(table.options(), of.bags.values[p],
                                   [&](std::int64_t c, float value) { take(c, stored_initial<Element>(table.options(), value)); });
        }
      }
    }
    if (table.slots_are_ids) count_out_of_range(*of.options, lacking);
  }

  // The row that the id would get. Apart, as its call costs the others their registers.
  [[gnu::noinline]] void add_initial(std::int64_t position, float* sum) const {
    float const weight = weight_of(position);
    for_each_initial_element(table.options(), of.bags.values[position], [&](std::int64_t c, float value) {
      sum[c] = multiply_add(weight, stored_initial<Element>(table.options(), value), sum[c]);
    });
  }
};

/// Pools the bags [first, last) of a request. Its callers are compiled without what it does, where an instance of it is declared.
template <class Element>
void pool_bags(host_rows<Element> const& table, bag_request const& request, std::int64_t first, std::int64_t last) {
  bag_reader<Element>{table, request}.pool(first, last);
}

#define TESSERA_INSTANCE_OF_POOL_BAGS(how, Element) \
  how void pool_bags(host_rows<Element> const&, bag_request const&, std::int64_t, std::int64_t);
#if TESSERA_COMPILED
TESSERA_FOR_ROW_ELEMENTS(TESSERA_INSTANCE_OF_POOL_BAGS, extern template)
#endif

/// Calls read(request, table, first bag, last bag) for all keys, piece by piece, on any threads. `tables` give dims and row bytes.
template <class Read>
void read_bags(host_exec const& exec, vector_view<row_places const> tables, vector_view<pooled_feature const> features,
               keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
               lookup_options const& options, pooled_argmax* argmax, Read const& read) {
  if (argmax != nullptr) argmax->resize(exec, features, batch, [&](std::int64_t key) { return tables[features[key].table].dim; });
  bool const is_large = exceeds_caches(out);
  auto const rows = [&](std::int64_t key) { return batch.rows(key); };
  auto const grain = [&](std::int64_t key) {
    return bags_per_piece(batch.rows(key), batch.key(key).size(), tables[features[key].table].row_bytes);
  };
  for_each_piece_of(exec, batch.keys, rows, grain, [&](std::int64_t key, std::int64_t first, std::int64_t last) {
    auto const request = bag_request_of(key, batch, slots, features[key].pooling, is_large, argmax, options, out[key]);
    read(request, features[key].table, first, last);
  });
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
