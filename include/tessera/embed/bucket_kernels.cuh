// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bag_units.cuh>
#include <tessera/embed/bucket_table.hpp>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/row_store.hpp>

/// What happens to the values of a call and to the rows of a `bucket_table` on a device, a kernel each.
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
  TESSERA_DEVICE void set(std::int64_t i, std::int64_t slot, row_status status) const {
    slots[i] = slot;
    if (statuses != nullptr) statuses[i] = status;
  }
};

/// The values without a row, in any order, and the slots claimed for them: 4 * slot + claim_kind, or -1. After `settle` it is the slot, for
/// the value that is to write its row, else -1.
struct missing_values {
  std::int64_t* numbers;
  std::int64_t* slots;
  std::int64_t* count;
};

// Finds all values; where rows are inserted, uses those found and lists the others, each block's at once. Per value the id and the slot, 8
// bytes each in order, and two sectors of 32 bytes, see `bucket_rows`.
template <bool Insert, class Rows>
struct find_values_kernel {
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
    values.set(i, slot, slot >= 0 ? row_status::found : lacks ? row_status::not_admitted : row_status::out_of_range);
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
struct claim_slots {
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
struct settle_slots {
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
    if (claim.kind == claim_kind::repeated) return values.set(i, claim.slot, row_status::found);
    rows.count(block, 0);
    missing.slots[k] = claim.slot;
    values.set(i, claim.slot, claim.kind == claim_kind::evicted ? row_status::evicted : row_status::inserted);
  }
};

// The weights and states of new rows, by a group of threads each.
template <class Rows>
struct initialise_rows {
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

/// Calls f(block, k, lane) for k of [0, *count), with `lanes` threads each.
template <class F>
struct counted_kernel {
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
/// `most`: an upper bound of the count.
template <device_execution Exec, class F>
void launch_counted(Exec const& exec, std::int64_t const* count, std::int64_t most, int lanes, F const& f) {
  using kernel = counted_kernel<F>;
  exec.launch({.blocks = std::min(blocks_for(most, kernel::threads / lanes), kernel::most_blocks)}, kernel{count, lanes, f});
}

// Rows that left, behind those that left before.
template <class Rows>
struct copy_leaving {
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
struct erase_ids {
  Rows rows;
  std::int64_t const* ids;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (auto const slot = rows.find(ids[i]); slot >= 0) rows.erase(block, slot, ids[i]);
  }
};

template <class Rows>
struct count_group {
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
struct leaving_keys {
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
struct leave_first {
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

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
