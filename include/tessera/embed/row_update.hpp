// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The random words that round elements [4 * index, 4 * index + 4) of a row, where rows are not float. The words depend on (seed, step,
/// table, row, column) of the whole table alone. The kind of store, the optimizer and whoever updates the row do not change them.
TESSERA_HOST_DEVICE constexpr random_block rounding_block(table_options const& table, step_count step, std::int64_t id,
                                                          std::int64_t index) noexcept {
  random_seed const of_step{table.seed.value ^ mix_bits(static_cast<std::uint64_t>(step.value))};
  return detail::row_block(of_step, table, id, index);
}

namespace detail {

/// Joins sixteen running sums pairwise.
TESSERA_HOST_DEVICE inline float join_lanes(float const* lane) noexcept {
  float eight[8], four[4];
  for (int k = 0; k < 8; ++k) eight[k] = lane[k] + lane[k + 8];
  for (int k = 0; k < 4; ++k) four[k] = eight[k] + eight[k + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// The sum of n squares, in sixteen running sums and one of the remainder. So the order depends on n alone, and the loop is vectorised.
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

/// Rounds a row of n elements to what it stores. The random words are drawn for many elements at once, in vectors.
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

/// Some rows of a table, each of them once, with their summed gradients.
struct summed_rows {
  std::int64_t const* slots;  // (count,)
  std::int64_t const* ids;    // (count,), or of the positions below
  std::int64_t const* first;  // (count,): a position of each row, or nullptr
  std::int64_t count;
  float* gradients;  // (count, dim); overwritten where the optimizer changes them first
  float* scratch;    // (dim,), where rows are not float

  // Read where it is needed: by rows that are rounded.
  std::int64_t id(std::int64_t i) const noexcept { return first == nullptr ? ids[i] : ids[first[i]]; }
};

/// Updates one row by its summed gradient: `gradient` (dim,), which the optimizer may overwrite; `scratch` (dim,), used where rows are not
/// float.
template <class Element, class Optimizer>
void update_row(Optimizer const& optimizer, host_rows<Element> const& table, std::int64_t slot, std::int64_t id, float* __restrict gradient,
                [[maybe_unused]] float* __restrict scratch) noexcept {
  using element = Element;
  constexpr bool rounded = !std::is_same_v<element, float>;
  auto const n = table.dim();
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

/// Updates some rows of a table. It and `rules_of`, which calls it, are what is instantiated for each pair of an element
/// and an optimizer.
template <class Element, class Optimizer>
[[gnu::noinline]] void update_summed(host_rows<Element> const& table, Optimizer const& optimizer, summed_rows const& rows) noexcept {
  for (std::int64_t i = 0; i < rows.count; ++i)
    update_row(optimizer, table, rows.slots[i], rows.id(i), rows.gradients + i * table.dim(), rows.scratch);
}

#define TESSERA_INSTANCE_OF_UPDATE(how, Element, Optimizer) \
  how void update_summed(host_rows<Element> const&, Optimizer const&, summed_rows const&) noexcept;
#define TESSERA_INSTANCES_OF_UPDATES(how, Element) TESSERA_FOR_ROW_OPTIMIZERS(TESSERA_INSTANCE_OF_UPDATE, how, Element)
#if TESSERA_COMPILED
TESSERA_FOR_ROW_ELEMENTS(TESSERA_INSTANCES_OF_UPDATES, extern template)
#endif

/// The optimizers of a call as a view: of the one for all tables, or of one a table.
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

/// @throws tessera::error incompatible for a table that was built for another optimizer than one whose state is `needed`.
inline void check_state_layout(char const* call, table_options const& table, row_state_layout built, row_state_layout needed) {
  if (built.per_row != needed.per_row || built.per_element != needed.per_element)
    throw error(errc::incompatible, std::string(call) + ": the table was built for another optimizer",
                {{"table", table.id.value},
                 {"built for", built.optimizer},
                 {"optimizer", needed.optimizer},
                 {"state a row", built.width(table.dim)},
                 {"needed", needed.width(table.dim)}});
  if (needed.per_row + needed.per_element > 0) check_optimizer_kind(call, built.optimizer, needed.optimizer);
}

inline void check_optimizer_count(char const* call, std::int64_t tables, std::int64_t optimizers) {
  if (optimizers != 1 && optimizers != tables)
    throw error(errc::shape_mismatch, std::string(call) + ": one optimizer, or one a table",
                {{"tables", tables}, {"optimizers", optimizers}});
}

template <class Store, class Optimizer>
void check_optimizers(char const* call, vector_view<Store const> tables, vector_view<Optimizer const> optimizers) {
  check_optimizer_count(call, tables.size(), optimizers.size());
  for (auto const& optimizer : optimizers) check_optimizer(optimizer);
  if (tables.empty()) return;
  auto const needed = row_state_layout::of(optimizers[0]);
  for (auto const& table : tables) check_state_layout(call, table.options(), table.state_layout(), needed);
}

template <class Store>
void count_step(vector_view<Store> tables) noexcept {
  for (auto& table : tables) table.set_steps(step_count{table.steps().value + 1});
}
/// As above; the kernels' view of each table counts the step, too.
template <class Store, class Element>
void count_step(vector_view<Store> tables, vector_view<host_rows<Element>> rows) noexcept {
  count_step(tables);
  for (std::int64_t t = 0; t < tables.size(); ++t) rows[t].step = tables[t].steps();
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
