// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera::inline TESSERA_ABI {

/// What a lookup does with an id that its store can never hold.
enum class out_of_range_ids : std::uint8_t {
  refuse,  ///< an error that names it; nothing has changed then. On a device: when it synchronises, and till then as `zero`
  zero,    ///< it reads as zeros, counts in its bag's length, and gets no gradient
};

struct lookup_options {
  out_of_range_ids out_of_range = out_of_range_ids::refuse;
  std::int64_t* out_of_range_count = nullptr;  ///< grows by the number of such ids, where given; in the execution's memory
};

namespace detail {
template <class Store, class Exec>
std::int64_t const* slots_in(keyed_jagged_view<std::int64_t const> batch, buffer<std::int64_t, Exec> const& slots) noexcept {
  if constexpr (!Store::slots_are_ids) return slots.data();
  if constexpr (device_execution<Exec>) return nullptr;  // kernels take the ids
  return batch.size() == 0 ? nullptr : batch.values + first_value(batch);
}

/// What a prepared backward keeps: `row_order` on the host.
template <class Exec>
struct order_of {
  static_assert(dependent_false<Exec>, "prepare_backward: no back end for this execution; for CUDA include <tessera/embed/row_order.cuh>");
};
template <>
struct order_of<host_exec> {
  using type = row_order;
};
}  // namespace detail

namespace detail {
/// Of each bag and column of the features that pool by maximum: which row of the bag has it, -1 of an empty bag.
class largest_rows {
 public:
  /// Makes room for a batch, in which perhaps no feature pools so; `dim_of(key)`: of its table.
  template <class Feature, class DimOf>
  void resize(host_exec const& exec, vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch,
              DimOf const& dim_of) {
    clear();
    if (std::none_of(features.begin(), features.end(), [](Feature const& feature) { return feature.is_largest(); })) return;
    first_.resize(exec, batch.keys + 1);
    first_[0] = 0;
    for (std::int64_t key = 0; key < batch.keys; ++key)
      first_[key + 1] = first_[key] + (features[key].is_largest() ? batch.rows(key) * dim_of(key) : 0);
    rows_.resize(exec, first_[batch.keys]);
    keys_ = batch.keys;
  }
  /// No feature pools so; the memory stays.
  void clear() noexcept { keys_ = 0; }
  /// (bags of the key, dim); nullptr: the key pools otherwise.
  std::int32_t* of(std::int64_t key) noexcept { return size(key) > 0 ? rows_.data() + first_[key] : nullptr; }
  std::int32_t const* of(std::int64_t key) const noexcept { return size(key) > 0 ? rows_.data() + first_[key] : nullptr; }
  /// Of all keys, one after the other.
  std::int32_t const* of_all() const noexcept { return rows_.data(); }
  std::int64_t size() const noexcept { return keys_ == 0 ? 0 : rows_.size(); }
  /// Bags of the key times its dim; 0: the key pools otherwise.
  std::int64_t size(std::int64_t key) const noexcept { return key < keys_ ? first_[key + 1] - first_[key] : 0; }
  std::size_t bytes() const noexcept { return first_.capacity_bytes() + rows_.capacity_bytes(); }

 private:
  std::int64_t keys_ = 0;       // of the batch, where any pools so
  buffer<std::int64_t> first_;  // (keys + 1,)
  buffer<std::int32_t> rows_;
};
}  // namespace detail

/// What a backward needs of its forward. The caller owns it; any number may be in flight. The batch's memory must outlive it, and so
/// must the rows: a store may evict only what no lookup in flight names. `lookup_saved` is that of the host.
template <execution Exec>
struct basic_lookup_saved {
  keyed_jagged_view<std::int64_t const> batch;
  buffer<std::int64_t, Exec> slots;                  // one a value of the batch; unused where slots are ids
  typename detail::order_of<Exec>::type order = {};  // made by `prepare_backward` for this batch; else each backward makes its own
  detail::largest_rows largest = {};                 // of features that pool by maximum

  std::size_t bytes() const noexcept { return slots.capacity_bytes() + order.bytes() + largest.bytes(); }

  /// The slot of each value of the batch, from its first value on.
  template <row_store Store>
  std::int64_t const* slots_of() const noexcept {
    return detail::slots_in<Store>(batch, slots);
  }

  /// Fits no batch any more. The memory stays, whose owner may be another thread's.
  void clear() noexcept {
    batch = {};
    order.clear();
    largest.clear();
  }
};
using lookup_saved = basic_lookup_saved<host_exec>;

