// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_optimizer.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What `locate` did with an id.
enum class row_status : std::uint8_t {
  found,         ///< it had a row
  inserted,      ///< it got one now, with its initial values
  not_admitted,  ///< the store keeps no row for it; slot -1
  evicted,       ///< it got the row of an id that had to leave
  moved,         ///< its row lives elsewhere now; slot -1
  out_of_range,  ///< the store can never hold it; slot -1
};

/// One embedding table, or a shard of one: rows [first_row, first_row + rows) and columns [first_column, first_column + dim) of the whole
/// table.
///
/// Initial weights are uniform in [-init_bound, init_bound), rounded to the nearest value of the store's elements. Rows with a scale start
/// with the scale that covers init_bound. Both initial weights and the words that round a step (`rounding_block`) depend on (seed, id, row,
/// column) of the whole table alone. The kind of store, its size and its shards change neither.
/// @post shards take the steps of the whole table, bit for bit, under the same gradients, with two exceptions for shards of columns. A
/// row-wise optimizer sees the shard's columns alone. `scaled_int8` rows choose the scale of the shard's columns alone after their first
/// step, which is never coarser than that of the whole row.
struct table_options {
  /// Tables that share a seed must differ in it, or they start with the same rows; so must all tables of one list, unless they begin with
  /// other columns of one table.
  table_id id{};
  std::int64_t dim = 0;  ///< elements a row, at least 1
  /// Dense: ids are 0 … rows - 1; hash_table: how many to make room for at first; bucket_table: for how many there ever is.
  std::int64_t rows = 0;
  float init_bound = 0.01F;
  random_seed seed{};
  std::int64_t most_rows = std::numeric_limits<std::int64_t>::max();  ///< hashed: at once
  /// Hashed: rows located in the last so many batches, the current one included, do not leave by themselves. Each training lookup counts as
  /// a batch, so the number covers the lookups between a lookup and its backward. It is 2 where a step looks up the same tables twice.
  std::int64_t batches_in_flight = 1;
  /// Where ids are slots, they count from the shard's first row: 0 … rows - 1. Hashed tables take ids of the whole table: 0 there.
  std::int64_t first_row = 0;
  /// A multiple of 4: as many columns share a block of random words, which the kernels of a shard draw whole.
  std::int64_t first_column = 0;
  /// Of a dense table that has scattered rows of a larger one: the id there of each row, (rows,), in the memory of the store's execution. Such
  /// a table starts and rounds as the larger one. Null: rows count from `first_row`. The ids outlive the table.
  std::int64_t const* row_ids = nullptr;
};

namespace detail {

/// The random words for elements [4 * index, 4 * index + 4) of an id's row, counted in the shard. They depend on the row and the columns of
/// the whole table.
TESSERA_HOST_DEVICE constexpr random_block row_block(random_seed seed, table_options const& table, std::int64_t id,
                                                     std::int64_t index) noexcept {
  auto const row = table.row_ids == nullptr ? static_cast<std::uint64_t>(id) + static_cast<std::uint64_t>(table.first_row)
                                            : static_cast<std::uint64_t>(table.row_ids[id]);
  return philox(seed, row, static_cast<std::uint32_t>(table.id.value), static_cast<std::uint32_t>(index + table.first_column / 4));
}

}  // namespace detail

/// Elements [4 * index, 4 * index + 4) of an id's initial row.
TESSERA_HOST_DEVICE constexpr random_block initial_row_block(table_options const& table, std::int64_t id, std::int64_t index) noexcept {
  return detail::row_block(table.seed, table, id, index);
}

/// Calls f(i, value) for elements [first, last) of an id's initial row in order.
template <class F>
constexpr void for_each_initial_element(table_options const& table, std::int64_t id, std::int64_t first, std::int64_t last, F const& f) {
  while (first < last) {
    auto const block = initial_row_block(table, id, first / 4);
    for (auto k = static_cast<int>(first % 4); k < 4 && first < last; ++k, ++first) f(first, uniform_symmetric(block[k], table.init_bound));
  }
}
/// As above for all elements of the row.
template <class F>
constexpr void for_each_initial_element(table_options const& table, std::int64_t id, F const& f) {
  for_each_initial_element(table, id, 0, table.dim, f);
}

