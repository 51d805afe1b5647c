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
#include <tessera/embed/bucket_table.hpp>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/locate_batch.hpp>
#include <tessera/embed/row_order.cuh>
#include <tessera/embed/row_store.hpp>

/// Ids of many tables to their slots at once: every value of a batch by a thread, then those without a row once more.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Values of several keys, each of a table.
template <class Rows>
struct located_values {
  std::int64_t const* ids;     // value i has ids[begins[0] + i]
  std::int64_t const* begins;  // (keys + 1,)
  Rows const* parts;           // (keys,)
  std::int64_t keys;
  std::int64_t* slots;
  row_status* statuses;  // or nullptr

  TESSERA_DEVICE std::int64_t count() const { return begins[keys] - begins[0]; }
  TESSERA_DEVICE std::int64_t id(std::int64_t i) const { return ids[begins[0] + i]; }
  TESSERA_DEVICE Rows const& rows(std::int64_t i) const { return parts[range_of(begins, keys, begins[0] + i)]; }
  TESSERA_DEVICE void tell(std::int64_t i, std::int64_t slot, row_status status) const {
    slots[i] = slot;
    if (statuses != nullptr) statuses[i] = status;
  }
};

/// The values without a row, in any order, and the slots claimed for them: 4 * slot + claim_kind, or -1. Where they are settled: the slot for
/// whom its row is to be written, else -1.
struct missing_values {
  std::int64_t* numbers;
  std::int64_t* slots;
  std::int64_t* count;
};

// Finds all values; where rows are inserted, uses those found and lists the others, each block's at once. Per value the id and the slot, 8
// bytes each in order, and two sectors of 32 bytes, see `bucket_rows`.
template <bool Insert, class Rows>
struct find_values_kernel {  // unproven
  static constexpr int threads = 256;
  static constexpr std::int64_t shared_bytes = Insert ? 16 : 0;
  located_values<Rows> values;
  std::int64_t room;  // for values
  missing_values missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const count = values.count();
    for (auto base = block.index() * threads; base < room; base += block.count() * threads) {
      auto const i = base + block.thread();
      bool const lacks = i < count && !find(block, i);
      if (i >= count && i < room) values.slots[i] = -1;
      if constexpr (Insert) list(block, i, lacks);
    }
  }

  template <class Block>
  TESSERA_DEVICE bool find(Block& block, std::int64_t i) const {
    auto const& rows = values.rows(i);
    auto const id = values.id(i), slot = rows.find(id);
    bool const lacks = slot < 0 && rows.in_range(id);
    values.tell(i, slot, slot >= 0 ? row_status::found : lacks ? row_status::not_admitted : row_status::out_of_range);
    if (Insert && slot >= 0) rows.use(block, slot);
    return !lacks;
  }

  template <class Block>
  TESSERA_DEVICE void list(Block& block, std::int64_t i, bool lacks) const {
    auto* const first = block.template shared<std::int64_t>();        // where the block's are listed
    auto* const count = reinterpret_cast<std::uint32_t*>(first + 1);  // of the block's
    if (block.thread() == 0) *count = 0;
    block.sync();
    auto const rank = lacks ? block.add(count, 1U) : 0;
    block.sync();
    if (block.thread() == 0 && *count > 0) *first = block.add(missing.count, static_cast<std::int64_t>(*count));
    block.sync();
    if (lacks) missing.numbers[*first + rank] = i;
  }
};

template <class Rows>
struct claim_slots {  // unproven
  located_values<Rows> values;
  missing_values missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t k, int) const {
    auto const i = missing.numbers[k];
    auto const claim = values.rows(i).claim(block, values.id(i));
    missing.slots[k] = claim.slot < 0 ? -1 : 4 * claim.slot + static_cast<std::int64_t>(claim.kind);
  }
};

template <class Rows>
struct settle_slots {  // unproven
  located_values<Rows> values;
  missing_values missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t k, int) const {
    auto const i = missing.numbers[k], claimed = missing.slots[k];
    missing.slots[k] = -1;
    auto const& rows = values.rows(i);
    slot_claim claim;
    if (claimed >= 0) claim = {claimed / 4, static_cast<claim_kind>(claimed % 4)};
    if (!rows.settle(block, values.id(i), claim)) {
      rows.count(block, 2);
      return;  // not admitted, as `find` said
    }
    if (claim.kind == claim_kind::repeated) return values.tell(i, claim.slot, row_status::found);
    rows.count(block, 0);
    missing.slots[k] = claim.slot;
    values.tell(i, claim.slot, claim.kind == claim_kind::evicted ? row_status::evicted : row_status::inserted);
  }
};