namespace detail {

/// A feature names its table, or is the number of its table.
template <class Feature>
constexpr std::int64_t table_of(Feature const& feature) noexcept {
  if constexpr (requires { feature.table; })
    return feature.table;
  else
    return feature;
}

/// The row that a slot names, or a negative number: an id that a dense table does not hold, one that a hashed store did not admit.
template <class Store>
std::int64_t held_slot(Store const& store, std::int64_t slot) noexcept {
  if constexpr (Store::slots_are_ids) return store.holds(slot) ? slot : -1;
  return slot;
}

/// The same pointer, of which the compiler knows nothing: a loop over rows then takes one after the other, each in vectors. Left to
/// itself, g++ 12 works on two rows at once and gathers their elements one by one.
template <class Element>
Element const* opaque(Element const* row) noexcept {
  asm volatile("" : "+r"(row));
  return row;
}

// Elements [first, first + n) of a row that the store does not have (yet), as it would first appear.
template <class Element>
[[gnu::noinline]] void write_initial(table_options const& options, std::int64_t id, std::int64_t first, std::int64_t n,
                                     float* to) noexcept {
  for_each_initial_element(options, id, first, first + n,
                           [&](std::int64_t i, float value) { to[i - first] = stored_initial<Element>(options, value); });
}

/// `validate` by all threads; how many values there are, the view may not know. On a device kernels look at the offsets.
template <device_execution Exec>
void validate_batch(Exec const&, keyed_jagged_view<std::int64_t const> batch) {
  validate_row_counts(batch);
}
inline void validate_batch(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch) {
  constexpr std::int64_t rows_per_piece = 1 << 13;
  validate_row_counts(batch);
  auto const all = batch.flat();
  std::atomic<bool> is_wrong = all.rows > 0 && (all.offsets == nullptr || all.offsets[0] < 0);
  if (!is_wrong)
    for_each_piece(exec, all.rows, rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      std::int64_t decreases = 0;
      for (auto row = first; row < last; ++row) decreases += all.end_of(row) < all.begin_of(row);
      if (decreases > 0) is_wrong = true;
    });
  auto const most = batch.room >= 0 ? batch.room : std::numeric_limits<std::int64_t>::max();
  if (is_wrong || (all.rows > 0 && all.offsets[all.rows] > most)) validate(batch, most);  // names the first that is
}

template <class Store, class Feature>
void check_lookup_call(char const* call, vector_view<Store const> tables, vector_view<Feature const> features,
                       keyed_jagged_view<std::int64_t const> batch, std::int64_t matrices) {
  if (features.size() != batch.keys || matrices != batch.keys)
    throw error(errc::shape_mismatch, std::string(call) + ": one feature and one matrix a key of the batch",
                {{"keys", batch.keys}, {"features", features.size()}, {"matrices", matrices}});
  for (std::int64_t key = 0; key < batch.keys; ++key)
    if (auto const table = table_of(features[key]); table < 0 || table >= tables.size())
      throw error(errc::out_of_range, std::string(call) + ": no such table",
                  {{"feature", key}, {"table", table}, {"tables", tables.size()}});
}

inline void check_lookup_matrix(char const* call, std::int64_t feature, std::int64_t rows, std::int64_t dim,
                                matrix_view<float const> matrix) {
  if (matrix.rows() != rows || matrix.columns() != dim || matrix.stride() < dim)
    throw error(errc::shape_mismatch, std::string(call) + ": a matrix does not fit its feature",
                {{"feature", feature},
                 {"rows", matrix.rows()},
                 {"rows expected", rows},
                 {"columns", matrix.columns()},
                 {"dim", dim},
                 {"stride", matrix.stride()}});
}