namespace detail {

inline constexpr std::int64_t rows_per_init_piece = 4096;

/// The scale of rows as they first appear.
template <row_element Element>
TESSERA_HOST_DEVICE constexpr row_scale<Element> initial_scale(table_options const& table) noexcept {
  return row_scale<Element>::covering(magnitude_of(table.init_bound));
}
/// An element of an initial row, as read back from what is stored.
template <row_element Element>
TESSERA_HOST_DEVICE constexpr float stored_initial(table_options const& table, float value) noexcept {
  auto const scale = initial_scale<Element>(table);
  return scale.value(scale.nearest(value));
}

// Initial weights (dim,) and optimizer state (width,) of an id.
template <row_element Element>
void initialise_row(table_options const& table, row_state_layout layout, std::int64_t id, Element* row, float* state) noexcept {
  auto const scale = initial_scale<Element>(table);
  for_each_initial_element(table, id, [row, &scale](std::int64_t i, float value) { row[i] = scale.nearest(value); });
  scale.write_to(row);
  std::fill_n(state, layout.width(table.dim), layout.initial);
}

// Elements [first, first + n) of a row that a store does not have (yet), as it would first appear.
template <class Element>
[[gnu::noinline]] void write_initial(table_options const& options, std::int64_t id, std::int64_t first, std::int64_t n,
                                     float* to) noexcept {
  for_each_initial_element(options, id, first, first + n,
                           [&](std::int64_t i, float value) { to[i - first] = stored_initial<Element>(options, value); });
}

/// How many rows ahead of its use a row is prefetched: about 4 KiB of them.
constexpr std::int64_t prefetch_distance(std::int64_t row_bytes) noexcept {
  return std::clamp<std::int64_t>(4096 / std::max<std::int64_t>(row_bytes, 1), 4, 32);
}
template <row_element Element>
constexpr std::int64_t prefetch_distance(std::int64_t dim) noexcept {
  return prefetch_distance(row_scale<Element>::extent(dim) * static_cast<std::int64_t>(sizeof(Element)));
}

/// Prefetches the first lines of a row; the hardware foresees the others. They go to the second level of cache: the first one has few lines
/// in flight, which current reads need. It and its callers are inlined by force: g++ takes a function that only prefetches for one without
/// effect, and drops the calls.
[[gnu::always_inline]] inline void prefetch_bytes(void const* first, std::int64_t bytes) noexcept {
  constexpr std::int64_t most_bytes = 1024, line_bytes = 64;
  for (std::int64_t byte = 0; byte < std::min(most_bytes, bytes); byte += line_bytes)
    __builtin_prefetch(static_cast<char const*>(first) + byte, 0, 2);
}
template <class Element>
[[gnu::always_inline]] inline void prefetch_row(Element const* row, std::int64_t dim) noexcept {
  using scale = row_scale<Element>;
  prefetch_bytes(row - scale::lead, scale::extent(dim) * static_cast<std::int64_t>(sizeof(Element)));
}

/// Calls f(std::integral_constant<int, Dim>) with the dims that have loops of their own, or 0 for any other. A checked build has two of
/// them, enough to show what the others could do wrong; it compiles faster.
template <class F>
auto with_static_dim(std::int64_t dim, F const& f) {
  if constexpr (!checked) {
    switch (dim) {
      case 4: return f(std::integral_constant<int, 4>{});
      case 8: return f(std::integral_constant<int, 8>{});
      case 32: return f(std::integral_constant<int, 32>{});
      case 64: return f(std::integral_constant<int, 64>{});
      default: break;
    }
  }
  switch (dim) {
    case 16: return f(std::integral_constant<int, 16>{});
    case 128: return f(std::integral_constant<int, 128>{});
    default: return f(std::integral_constant<int, 0>{});
  }
}

void check_table_options(char const* store, table_options const& options, row_state_layout layout);

/// Checks the options of a store whose ids are not slots.
void check_hashed_options(char const* store, table_options const& options, row_state_layout layout);

void check_locate_shapes(char const* call, std::int64_t ids, std::int64_t slots, std::int64_t statuses);

// For checked builds.
void check_slot(char const* store, table_options const& options, std::int64_t slot, std::int64_t bound);

}  // namespace detail

namespace detail {
template <class S>
struct execution_of_store {
  using type = host_exec;
};
template <class S>
  requires requires { typename S::execution_type; }
struct execution_of_store<S> {
  using type = typename S::execution_type;
};
}  // namespace detail

/// The execution in whose memory a row store lies: `S::execution_type`, or `host_exec` where it names none.
template <class S>
using execution_of = typename detail::execution_of_store<std::remove_cv_t<S>>::type;

