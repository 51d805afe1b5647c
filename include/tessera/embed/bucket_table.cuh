// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/radix_sort.cuh>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bag_units.cuh>
#include <tessera/embed/bucket_kernels.cuh>
#include <tessera/embed/bucket_table.hpp>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/locate_batch.hpp>
#include <tessera/embed/row_order.cuh>
#include <tessera/embed/row_store.hpp>

/// Locates the ids of many tables at once: a thread finds each value of a batch, then those without a row get one.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The values of a batch, found in many tables at once. `table_of` (keys,): the table of each key. Slots of values that are not found are -1.
/// Where rows are inserted, `claim` takes slots for the others. Rows of evicted ids stay in their slots until `settle`, after which each
/// claimed slot waits for its new row. The constructor allocates all memory before anything changes.
template <bool Insert, class Rows, class Exec>
class found_values {
 public:
  template <class Store>
  found_values(Exec const& exec, vector_view<Store> tables, std::vector<std::int64_t> const& table_of, std::int64_t const* ids,
               std::int64_t const* begins, vector_view<std::int64_t> slots, vector_view<row_status> statuses)
      : exec_(exec),
        room_(slots.size()),
        numbers_(exec, Insert ? room_ : 0),
        claimed_(exec, Insert ? room_ : 0),
        count_(exec, 1),
        parts_(to_device(exec, rows_of(tables, table_of))),
        values_{ids, begins, parts_.data(), parts_.size(), slots.data(), statuses.empty() ? nullptr : statuses.data()} {
    exec.fill(count_.data(), 0, sizeof(std::int64_t));
    using kernel = find_values_kernel<Insert, Rows>;
    exec.launch({.blocks = blocks_for(room_, kernel::threads), .shared_bytes = kernel::shared_bytes}, kernel{values_, room_, missing()});
  }

  void claim() { launch_counted(exec_, count_.data(), room_, 1, claim_slots<Rows>{values_, missing()}); }
  void settle() { launch_counted(exec_, count_.data(), room_, 1, settle_slots<Rows>{values_, missing()}); }
  located_values<Rows> const& values() const noexcept { return values_; }
  missing_values missing() noexcept { return {numbers_.data(), claimed_.data(), count_.data()}; }

 private:
  template <class Store>
  static std::vector<Rows> rows_of(vector_view<Store> tables, std::vector<std::int64_t> const& table_of) {
    std::vector<Rows> parts;
    for (auto const t : table_of) parts.push_back(tables[t].device_rows());
    return parts;
  }

  Exec const& exec_;
  std::int64_t room_;
  buffer<std::int64_t, Exec> numbers_, claimed_, count_;
  buffer<Rows, Exec> parts_;
  located_values<Rows> values_;
};

/// Calls `Impl::locate_values` for the ids of one table.
template <class Impl>
struct locates_in_one {
  template <bool Insert, class Exec, class Store>
  static void locate(Exec const& exec, Store& table, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
                     vector_view<row_status> statuses) {
    auto const begins = to_device(exec, std::vector<std::int64_t>{0, ids.size()});
    Impl::template locate_values<Insert>(exec, vector_view<Store>(&table, 1), {0}, ids.data(), begins.data(), slots, statuses);
  }
};

template <device_execution Exec>
struct back_end<bucket_table_tag, Exec> : locates_in_one<back_end<bucket_table_tag, Exec>> {
  template <bool Insert, class Store>
  static void locate_values(Exec const& exec, vector_view<Store> tables, std::vector<std::int64_t> const& table_of, std::int64_t const* ids,
                            std::int64_t const* begins, vector_view<std::int64_t> slots, vector_view<row_status> statuses) {
    using rows_type = typename Store::rows_type;
    auto const n = slots.size();
    if (n == 0) return;
    if constexpr (Insert) {
      for (auto& table : tables) expect_leaving(exec, table, n);
      found_values<true, rows_type, Exec> found(exec, tables, table_of, ids, begins, slots, statuses);
      found.claim();
      std::exception_ptr failure;
      try {
        for (auto& table : tables) keep_leaving(exec, table);
      } catch (...) {
        failure = std::current_exception();
      }
      found.settle();
      launch_counted(exec, found.missing().count, n, initialise_rows<rows_type>::lanes,
                     initialise_rows<rows_type>{found.values(), found.missing()});
      if (failure) std::rethrow_exception(failure);
    } else {
      found_values<false, rows_type, Exec> const found(exec, tables, table_of, ids, begins, slots, statuses);
    }
  }

  template <class Rows>
  static std::int64_t count_rows(Exec const& exec, Rows const& rows) {
    buffer<std::int64_t, Exec> count(exec, 1);
    exec.fill(count.data(), 0, sizeof(std::int64_t));
    launch_for_each(exec, rows.shape.groups, count_group<Rows>{rows, count.data()});
    return read_one(exec, count.data());
  }

  template <class Rows>
  static void erase(Exec const& exec, Rows const& rows, vector_view<std::int64_t const> ids) {
    launch_for_each(exec, ids.size(), erase_ids<Rows>{rows, ids.data()});
  }