/// What a backward is given fits what a forward saved.
template <class Store, class Feature, class Exec>
void check_saved(char const* call, vector_view<Feature const> features, basic_lookup_saved<Exec> const& saved) {
  if (saved.batch.keys == 0 && !features.empty())
    throw error(errc::shape_mismatch, std::string(call) + ": nothing is saved: no lookup went before, or it threw",
                {{"keys", saved.batch.keys}, {"features", features.size()}});
  auto const values = [&] {
    if constexpr (device_execution<Exec>) {  // as many as there is room for: how many there are, only the device knows
      if (saved.batch.rows() == 0) return std::int64_t{0};
      if (saved.batch.room >= 0) return saved.batch.room;
      return Store::slots_are_ids ? saved.order.values() : saved.slots.size();
    } else
      return saved.batch.size();
  }();
  if (!Store::slots_are_ids && saved.slots.size() != values)
    throw error(errc::shape_mismatch, std::string(call) + ": one slot a value; was it saved by a lookup in such tables?",
                {{"values", values}, {"slots", saved.slots.size()}});
  if (saved.order.ready() && saved.order.values() != values)
    throw error(errc::shape_mismatch, std::string(call) + ": the order was prepared for another batch",
                {{"values", values}, {"values of the order", saved.order.values()}});
  if constexpr (device_execution<Exec>)
    if (saved.order.ready() && saved.order.rows() != saved.batch.rows())
      throw error(errc::shape_mismatch, std::string(call) + ": the order was prepared for another batch",
                  {{"rows", saved.batch.rows()}, {"rows of the order", saved.order.rows()}});
}

// The slots still name the rows of these ids; a negative slot names none. `of` number `number`: whose ids they are.
template <class Store>
void check_rows_stay(host_exec const& exec, char const* call, char const* of, std::int64_t number, Store const& table,
                     vector_view<std::int64_t const> ids, std::int64_t const* slots) {
  buffer<std::int64_t> found(exec, ids.size());
  table.find(exec, ids, found.view());
  for (std::int64_t i = 0; i < ids.size(); ++i)
    if (slots[i] >= 0 && slots[i] != found[i])
      throw error(errc::out_of_range, std::string(call) + ": an id's row is no longer where it was",
                  {{of, number}, {"position", i}, {"id", ids[i]}, {"slot", slots[i]}, {"slot now", found[i]}});
}

template <class Exec>
struct sort_rows_impl {
  static_assert(dependent_false<Exec>, "prepare_backward: no back end for this execution; for CUDA include <tessera/embed/row_order.cuh>");
};

template <class Store, class Feature>
void sort_rows(host_exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features, lookup_saved const& saved,
               row_order& order) {
  auto const* const slots = saved.template slots_of<Store>();
  order.sort(
      exec, tables, saved.batch, [&](std::int64_t key) { return table_of(features[key]); },
      [slots](Store const& store, std::int64_t position) { return held_slot(store, slots[position]); });
}

// In a checked build: what a forward saved is as it left it, so are the rows that it read, and a prepared order is theirs. Other builds
// trust an order that has as many values as the batch.
template <class Store, class Feature>
void check_saved_rows(host_exec const& exec, char const* call, vector_view<Store const> tables, vector_view<Feature const> features,
                      lookup_saved const& saved) {
  if constexpr (checked) {
    auto const batch = saved.batch;
    validate(batch, std::numeric_limits<std::int64_t>::max());
    if constexpr (!Store::slots_are_ids)
      for (std::int64_t key = 0; key < batch.keys; ++key) {
        auto const bags = batch.key(key);
        if (bags.rows == 0) continue;
        auto const first = bags.offsets[0] - first_value(batch);
        check_rows_stay(exec, call, "feature", key, tables[table_of(features[key])], {bags.values + bags.offsets[0], bags.size()},
                        saved.slots.data() + first);
      }
    if (saved.order.ready()) {
      row_order expected;
      sort_rows(exec, tables, features, saved, expected);
      if (auto const table = saved.order.first_difference(expected); table >= 0)
        throw error(errc::invalid_argument, std::string(call) + ": the order was prepared for other ids, tables or features",
                    {{"table", table}, {"values", saved.batch.size()}});
    }
  }
}

// Every id of every feature to its slot, before any row is read. Where rows may leave, ids that have one come first, those of all keys: what
// one key brings in would else push out what another names.
template <bool Insert, class Stores, class Feature>
void locate_all(host_exec const& exec, Stores tables, vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch,
                buffer<std::int64_t>& slots) {
  if constexpr (Insert)
    for (auto& table : tables)
      if constexpr (requires { table.begin_batch(); }) table.begin_batch();
  slots.resize(exec, batch.size());
  auto const for_each_key = [&](auto const& f) {
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      auto const bags = batch.key(key);
      if (bags.rows == 0) continue;
      vector_view<std::int64_t const> const ids{bags.values + bags.offsets[0], bags.size()};
      f(tables[table_of(features[key])], ids, slots.view().slice(bags.offsets[0] - first_value(batch), bags.size()));
    }
  };
  if constexpr (!Insert) {
    for_each_key([&](auto& table, auto ids, auto to) { table.find(exec, ids, to); });
  } else if constexpr (requires(vector_view<std::int64_t const> ids, vector_view<std::int64_t> to) {
                         tables.data()->locate_held(exec, ids, to);
                       }) {
    for_each_key([&](auto& table, auto ids, auto to) { table.locate_held(exec, ids, to); });
    for_each_key([&](auto& table, auto ids, auto to) { table.locate_new(exec, ids, to); });
  } else {
    for_each_key([&](auto& table, auto ids, auto to) { table.locate(exec, ids, to, {}); });
  }
}