/// Holds embedding rows and, beside each, its optimizer state. A caller first locates ids, then reads and updates rows by slot.
/// - `locate(exec, ids, slots, statuses)` writes the slot of each id. An id without a row gets one where the store's policy admits it; a
///   repeated id gets one row. A slot is valid until its row leaves the store. `statuses` may be empty. Calls must not overlap.
/// - `find(exec, ids, slots)` writes the slot of each id, or -1 for an id without a row. It changes nothing.
/// - `row(slot)`: (dim,), which `row_scale` reads and writes. `state(slot)`: (state_layout().width(dim),). @pre slot in [0, slot_bound()),
///   which a checked build checks.
/// - `rows()` is how many rows it holds. Every slot lies in [0, slot_bound()). `for_each_row(f)` calls f(slot, id) for each row held.
/// - `slots_are_ids`: whether `locate` is the identity for ids in [0, rows()), so that lookups skip it.
/// - `begin_batch()` is optional: a training lookup calls it once a table, before `locate`.
/// - `locate_held` and `locate_new` are optional: the two halves of `locate`. A training lookup calls the first for all its keys before the
///   second. No new id then takes the row of an id that another key names.
///
/// `locate` may give slot -1 to any id. A lookup then reads the row that the id would get, and no update happens.
///
/// `host_rows()` is the view that kernels of the host take (embed/host_rows.hpp).
///
/// A store on a device (`execution_type`) takes and gives memory of that device: ids, slots, rows and states. Its kernels take
/// `device_rows()`, plain data with `row`, `state`, `options`, `dim`, `steps`, `holds(slot)` and `id_of(slot)`. Where slots are not ids,
/// `in_range(id)` says whether the store can hold an id.
template <class S>
concept row_store = requires(S& store, S const& held, execution_of<S> const& exec, vector_view<std::int64_t const> ids,
                             vector_view<std::int64_t> slots, vector_view<row_status> statuses, std::int64_t slot,
                             void (*f)(std::int64_t, std::int64_t)) {
  requires row_element<typename S::element>;
  { S::slots_are_ids } -> std::convertible_to<bool>;
  { held.options() } -> std::convertible_to<table_options const&>;
  { held.dim() } -> std::same_as<std::int64_t>;
  { held.rows() } -> std::same_as<std::int64_t>;
  { held.slot_bound() } -> std::same_as<std::int64_t>;
  held.for_each_row(f);
  { held.state_layout() } -> std::convertible_to<row_state_layout>;
  { held.steps() } -> std::same_as<step_count>;
  store.set_steps(step_count{});
  store.locate(exec, ids, slots, statuses);
  held.find(exec, ids, slots);
  { store.row(slot) } -> std::same_as<typename S::element*>;
  { held.row(slot) } -> std::same_as<typename S::element const*>;
  { store.state(slot) } -> std::same_as<float*>;
  { held.state(slot) } -> std::same_as<float const*>;
  { held.bytes() } -> std::same_as<std::size_t>;
}
&&((device_execution<execution_of<S>> && requires(S const& held) { held.device_rows(); }) ||
   (!device_execution<execution_of<S>> && requires(S const& held) { held.host_rows(); }));

namespace detail {

/// Refuses, at compile time, tables that lie in other memory than that of the call's execution.
template <class Exec, class Store>
constexpr void expect_tables_of() noexcept {
  constexpr bool on_host = !device_execution<Exec> && !device_execution<execution_of<Store>>;
  static_assert(on_host || std::same_as<execution_of<Store>, Exec>,
                "the tables lie in another execution's memory: on a GPU they are dense_table<E, cuda_exec>, bucket_table or row_cache");
}

/// Refuses, at compile time, const tables of a call that changes tables.
template <class Tables>
constexpr void expect_mutable_tables() noexcept {
  static_assert(!std::is_const_v<std::remove_pointer_t<decltype(std::declval<Tables&>().data())>>,
                "this call changes its tables, which are const here");
}

template <class C>
concept container = requires(C& c) {
  { c.size() } -> std::convertible_to<std::size_t>;
  *c.data();
};
template <class C>
using element_in = std::remove_cv_t<std::remove_pointer_t<decltype(std::declval<C&>().data())>>;

// What a container holds; anything else stands for itself.
template <class T>
struct one_of {
  using type = T;
};
template <container T>
struct one_of<T> {
  using type = element_in<T>;
};

}  // namespace detail

/// The tables of a call: a container of one kind of row store, as std::vector and vector_view are.
template <class T>
concept row_stores = detail::container<T> && row_store<detail::element_in<T>>;

/// The optimizers of a call: one for all tables, or a container of one a table.
template <class T>
concept row_optimizers = row_optimizer<typename detail::one_of<T>::type>;

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/embed/row_store.ipp>
#endif