  template <class Store>
  static std::int64_t evict(Exec const& exec, Store& table, std::int64_t most) {
    using rows_type = typename Store::rows_type;
    auto const n = table.slot_bound();
    if (n == 0 || most <= 0) return 0;
    expect_leaving(exec, table, n);
    buffer<std::uint64_t, Exec> keys(exec, n), other_keys(exec, n);
    buffer<std::int64_t, Exec> slots(exec, n), other_slots(exec, n), count(exec, 1);
    exec.fill(count.data(), 0, sizeof(std::int64_t));
    auto const rows = table.device_rows();
    std::pair sorted{keys.view(), slots.view()}, other{other_keys.view(), other_slots.view()};
    for (bool const by_use : {false, true}) {
      launch_for_each(exec, n, leaving_keys<rows_type>{rows, by_use, sorted.first.data(), sorted.second.data()});
      if (radix_sort_pairs(exec, sorted.first, sorted.second, other.first, other.second).first.data() != sorted.first.data())
        std::swap(sorted, other);
    }
    launch_for_each(exec, std::min(most, n), leave_first<rows_type>{rows, sorted.first.data(), sorted.second.data(), count.data()});
    keep_leaving(exec, table);
    return read_one(exec, count.data());
  }

 private:
  // Room for what may leave in a call for n ids: a slot's id once.
  template <class Store>
  static void expect_leaving(Exec const& exec, Store& table, std::int64_t n) {
    table.last_ = exec;
    if (!table.keeps_evicted_) return;
    table.leaving_.resize(exec, 2 * std::min(n, table.slot_bound()));
    exec.fill(table.counts_.data() + 3, 0, sizeof(std::int64_t));
  }

  template <class Store>
  static void keep_leaving(Exec const& exec, Store& table) {
    using rows_type = typename Store::rows_type;
    if (!table.keeps_evicted_) return;
    auto const* const count = table.counts_.data() + 3;
    auto const more = read_one(exec, count);
    if (more == 0) return;
    auto& kept = table.evicted_;
    auto const dim = table.dim(), width = table.layout_.width(dim);
    grow(exec, kept.ids, kept.count, more, 1);
    grow(exec, kept.weights, kept.count, more, dim);
    grow(exec, kept.states, kept.count, more, width);
    copy_leaving<rows_type> const copy{table.device_rows(), kept.ids.data() + kept.count, kept.weights.data() + kept.count * dim,
                                       kept.states.data() + kept.count * width};
    launch_counted(exec, count, more, copy_leaving<rows_type>::lanes, copy);
    kept.count += more;
  }
  template <class T>
  static void grow(Exec const& exec, buffer<T, Exec>& values, std::int64_t count, std::int64_t more, std::int64_t width) {
    if ((count + more) * width <= values.size()) return;
    buffer<T, Exec> larger(exec, std::max(count + more, 2 * count) * width);
    exec.copy(larger.data(), values.data(), static_cast<std::size_t>(count * width) * sizeof(T));
    values = std::move(larger);
  }
};

// Where the values of keys begin, and where the last's end: within those that are there, whatever the offsets say.
struct find_begins {
  batch_on_device batch;
  std::int64_t const* first_rows;  // of keys, then how many rows there are
  std::int64_t* begins;

  TESSERA_DEVICE void operator()(std::int64_t k) const {
    auto const first = batch.offsets[0] < 0 ? 0 : batch.offsets[0];
    auto end = batch.offsets[batch.rows];
    if (batch.room >= 0 && end > batch.room) end = batch.room;
    if (end < first || batch.offsets[0] < 0) end = first;
    auto const begin = batch.offsets[first_rows[k]];
    begins[k] = begin < first ? first : begin > end ? end : begin;
  }
};

template <device_execution Exec>
struct back_end<locate_all_tag, Exec> {
  template <bool Insert, class Store, class Feature>
  static void run(Exec const& exec, vector_view<Store> tables, vector_view<Feature const> features,
                  keyed_jagged_view<std::int64_t const> batch, buffer<std::int64_t, Exec>& slots) {
    slots.resize(exec, value_bound(exec, batch.flat()));
    std::vector<std::int64_t> first_rows, tables_of_keys;
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      if (batch.rows(key) == 0) continue;
      first_rows.push_back(batch.first_row[key] - batch.first_row[0]);
      tables_of_keys.push_back(table_of(features[key]));
    }
    if (tables_of_keys.empty()) return;
    first_rows.push_back(batch.rows());
    auto const first_rows_on_device = to_device(exec, first_rows);
    buffer<std::int64_t, Exec> begins(exec, first_rows_on_device.size());
    launch_for_each(exec, begins.size(), find_begins{batch_on_device(batch), first_rows_on_device.data(), begins.data()});
    std::remove_const_t<Store>::back_end::template locate_values<Insert>(exec, tables, tables_of_keys, batch.values, begins.data(),
                                                                         slots.view(), {});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
