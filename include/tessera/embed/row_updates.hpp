// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera::inline TESSERA_ABI {

/// A row's gradient is summed in ascending order of (sample, key, position in the bag), by chunks of this many, the chunks' sums then in
/// order: however a batch is cut over ranks, and long runs over threads, the sum has one value. Keys come into it where they share a table.
inline constexpr std::int64_t canonical_sum_chunk = 1024;

/// The random words that round elements [4 * index, 4 * index + 4) of a row to what it stores, where that is not float. They depend on
/// (seed, step, table, id, element) alone: not on the kind of store, the optimizer, or who updates the row.
TESSERA_HOST_DEVICE constexpr random_block rounding_block(table_options const& table, step_count step, std::int64_t id,
                                                          std::int64_t index) noexcept {
  random_seed const of_step{table.seed.value ^ mix_bits(static_cast<std::uint64_t>(step.value))};
  return philox(of_step, static_cast<std::uint64_t>(id), static_cast<std::uint32_t>(table.id.value), static_cast<std::uint32_t>(index));
}

namespace detail {

/// What one position of the batch adds to the gradient of its row.
struct row_contribution {
  float const* gradient;    // (dim,), of the position's bag
  float scale;              // weight, over the bag's length for a mean
  std::int32_t place = -1;  // of a maximum: the position in its bag; behind the gradient stands whose each column is, (dim,) std::int32_t