// The weights and states of new rows, by a group of threads each.
template <class Rows>
struct initialise_rows {  // unproven
  static constexpr int lanes = 8;
  located_values<Rows> values;
  missing_values missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block&, std::int64_t k, int lane) const {
    using element = typename Rows::element;
    auto const slot = missing.slots[k];
    if (slot < 0) return;
    auto const i = missing.numbers[k];
    auto const& rows = values.rows(i);
    auto const dim = rows.dim(), id = values.id(i);
    auto* const row = rows.row(slot);
    bool const by_four = dim % 4 == 0;  // and the table begins on 64 bytes
    if (lane == 0) initial_scale<element>(rows.options()).write_to(row);
    for (std::int64_t column = 4 * lane; column < dim; column += 4 * lanes)
      write_four(row + column, initial_four<element>(rows.options(), id, column), dim - column, by_four);
    auto* const state = rows.state(slot);
    for (std::int64_t c = lane; c < rows.state_width; c += lanes) state[c] = rows.initial_state;
  }
};

/// f(block, k, lane) for k of [0, *count), by `lanes` threads each.
template <class F>
struct counted_kernel {  // unproven
  static constexpr int threads = 256;
  // As few blocks as fill a device: what is counted is little as a rule, and its blocks go round where it is not.
  static constexpr std::int64_t most_blocks = 2048;
  std::int64_t const* count;
  int lanes;
  F f;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    for_each_unit(block, *count, threads / lanes, block.thread() / lanes, [&](std::int64_t k) { f(block, k, block.thread() % lanes); });
  }
};
/// `most`: of what is counted.
template <device_execution Exec, class F>
void launch_counted(Exec const& exec, std::int64_t const* count, std::int64_t most, int lanes, F const& f) {
  using kernel = counted_kernel<F>;
  exec.launch({.blocks = std::min(blocks_for(most, kernel::threads / lanes), kernel::most_blocks)}, kernel{count, lanes, f});
}

// Rows that left, behind those that left before.
template <class Rows>
struct copy_leaving {  // unproven
  static constexpr int lanes = 8;
  Rows rows;
  std::int64_t* ids;
  float* weights;
  float* states;

  template <class Block>
  TESSERA_DEVICE void operator()(Block&, std::int64_t k, int lane) const {
    auto const slot = rows.leaving[2 * k], dim = rows.dim(), width = rows.state_width;
    if (lane == 0) ids[k] = rows.leaving[2 * k + 1];
    auto const* const row = rows.row(slot);
    auto const scale = row_scale<typename Rows::element>::of(row);
    for (std::int64_t c = lane; c < dim; c += lanes) weights[k * dim + c] = scale.value(row[c]);
    for (std::int64_t c = lane; c < width; c += lanes) states[k * width + c] = rows.state(slot)[c];
  }
};

template <class Rows>
struct erase_ids {  // unproven
  Rows rows;
  std::int64_t const* ids;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (auto const slot = rows.find(ids[i]); slot >= 0) rows.erase(block, slot, ids[i]);
  }
};

template <class Rows>
struct count_group {  // unproven
  Rows rows;
  std::int64_t* count;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t group) const {
    std::int64_t held = 0;
    for (auto slot = group * Rows::group_slots; slot < (group + 1) * Rows::group_slots; ++slot) held += rows.id_of(slot) >= 0;
    if (held > 0) block.add(count, held);
  }
};

// What slots are sorted by, in the order in which their ids leave: first by id, then by use. All ones: those that stay.
template <class Rows>
struct leaving_keys {  // unproven
  Rows rows;
  bool by_use;
  std::uint64_t* keys;
  std::int64_t* slots;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (!by_use) slots[i] = i;
    auto const slot = slots[i], id = rows.id_of(slot);
    keys[i] = id < 0 || !rows.may_leave(slot) ? ~std::uint64_t{0} : static_cast<std::uint64_t>(by_use ? rows.use_of(slot) : id);
  }
};
template <class Rows>
struct leave_first {  // unproven
  Rows rows;
  std::uint64_t const* keys;
  std::int64_t const* slots;
  std::int64_t* count;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (keys[i] == ~std::uint64_t{0}) return;
    auto const id = rows.id_of(slots[i]);
    rows.erase(block, slots[i], id);
    rows.note_leaving(block, slots[i], id);
    block.add(count, std::int64_t{1});
  }
};

