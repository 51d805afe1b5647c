// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera::inline TESSERA_ABI {

/// A row's gradient is summed in ascending order of (sample, key, position in the bag), by chunks of this many, the chunks' sums then in
/// order: however a batch is cut over ranks, and long runs over threads, the sum has one value. Keys come into it where they share a table.
inline constexpr std::int64_t canonical_sum_chunk = 1024;

namespace detail {

/// What one position of the batch adds to the gradient of its row.
struct row_contribution {
  float const* gradient;  // (dim,), of the position's bag
  float scale;            // weight, over the bag's length for a mean
};

/// The summed gradient of a row over its sorted positions, in canonical order. `Dim` 0: any dim; `sum`, `chunk_sum` (dim,).
template <int Dim, class Position>
void sum_contributions(row_contribution const* contributions, Position const* positions, std::int64_t count, std::int64_t dim, float* sum,
                       float* chunk_sum) noexcept {
  auto const n = Dim == 0 ? dim : Dim;
  auto const add_chunk = [&](std::int64_t first, std::int64_t last, float* __restrict to) {
    constexpr bool in_registers = Dim > 0 && Dim <= 64;
    float lanes[in_registers ? std::size_t{Dim} : 1];
    float* const chunk = in_registers ? lanes : to;
    auto const& head = contributions[positions[first]];
    for (std::int64_t c = 0; c < n; ++c) chunk[c] = head.scale * head.gradient[c];
    for (auto i = first + 1; i < last; ++i) {
      auto const scale = contributions[positions[i]].scale;
      auto const* const gradient = opaque(contributions[positions[i]].gradient);
      for (std::int64_t c = 0; c < n; ++c) chunk[c] = multiply_add(scale, gradient[c], chunk[c]);
    }
    if (in_registers) std::copy(chunk, chunk + n, to);
  };
  add_chunk(0, std::min(count, canonical_sum_chunk), sum);
  for (auto first = canonical_sum_chunk; first < count; first += canonical_sum_chunk) {
    add_chunk(first, std::min(count, first + canonical_sum_chunk), chunk_sum);
    for (std::int64_t c = 0; c < n; ++c) sum[c] += chunk_sum[c];
  }
}

/// Sixteen running sums joined pairwise, so that the order depends on n alone and the loop runs in vectors.
inline float sum_of_squares(float const* values, std::int64_t n) noexcept {
  float lane[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    auto const* const block = opaque(values + i);
    for (int k = 0; k < 16; ++k) lane[k] = multiply_add(block[k], block[k], lane[k]);
  }
  for (int k = 0; k < n - i; ++k) lane[k] = multiply_add(values[i + k], values[i + k], lane[k]);
  for (int half = 8; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
  return lane[0];
}

template <int Dim, class Optimizer>
void update_row(Optimizer const& optimizer, float* __restrict weights, float* __restrict state, float const* __restrict gradient,
                std::int64_t dim, step_count step) noexcept {
  auto const n = Dim == 0 ? dim : Dim;
  auto const factor = optimizer.begin_row(state, row_gradient{sum_of_squares(gradient, n), n, step});
  float* const elements = state + Optimizer::row_state;
  for (std::int64_t c = 0; c < n; ++c)
    optimizer.update(weights[c], elements + (Optimizer::element_state > 0 ? c : 0), n, gradient[c], factor);
}

template <class Exec>
struct pooled_lookup_backward_impl {
  static_assert(dependent_false<Exec>,
                "pooled_lookup_backward: no back end for this execution; for CUDA include <tessera/embed/pooled_lookup_backward.cuh>");
};

template <>
struct pooled_lookup_backward_impl<host_exec> {
  static constexpr std::int64_t positions_per_piece = 256;

  // The part of the sorted positions that belongs to one table.
  template <class Index>
  struct table_run {
    std::int64_t first;  // in the arrays of all tables
    std::int64_t count;
    Index const* slots;  // sorted, wherever the sort left them
    Index const* positions;
    std::int64_t first_piece;
  };

  template <class Store, class Optimizer>
  static void run(host_exec const& exec, vector_view<Store> tables, vector_view<pooled_feature const> features,
                  pooled_lookup_saved const& saved, vector_view<matrix_view<float const> const> gradients, Optimizer const& optimizer) {
    std::int64_t largest = saved.batch.size();
    for (auto const& table : tables) largest = std::max(largest, table.rows());
    if (largest <= std::int64_t{std::numeric_limits<std::uint32_t>::max()})
      run_with<std::uint32_t>(exec, tables, features, saved, gradients, optimizer);
    else
      run_with<std::uint64_t>(exec, tables, features, saved, gradients, optimizer);
  }

  template <class Index, class Store, class Optimizer>
  static void run_with(host_exec const& exec, vector_view<Store> tables, vector_view<pooled_feature const> features,
                       pooled_lookup_saved const& saved, vector_view<matrix_view<float const> const> gradients,
                       Optimizer const& optimizer) {
    auto const& batch = saved.batch;
    auto const n = batch.size();
    buffer<row_contribution> contributions(exec, n);
    buffer<Index> keys(exec, n), positions(exec, n), key_scratch(exec, n), position_scratch(exec, n);
    buffer<table_run<Index>> runs(exec, tables.size());
    std::int64_t first = 0;
    for (std::int64_t t = 0; t < tables.size(); ++t) {
      runs[t] = {first, 0, nullptr, nullptr, 0};
      for (std::int64_t key = 0; key < batch.keys; ++key)
        if (features[key].table == t) runs[t].count += batch.key(key).size();
      first += runs[t].count;
    }
    exec.run(tables.size(), [&](std::int64_t t) {
      auto& r = runs[t];
      collect(t, features, saved.slots_of<Store>(), batch, gradients, contributions.data(), keys.data() + r.first,
              positions.data() + r.first);
      auto const bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(tables[t].rows() - 1, 0))));
      auto const sorted = radix_sort_serial(keys.data() + r.first, positions.data() + r.first, r.count, {0, bits},
                                            key_scratch.data() + r.first, position_scratch.data() + r.first);
      r.slots = sorted.first;
      r.positions = sorted.second;
    });
    std::int64_t pieces = 0, widest = 0;
    for (std::int64_t t = 0; t < tables.size(); ++t) {
      runs[t].first_piece = pieces;
      pieces += divide_up(runs[t].count, positions_per_piece);
      widest = std::max(widest, tables[t].dim());
    }
    buffer<float> sums(exec, 2 * widest * pieces);
    for (auto& table : tables) table.set_steps(step_count{table.steps().value + 1});
    exec.run(pieces, [&](std::int64_t piece) {
      auto const t = std::upper_bound(runs.begin(), runs.end(), piece, [](std::int64_t p, auto const& r) { return p < r.first_piece; }) -
                     runs.begin() - 1;
      auto const first_position = (piece - runs[t].first_piece) * positions_per_piece;
      float* const sum = sums.data() + 2 * widest * piece;
      switch (tables[t].dim()) {
        case 16: return update_rows<16>(tables[t], runs[t], first_position, contributions.data(), optimizer, sum);
        case 32: return update_rows<32>(tables[t], runs[t], first_position, contributions.data(), optimizer, sum);
        case 64: return update_rows<64>(tables[t], runs[t], first_position, contributions.data(), optimizer, sum);
        case 128: return update_rows<128>(tables[t], runs[t], first_position, contributions.data(), optimizer, sum);
        default: return update_rows<0>(tables[t], runs[t], first_position, contributions.data(), optimizer, sum);
      }
    });
  }

  // The positions of one table's features by (sample, key, position in the bag), with the slot of each and what it adds.
  template <class Index>
  static void collect(std::int64_t table, vector_view<pooled_feature const> features, std::int64_t const* slots,
                      keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float const> const> gradients,
                      row_contribution* contributions, Index* keys, Index* positions) noexcept {
    std::int64_t first_key = batch.keys, last_key = 0, samples = 0;
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      if (features[key].table != table) continue;
      first_key = std::min(first_key, key);
      last_key = key + 1;
      samples = std::max(samples, batch.rows(key));
    }
    for (std::int64_t sample = 0; sample < samples; ++sample)
      for (auto key = first_key; key < last_key; ++key) {
        if (features[key].table != table || sample >= batch.rows(key)) continue;
        auto const bags = batch.key(key);
        auto const scale = pooling_scale(features[key].pooling, bags.length(sample));
        for (auto p = bags.begin_of(sample); p < bags.end_of(sample); ++p) {
          auto const position = p - batch.offsets[0];
          contributions[position] = {gradients[key].row(sample), batch.weighted() ? scale * batch.weights[p] : scale};
          *keys++ = static_cast<Index>(slots[position]);
          *positions++ = static_cast<Index>(position);
        }
      }
  }

  // The rows whose runs of positions start in this piece; each read and written once.
  template <int Dim, class Store, class Index, class Optimizer>
  static void update_rows(Store& table, table_run<Index> const& run, std::int64_t first, row_contribution const* contributions,
                          Optimizer const& optimizer, float* sum) noexcept {
    constexpr std::int64_t ahead = 8;
    auto const last = std::min(run.count, first + positions_per_piece);
    while (first < last && first > 0 && run.slots[first] == run.slots[first - 1]) ++first;  // begun by the piece before
    while (first < last) {
      auto end = first + 1;
      while (end < run.count && run.slots[end] == run.slots[first]) ++end;
      if (end + ahead < run.count) {
        auto const next = static_cast<std::int64_t>(run.slots[end + ahead]);
        __builtin_prefetch(table.row(next), 1);
        if (Optimizer::row_state + Optimizer::element_state > 0) __builtin_prefetch(table.state(next), 1);
        __builtin_prefetch(contributions[run.positions[end + ahead]].gradient);
      }
      auto const slot = static_cast<std::int64_t>(run.slots[first]);
      sum_contributions<Dim>(contributions, run.positions + first, end - first, table.dim(), sum, sum + table.dim());
      update_row<Dim>(optimizer, table.row(slot), table.state(slot), sum, table.dim(), table.steps());
      first = end;
    }
  }
};