  /// Calls add(column, gradient) for each column. Those of a maximum that another row of the bag has won add zero.
  template <class Add>
  [[gnu::always_inline]] void for_each_column(std::int64_t n, Add const& add) const noexcept {
    auto const* const from = opaque(gradient);
    if (place < 0) {
      for (std::int64_t c = 0; c < n; ++c) add(c, from[c]);
    } else {
      auto const* const winners = from + n;
      for (std::int64_t c = 0; c < n; ++c) add(c, std::bit_cast<std::int32_t>(winners[c]) == place ? from[c] : 0.0F);
    }
  }
};

/// The summed gradient of a row over its sorted positions, in canonical order. `Dim` 0: any dim; `sum`, `chunk_sum` (dim,). `Maxima`: some
/// may be of maxima. To ask each of them costs the others their registers, so that it is said once for all.
template <int Dim, bool Maxima = false, class Position>
void sum_contributions(row_contribution const* contributions, Position const* positions, std::int64_t count, std::int64_t dim, float* sum,
                       float* chunk_sum) noexcept {
  auto const n = Dim == 0 ? dim : Dim;
  auto const add_chunk = [&](std::int64_t first, std::int64_t last, float* __restrict to) {
    constexpr bool in_registers = Dim > 0 && Dim <= 64;
    float lanes[in_registers ? std::size_t{Dim} : 1];
    float* const chunk = in_registers ? lanes : to;
    auto const& head = contributions[positions[first]];
    if constexpr (Maxima) {
      head.for_each_column(n, [&](std::int64_t c, float gradient) { chunk[c] = head.scale * gradient; });
      for (auto i = first + 1; i < last; ++i) {
        auto const& next = contributions[positions[i]];
        next.for_each_column(n, [&](std::int64_t c, float gradient) { chunk[c] = multiply_add(next.scale, gradient, chunk[c]); });
      }
    } else {
      for (std::int64_t c = 0; c < n; ++c) chunk[c] = head.scale * head.gradient[c];
      for (auto i = first + 1; i < last; ++i) {
        auto const scale = contributions[positions[i]].scale;
        auto const* const gradient = opaque(contributions[positions[i]].gradient);
        for (std::int64_t c = 0; c < n; ++c) chunk[c] = multiply_add(scale, gradient[c], chunk[c]);
      }
    }
    if (in_registers) std::copy(chunk, chunk + n, to);
  };
  add_chunk(0, std::min(count, canonical_sum_chunk), sum);
  for (auto first = canonical_sum_chunk; first < count; first += canonical_sum_chunk) {
    add_chunk(first, std::min(count, first + canonical_sum_chunk), chunk_sum);
    for (std::int64_t c = 0; c < n; ++c) sum[c] += chunk_sum[c];
  }
}

/// Of a batch in which some features may pool by maximum: of any dim, as such a sum waits for the winners.
template <int Dim, class Position>
[[gnu::always_inline]] inline void sum_contributions_of(lookup_saved const& saved, row_contribution const* contributions,
                                                        Position const* positions, std::int64_t count, std::int64_t dim, float* sum,
                                                        float* chunk_sum) noexcept {
  if (saved.largest.size() > 0) [[unlikely]]
    sum_contributions<0, true>(contributions, positions, count, dim, sum, chunk_sum);
  else
    sum_contributions<Dim>(contributions, positions, count, dim, sum, chunk_sum);
}

/// Joins sixteen running sums pairwise.
TESSERA_HOST_DEVICE inline float join_lanes(float const* lane) noexcept {
  float eight[8], four[4];
  for (int k = 0; k < 8; ++k) eight[k] = lane[k] + lane[k + 8];
  for (int k = 0; k < 4; ++k) four[k] = eight[k] + eight[k + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// In sixteen running sums and one of what is left, so that the order depends on n alone and the loop runs in vectors.
inline float sum_of_squares(float const* values, std::int64_t n) noexcept {
  float lane[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    auto const* const block = opaque(values + i);
    for (int k = 0; k < 16; ++k) lane[k] = multiply_add(block[k], block[k], lane[k]);
  }
  float rest = 0;  // not into the lanes: vectors written by elements and read at once wait for the cache, row after row
  for (int k = 0; k < n - i; ++k) rest = multiply_add(values[i + k], values[i + k], rest);
  return join_lanes(lane) + rest;
}

/// Stores a row of n elements by the row's random words, which are drawn for many elements at once, in vectors.
template <class Element>
void round_row(row_scale<Element> scale, table_options const& table, step_count step, std::int64_t id, float const* __restrict weights,
               Element* __restrict row, std::int64_t n) noexcept {
  constexpr std::int64_t most = 64;
  std::uint32_t words[most];
  for (std::int64_t first = 0; first < n; first += most) {
    auto const count = std::min(most, n - first);
    for (std::int64_t b = 0; b < divide_up(count, 4); ++b) {
      auto const block = rounding_block(table, step, id, first / 4 + b);
      for (int k = 0; k < 4; ++k) words[4 * b + k] = block[k];
    }
    for (std::int64_t c = 0; c < count; ++c) row[first + c] = scale.stochastic(weights[first + c], words[c]);
  }
}

/// One row's update. `gradient` (dim,) is overwritten where the optimizer changes it first; `scratch` (dim,) where rows are not float.
template <int Dim, class Store, class Optimizer>
void update_row(Optimizer const& optimizer, Store& table, std::int64_t slot, std::int64_t id, float* __restrict gradient,
                [[maybe_unused]] float* __restrict scratch) noexcept {
  using element = typename Store::element;
  constexpr bool rounded = !std::is_same_v<element, float>;
  auto const n = Dim == 0 ? table.dim() : Dim;
  element* __restrict const row = table.row(slot);
  float* __restrict const state = table.state(slot);
  float* __restrict weights = nullptr;
  if constexpr (rounded) {
    weights = scratch;
    auto const scale = row_scale<element>::of(row);
    for (std::int64_t c = 0; c < n; ++c) weights[c] = scale.value(row[c]);
  } else {
    weights = row;
  }
  if constexpr (changes_gradients<Optimizer>)
    for (std::int64_t c = 0; c < n; ++c) gradient[c] = optimizer.gradient_of(gradient[c], weights[c]);
  // A policy that reads what it did not ask for shall see that.
  auto const squares = uses_sum_of_squares<Optimizer> ? sum_of_squares(gradient, n) : std::numeric_limits<float>::quiet_NaN();
  auto const factor = optimizer.begin_row(state, row_gradient{squares, n, table.steps()});
  float* const elements = state + Optimizer::row_state;
  for (std::int64_t c = 0; c < n; ++c)
    optimizer.update(weights[c], elements + (Optimizer::element_state > 0 ? c : 0), n, gradient[c], factor);
  if constexpr (rounded) {  // in braces for nvcc's front end
    auto const scale = row_scale<element>::for_values(weights, n);
    scale.write_to(row);
    round_row(scale, table.options(), table.steps(), id, weights, row, n);
  }
}

/// One optimizer for all tables, or a container of one a table.
template <row_optimizers Optimizers>
auto per_table(Optimizers const& optimizers) noexcept {
  if constexpr (row_optimizer<Optimizers>)
    return vector_view<Optimizers const>{&optimizers, 1};
  else
    return vector_view<element_in<Optimizers const> const>(optimizers);
}

template <class Optimizer>
Optimizer const& of_table(vector_view<Optimizer const> optimizers, std::int64_t table) noexcept {
  return optimizers.data()[optimizers.size() == 1 ? 0 : table];
}

template <class Store, class Optimizer>
void check_optimizers(char const* call, vector_view<Store const> tables, vector_view<Optimizer const> optimizers) {
  if (optimizers.size() != 1 && optimizers.size() != tables.size())
    throw error(errc::shape_mismatch, std::string(call) + ": one optimizer, or one a table",
                {{"tables", tables.size()}, {"optimizers", optimizers.size()}});
  for (auto const& optimizer : optimizers) check_optimizer(optimizer);
  if (tables.empty()) return;
  auto const needed = row_state_layout::of(optimizers[0]);
  for (auto const& table : tables) {
    if (table.state_layout().per_row != needed.per_row || table.state_layout().per_element != needed.per_element)
      throw error(errc::incompatible, std::string(call) + ": the table was built for another optimizer",
                  {{"table", table.options().id.value},
                   {"built for", table.state_layout().optimizer},
                   {"optimizer", needed.optimizer},
                   {"state a row", table.state_layout().width(table.dim())},
                   {"needed", needed.width(table.dim())}});
    check_optimizer_kind(call, table.state_layout().optimizer, optimizers[0]);
  }
}

template <class Store>
void count_step(vector_view<Store> tables) noexcept {
  for (auto& table : tables) table.set_steps(step_count{table.steps().value + 1});
}

/// `with_static_dim` where positions and slots are Indices. For those of more than 32 bits, which few batches need, no dim has a loop of its
/// own: each pair of a table and an optimizer would have them all once more.
template <class Index, class F>
void with_dim_of(std::int64_t dim, F const& f) {
  if constexpr (sizeof(Index) <= 4)
    with_static_dim(dim, f);
  else
    f(std::integral_constant<int, 0>{});
}

/// A run of sorted positions that name one row.
template <class Index>
struct slot_run {
  std::int64_t table;
  std::int64_t slot;
  Index const* positions;
  std::int64_t count;  // how many contributions there are to sum
};

/// Runs that would keep one thread busy while others wait; a longer one has more chunks than one chunk sums.
constexpr bool is_shared_run(std::int64_t count) noexcept {
  return count >= 4 * canonical_sum_chunk && count <= canonical_sum_chunk * canonical_sum_chunk;
}

/// The sorted positions of all tables, cut into pieces; a run of equal slots belongs to the piece that it starts in.
template <class Index>
struct run_pieces {
  static constexpr std::int64_t positions_per_piece = 256;

  vector_view<table_order<Index> const> tables;
  piece_list pieces;
  std::int64_t width = 0;  // the widest dim without a loop, and so without room on the stack, of its own
  buffer<float> scratch;   // (3, width) a piece

  template <class Store>
  run_pieces(host_exec const& exec, row_sort<Index> const& sorted, vector_view<Store const> stores)
      : tables(sorted.tables.view()),
        pieces(exec, tables.size(), [this](std::int64_t t) { return divide_up(tables[t].count, positions_per_piece); }) {
    for (auto const& store : stores)
      with_dim_of<Index>(store.dim(), [&](auto dim) { width = std::max<std::int64_t>(width, dim() > 0 ? 0 : store.dim()); });
    scratch.resize(exec, 3 * width * count());
  }

  std::int64_t count() const noexcept { return pieces.count(); }
  std::int64_t table_of(std::int64_t piece) const noexcept { return pieces.range_of(piece); }

  /// Calls f(run, its table's order, where in it the run ends) for each run of a piece. @pre the sums of shared runs are there.
  template <class F>
  void for_each_run(std::int64_t piece, F const& f) const noexcept {
    auto const t = table_of(piece);
    auto const& order = tables[t];
    auto first = (piece - pieces.first_of(t)) * positions_per_piece;
    auto const last = std::min(order.count, first + positions_per_piece);
    while (first < last && first > 0 && order.slots[first] == order.slots[first - 1]) ++first;  // begun by the piece before
    while (first < last) {
      auto end = first + 1;
      while (end < order.count && order.slots[end] == order.slots[first]) ++end;
      auto const count = is_shared_run(end - first) ? divide_up(end - first, canonical_sum_chunk) : end - first;
      f(slot_run<Index>{t, static_cast<std::int64_t>(order.slots[first]), order.positions + first, count}, order, end);
      first = end;
    }
  }
};

/// The chunks of shared runs, summed by all threads: each sum stands in for the contributions of its chunk, in the run's first positions.
template <class Index>
class shared_runs {
 public:
  template <class Store>
  shared_runs(host_exec const& exec, vector_view<Store const> tables, row_sort<Index> const& sorted, lookup_saved const& saved,
              row_contribution* contributions) {
    std::int64_t count = 0, floats = 0;
    for_each(sorted, [&](std::int64_t t, Index const*, std::int64_t n) {
      ++count;
      floats += divide_up(n, canonical_sum_chunk) * tables[t].dim();
    });
    if (count == 0) return;
    buffer<run> runs(exec, count);
    sums_.resize(exec, floats);
    auto* next = runs.data();
    auto* sums = sums_.data();
    for_each(sorted, [&](std::int64_t t, Index const* positions, std::int64_t n) {
      *next++ = {positions, n, tables[t].dim(), sums};
      sums += divide_up(n, canonical_sum_chunk) * tables[t].dim();
    });
    for_each_piece_of(
        exec, count, [&](std::int64_t r) { return runs[r].count; }, [](std::int64_t) { return canonical_sum_chunk; },
        [&](std::int64_t r, std::int64_t first, std::int64_t last) {
          auto const& of = runs[r];
          auto* const sum = of.sums + first / canonical_sum_chunk * of.dim;
          sum_contributions_of<0>(saved, contributions, of.positions + first, last - first, of.dim, sum, sum);
        });
    for (auto const& of : runs)
      for (std::int64_t chunk = 0; chunk < divide_up(of.count, canonical_sum_chunk); ++chunk)
        contributions[of.positions[chunk]] = {of.sums + chunk * of.dim, 1.0F, -1};
  }

 private:
  struct run {
    Index const* positions;
    std::int64_t count;
    std::int64_t dim;
    float* sums;  // (chunks, dim)
  };

  // Calls f(table, positions, count) for each. One holds a multiple of `step`, and half as many positions before or behind it.
  template <class F>
  static void for_each(row_sort<Index> const& sorted, F const& f) {
    constexpr std::int64_t step = 4 * canonical_sum_chunk;
    for (std::int64_t t = 0; t < sorted.tables.size(); ++t) {
      auto const& order = sorted.tables[t];
      auto const* const slots = order.slots;
      std::int64_t last = 0;  // of the run before
      for (std::int64_t i = 0; i < order.count; i += step) {
        if (i < last || order.count < step) continue;
        auto const before = std::max<std::int64_t>(i - step / 2, 0), behind = std::min(i + step / 2, order.count) - 1;
        if (slots[before] != slots[i] && slots[behind] != slots[i]) continue;
        auto const first = std::lower_bound(slots + last, slots + i, slots[i]) - slots;
        last = std::upper_bound(slots + i, slots + order.count, slots[i]) - slots;
        if (is_shared_run(last - first)) f(t, order.positions + first, last - first);
      }
    }
  }

  buffer<float> sums_;
};

/// Starts loading what an update reads first: a row, its state, the gradient of one of its positions.
template <int Dim, class Store, class Index>
[[gnu::always_inline]] inline void prefetch_update(Store& table, table_order<Index> const& order, std::int64_t i,
                                                   row_contribution const* contributions) noexcept {
  auto const dim = Dim == 0 ? table.dim() : Dim;
  auto const slot = static_cast<std::int64_t>(order.slots[i]);
  prefetch_row(contributions[order.positions[i]].gradient, dim);
  if (i > 0 && order.slots[i - 1] == order.slots[i]) return;
  prefetch_row(table.row(slot), dim);
  if (table.state_layout().per_row + table.state_layout().per_element > 0) __builtin_prefetch(table.state(slot), 1);
}

/// Sums the gradient of each row that the batch names and updates the row, each once, on any threads.
template <class Index, class Store, class Optimizer>
void update_sorted_rows(host_exec const& exec, vector_view<Store> tables, run_pieces<Index>& pieces, lookup_saved const& saved,
                        row_contribution const* contributions, vector_view<Optimizer const> optimizers) {
  auto const* const ids = saved.batch.values + first_value(saved.batch);
  exec.run(pieces.count(), [&](std::int64_t piece) {
    auto const t = pieces.table_of(piece);
    auto& table = tables[t];
    auto const& optimizer = of_table(optimizers, t);
    with_dim_of<Index>(table.dim(), [&](auto dim) {
      alignas(64) float on_stack[dim() > 0 ? 3 * dim() : 1];
      auto const width = dim() > 0 ? std::int64_t{dim()} : pieces.width;
      float* const sum = dim() > 0 ? on_stack : pieces.scratch.data() + 3 * width * piece;
      auto const distance = prefetch_distance<typename Store::element>(table.dim());
      std::int64_t ahead = 0;
      pieces.for_each_run(piece, [&](slot_run<Index> const& run, table_order<Index> const& order, std::int64_t end) {
        for (ahead = std::max(ahead, end); ahead < std::min(order.count, end + distance); ++ahead)
          prefetch_update<dim()>(table, order, ahead, contributions);
        sum_contributions_of<dim()>(saved, contributions, run.positions, run.count, table.dim(), sum, sum + width);
        update_row<dim()>(optimizer, table, run.slot, ids[run.positions[0]], sum, sum + 2 * width);
      });
    });
  });
}

/// A fused backward: `contribute(contributions)` fills in what each position adds. Nothing changes before all memory is there.
template <class Store, class Feature, class Optimizer, class Contribute>
void update_rows_of(host_exec const& exec, char const* call, vector_view<Store> tables, vector_view<Feature const> features,
                    lookup_saved const& saved, vector_view<Optimizer const> optimizers, Contribute const& contribute) {
  vector_view<Store const> const held(tables);
  check_saved_rows(exec, call, held, features, saved);
  buffer<row_contribution> contributions(exec, saved.batch.size());
  contribute(contributions.view());
  with_order(exec, held, features, saved, [&](auto const& sorted) {
    run_pieces pieces(exec, sorted, held);
    shared_runs const shared(exec, held, sorted, saved, contributions.data());
    count_step(tables);
    update_sorted_rows(exec, tables, pieces, saved, contributions.data(), optimizers);
  });
}

}  // namespace detail

}  // namespace tessera::inline TESSERA_ABI