template <class Exec>
struct locate_all_impl {
  static_assert(dependent_false<Exec>, "lookups: hashed tables have no back end here; for CUDA include <tessera/embed/bucket_table.cuh>");
};
// Likewise, all keys at once.
template <bool Insert, device_execution Exec, class Store, class Feature>
void locate_all(Exec const& exec, vector_view<Store> tables, vector_view<Feature const> features,
                keyed_jagged_view<std::int64_t const> batch, buffer<std::int64_t, Exec>& slots) {
  if constexpr (Insert)
    for (auto& table : tables)
      if constexpr (requires { table.begin_batch(); }) table.begin_batch();
  locate_all_impl<Exec>::template run<Insert>(exec, tables, features, batch, slots);
}

/// Calls f(detail::row_sort) with the order that was prepared, or with one made for the call.
template <class Store, class Feature, class F>
void with_order(host_exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features, lookup_saved const& saved,
                F const& f) {
  if (saved.order.ready()) return saved.order.visit(f);
  row_order order;
  sort_rows(exec, tables, features, saved, order);
  order.visit(f);
}

/// What a forward does around its reading of rows: `read(slots)`. Fills `saved` only when nothing has thrown. @pre `saved` is clear: what a
/// throw leaves, that of a check before this too, fits no batch.
template <execution Exec, class Store, class Feature, class Read>
void training_lookup(Exec const& exec, vector_view<Store> tables, vector_view<Feature const> features,
                     keyed_jagged_view<std::int64_t const> batch, basic_lookup_saved<Exec>& saved, Read const& read) {
  if constexpr (!Store::slots_are_ids) locate_all<true>(exec, tables, features, batch, saved.slots);
  read(slots_in<Store>(batch, saved.slots));
  saved.batch = batch;
}

template <execution Exec, class Store, class Feature, class Read>
void evaluation_lookup(Exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features,
                       keyed_jagged_view<std::int64_t const> batch, Read const& read) {
  basic_lookup_saved<Exec> local{batch, {}, {}};
  if constexpr (!Store::slots_are_ids) locate_all<false>(exec, tables, features, batch, local.slots);
  read(local.template slots_of<Store>());
}

inline void count_out_of_range(lookup_options const& options, std::int64_t ids) noexcept {
  if (options.out_of_range_count != nullptr) std::atomic_ref(*options.out_of_range_count).fetch_add(ids, std::memory_order_relaxed);
}

struct prepare_backward_fn {
  template <execution Exec, row_stores Tables, container Features>
  void operator()(Exec const& exec, Tables const& tables, Features const& features, basic_lookup_saved<Exec>& saved) const {
    using store = element_in<Tables const>;
    expect_tables_of<Exec, store>();
    vector_view<store const> const held(tables);
    vector_view<element_in<Features const> const> const of_keys(features);
    check_saved<store>("prepare_backward", of_keys, saved);
    check_lookup_call("prepare_backward", held, of_keys, saved.batch, saved.batch.keys);
    if constexpr (device_execution<Exec>)
      sort_rows_impl<Exec>::run(exec, held, of_keys, saved, saved.order);
    else
      sort_rows(exec, held, of_keys, saved, saved.order);
  }
};

}  // namespace detail

/// Sorts the ids of a lookup by row, which its backward would otherwise do first: `prepare_backward(exec, tables, features, saved)`. It
/// reads no row, so it may run while other batches are computed. `features` as in the forward that filled `saved`. On a device it waits for
/// one number where the batch does not say its `room`; sorted on a stream of its own, `saved` goes, or is prepared anew, when that stream has
/// waited for the backward.
/// @throws tessera::error shape_mismatch, out_of_range.
inline constexpr detail::prepare_backward_fn prepare_backward{};

}  // namespace tessera::inline TESSERA_ABI