struct pooled_lookup_backward_fn {
  template <execution Exec, class Tables, row_optimizer Optimizer>
  void operator()(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features, pooled_lookup_saved const& saved,
                  vector_view<matrix_view<float const> const> gradients, Optimizer const& optimizer) const {
    using store = store_of<Tables>;
    vector_view<store> const stores(tables);
    vector_view<store const> const held(tables);
    check_pooled_call("pooled_lookup_backward", held, features, saved.batch, gradients.size());
    if (!store::slots_are_ids && saved.slots.size() != saved.batch.size())
      throw error(errc::shape_mismatch, "pooled_lookup_backward: one slot a value; was it saved by a lookup in such tables?",
                  {{"values", saved.batch.size()}, {"slots", saved.slots.size()}});
    for (std::int64_t key = 0; key < saved.batch.keys; ++key)
      check_pooled_matrix("pooled_lookup_backward", key, saved.batch.rows(key), held[features[key].table].dim(), gradients[key]);
    auto const needed = row_state_layout::of(optimizer);
    for (auto const& table : held)
      if (table.state_layout().per_row != needed.per_row || table.state_layout().per_element != needed.per_element)
        throw error(errc::incompatible, "pooled_lookup_backward: the table was built for another optimizer",
                    {{"table", table.options().id.value},
                     {"state a row", table.state_layout().width(table.dim())},
                     {"needed", needed.width(table.dim())}});
    pooled_lookup_backward_impl<Exec>::run(exec, stores, features, saved, gradients, optimizer);
  }
};

}  // namespace detail

/// Turns the gradients of pooled vectors into updates of the rows they were pooled from; each touched row is read and written once.
///
/// `pooled_lookup_backward(exec, tables, features, saved, gradients, optimizer)`: tables and features as in the forward that filled
/// `saved`; `gradients` (keys,): matrices (rows of the key, dim), any stride; every table was built with this kind of optimizer.
/// Rows that the batch does not name do not change; each table's step count grows by one, whether or not the batch names it.
/// @post a row's gradient is summed in canonical order (`canonical_sum_chunk`): the thread count changes nothing.
/// Workspace: about 40 bytes a value, from `exec`'s memory. @throws tessera::error shape_mismatch, out_of_range, incompatible.
inline constexpr detail::pooled_lookup_backward_fn pooled_lookup_backward{};

}  // namespace tessera::inline TESSERA_ABI