/// Locates all values: finds them, and where rows are inserted claims slots for the others, calls `leave()` while ids that lost their slot
/// still have their rows there, settles, then `arrive(located_values, missing_values)` writes the rows of those that came. All memory but what
/// `leave` takes is there before anything changes. `table_of` (keys,): number of the table of each key. Slots of values that turn out not to
/// be there are -1.
template <bool Insert, class Exec, class Store, class Leave, class Arrive>
void locate_each_value(Exec const& exec, vector_view<Store> tables, std::vector<std::int64_t> const& table_of, std::int64_t const* ids,
                       std::int64_t const* begins, vector_view<std::int64_t> slots, vector_view<row_status> statuses, Leave const& leave,
                       Arrive const& arrive) {
  using rows_type = typename Store::rows_type;
  auto const n = slots.size();
  buffer<std::int64_t, Exec> numbers(exec, Insert ? n : 0), claimed(exec, Insert ? n : 0), count(exec, 1);
  std::vector<rows_type> parts;
  for (auto const t : table_of) parts.push_back(tables[t].device_rows());
  auto const parts_there = to_device(exec, parts);
  located_values<rows_type> const values{
      ids, begins, parts_there.data(), parts_there.size(), slots.data(), statuses.empty() ? nullptr : statuses.data()};
  missing_values const missing{numbers.data(), claimed.data(), count.data()};
  exec.fill(count.data(), 0, sizeof(std::int64_t));
  using find_kernel = find_values_kernel<Insert, rows_type>;
  exec.launch({.blocks = blocks_for(n, find_kernel::threads), .shared_bytes = find_kernel::shared_bytes}, find_kernel{values, n, missing});
  if constexpr (Insert) {
    launch_counted(exec, missing.count, n, 1, claim_slots<rows_type>{values, missing});
    leave();
    launch_counted(exec, missing.count, n, 1, settle_slots<rows_type>{values, missing});
  }
  arrive(values, missing);
}

/// `Impl::locate_values` for the ids of one table.
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
struct bucket_table_impl<Exec> : locates_in_one<bucket_table_impl<Exec>> {
  template <bool Insert, class Store>
  static void locate_values(Exec const& exec, vector_view<Store> tables, std::vector<std::int64_t> const& table_of, std::int64_t const* ids,
                            std::int64_t const* begins, vector_view<std::int64_t> slots, vector_view<row_status> statuses) {
    using rows_type = typename Store::rows_type;
    auto const n = slots.size();
    if (n == 0) return;
    if constexpr (Insert)
      for (auto& table : tables) expect_leaving(exec, table, n);
    std::exception_ptr failure;
    locate_each_value<Insert>(
        exec, tables, table_of, ids, begins, slots, statuses,
        [&] {
          if constexpr (Insert) {  // in braces for nvcc's front end
            try {
              for (auto& table : tables) keep_leaving(exec, table);
            } catch (...) {
              failure = std::current_exception();
            }
          }
        },
        [&](auto const& values, missing_values const& missing) {
          if constexpr (Insert)
            launch_counted(exec, missing.count, n, initialise_rows<rows_type>::lanes, initialise_rows<rows_type>{values, missing});
        });
    if (failure) std::rethrow_exception(failure);
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
    std::pair<std::uint64_t*, std::int64_t*> sorted{keys.data(), slots.data()};
    for (bool const by_use : {false, true}) {
      launch_for_each(exec, n, leaving_keys<rows_type>{rows, by_use, sorted.first, sorted.second});
      bool const here = sorted.first == keys.data();
      sorted = radix_sort_impl<Exec>::run_between(exec, (here ? keys : other_keys).view(), (here ? slots : other_slots).view(),
                                                  (here ? other_keys : keys).view(), (here ? other_slots : slots).view(), {0, 64});
    }
    launch_for_each(exec, std::min(most, n), leave_first<rows_type>{rows, sorted.first, sorted.second, count.data()});
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
struct find_begins {  // unproven
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
struct locate_all_impl<Exec> {
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
    auto const first_rows_there = to_device(exec, first_rows);
    buffer<std::int64_t, Exec> begins(exec, first_rows_there.size());
    launch_for_each(exec, begins.size(), find_begins{batch_on_device(batch), first_rows_there.data(), begins.data()});
    std::remove_const_t<Store>::back_end::template locate_values<Insert>(exec, tables, tables_of_keys, batch.values, begins.data(),
                                                                         slots.view(), {});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
