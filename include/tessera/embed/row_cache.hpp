// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bucket_rows.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A row cache as kernels see it: its lines, which are a bucket table's rows, and the backing table. Slots [0, lines()) are lines; slot
/// lines() + id is the row of the backing table.
template <row_element Element, class Eviction>
struct cached_rows : bucket_rows<Element, Eviction> {
  static constexpr std::int64_t hit_words = 1024;  ///< hits are counted in many places, so that they do not wait for each other

  dense_rows<Element> backing;
  std::int64_t* hits;  ///< (hit_words,)

  /// The number of lines.
  TESSERA_HOST_DEVICE constexpr std::int64_t lines() const noexcept { return this->bucket_rows<Element, Eviction>::slot_bound(); }
  TESSERA_HOST_DEVICE constexpr std::int64_t slot_bound() const noexcept { return lines() + backing.options().rows; }
  TESSERA_HOST_DEVICE constexpr bool holds(std::int64_t slot) const noexcept {
    return static_cast<std::uint64_t>(slot) < static_cast<std::uint64_t>(slot_bound());
  }
  TESSERA_HOST_DEVICE constexpr bool in_range(std::int64_t id) const noexcept { return backing.holds(id); }
  TESSERA_HOST_DEVICE constexpr std::int64_t id_of(std::int64_t slot) const noexcept {
    return slot < lines() ? this->bucket_rows<Element, Eviction>::id_of(slot) : slot - lines();
  }
  TESSERA_HOST_DEVICE constexpr Element* row(std::int64_t slot) const noexcept {
    return slot < lines() ? this->bucket_rows<Element, Eviction>::row(slot) : backing.row(slot - lines());
  }
  TESSERA_HOST_DEVICE constexpr float* state(std::int64_t slot) const noexcept {
    return slot < lines() ? this->states + slot * this->state_width : backing.state(slot - lines());
  }

  /// Notes that this batch uses the row in a line.
  template <class Block>
  TESSERA_DEVICE void use(Block& block, std::int64_t line) const {
    block.add(hits + (block.index() + block.thread()) % hit_words, std::int64_t{1});
    this->bucket_rows<Element, Eviction>::use(block, line);
  }
};

/// What became of the ids that a row cache was asked for, since it was built.
struct cache_counts {
  std::int64_t hits = 0;      ///< values whose row had a line
  std::int64_t fetched = 0;   ///< rows that were brought into a line
  std::int64_t written = 0;   ///< rows that were written back for others
  std::int64_t uncached = 0;  ///< times that an id without a line found none that may be taken: its row is used where it is
};

namespace detail {

struct row_cache_tag {};

}  // namespace detail

/// Lines in a device's memory that hold rows of a larger table, the backing table. That table is costly to reach: it lies in pinned memory
/// of the host, over the bus. What the backing table holds is valid for others only before the first lookup and after `write_back`.
///
/// A training lookup copies the rows that it names into lines, with their states, and steps change the lines. A row is written back when
/// its line is taken for another. The cache is set-associative: an id may have any of the 32 lines of its set. `Eviction`, evict_lru or
/// evict_lfu, says which row leaves. Lines named in the last options.batches_in_flight batches, the current one included, are locked. An id
/// that finds all lines of its set locked is read and changed in the backing table. Evaluation fills no lines.
///
/// A cache is a `row_store`: lookups, backwards and steps take it as any table. With more than one batch in flight, a row may be used in
/// the backing table by one batch and get a line in another. Then the row keeps the step of only one of the two batches.
/// @pre the table outlives the cache and stays where it is: fill a vector of tables before caches refer to its elements
/// @post results are those of the backing table alone, bit for bit
template <class Table, class Eviction = evict_lru>
class row_cache {
 public:
  using element = typename Table::element;
  using execution_type = typename Table::execution_type;
  using eviction_policy = Eviction;
  using rows_type = cached_rows<element, Eviction>;
  using back_end = detail::back_end<detail::row_cache_tag, execution_type>;
  static constexpr bool slots_are_ids = false;
  static_assert(device_execution<execution_type>, "row_cache: the table behind it is one that a device reads");
  static_assert(Eviction::evicts, "row_cache: lines are taken for other rows: evict_lru or evict_lfu");

  /// Allocates `lines` lines, rounded up to whole sets, in `exec`'s memory. @throws tessera::error invalid_argument, out_of_memory.
  row_cache(execution_type const& exec, Table& backing, std::int64_t lines) : backing_(&backing), last_(exec) {
    if (lines < 1)
      throw error(errc::invalid_argument, "row_cache: a cache has lines", {{"table", backing.options().id.value}, {"lines", lines}});
    auto const sets = divide_up(lines, rows_type::group_slots);
    auto const slots = sets * rows_type::group_slots;
    weights_.resize(exec, slots * row_scale<element>::extent(dim()));
    states_.resize(exec, slots * state_layout().width(dim()));
    entries_.resize(exec, slots * rows_type::words);
    tags_.resize(exec, sets);
    counts_.resize(exec, count_words);
    leaving_.resize(exec, 2 * slots);
    forget(exec);
    exec.fill(counts_.data(), 0, count_words * sizeof(std::int64_t));
  }

  std::size_t bytes() const noexcept {
    return weights_.capacity_bytes() + states_.capacity_bytes() + entries_.capacity_bytes() + tags_.capacity_bytes() +
           counts_.capacity_bytes() + leaving_.capacity_bytes();
  }
  /// The table whose rows are cached.
  Table& backing_table() const noexcept { return *backing_; }
  /// The number of lines.
  std::int64_t lines() const noexcept { return tags_.size() * rows_type::group_slots; }

  table_options const& options() const noexcept { return backing_->options(); }
  std::int64_t dim() const noexcept { return backing_->dim(); }
  std::int64_t rows() const noexcept { return backing_->rows(); }
  std::int64_t slot_bound() const noexcept { return lines() + rows(); }
  row_state_layout state_layout() const noexcept { return backing_->state_layout(); }
  step_count steps() const noexcept { return backing_->steps(); }
  void set_steps(step_count steps) noexcept { backing_->set_steps(steps); }

  /// Waits for the last call that changed the cache.
  cache_counts counts() const {
    auto const sums = detail::added_counts(last_, counts_);
    return {sums[4], sums[0], sums[1], sums[2]};
  }
  /// Calls f(slot, id) for each row, with its slot in the backing table. Call `write_back` first where values matter.
  template <class F>
  void for_each_row(F const& f) const {
    backing_->for_each_row([&](std::int64_t slot, std::int64_t id) { f(lines() + slot, id); });
  }

  // The device's memory.
  element* row(std::int64_t slot) noexcept { return device_rows().row(slot); }
  element const* row(std::int64_t slot) const noexcept { return device_rows().row(slot); }
  float* state(std::int64_t slot) noexcept { return device_rows().state(slot); }
  float const* state(std::int64_t slot) const noexcept { return device_rows().state(slot); }

  void begin_batch() noexcept { ++batch_; }

  void locate(execution_type const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
              vector_view<row_status> statuses = {}) {
    detail::check_locate_shapes("row_cache::locate", ids.size(), slots.size(), statuses.size());
    back_end::template locate<true>(exec, *this, ids, slots, statuses);
  }
  void find(execution_type const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const {
    detail::check_locate_shapes("row_cache::find", ids.size(), slots.size(), 0);
    back_end::template locate<false>(exec, *this, ids, slots, {});
  }

  /// Copies the rows of a later batch into lines, so that its lookup hits. It runs on another stream while the present batch computes; the
  /// caller orders that stream after the last lookup and before the next. The rows count as used by the present batch.
  void prefetch(execution_type const& exec, vector_view<std::int64_t const> ids) {
    buffer<std::int64_t, execution_type> slots(exec, ids.size());
    locate(exec, ids, slots.view());
  }

  /// Writes all lines to the backing table; the lines stay.
  void write_back(execution_type const& exec) {
    last_ = exec;
    back_end::write_back(exec, device_rows());
  }
  /// Empties all lines without writing them back, after others have changed the backing table.
  void forget(execution_type const& exec) {
    last_ = exec;
    exec.fill(entries_.data(), 0xFF, static_cast<std::size_t>(entries_.size()) * sizeof(std::int64_t));
    exec.fill(tags_.data(), 0, static_cast<std::size_t>(tags_.size()) * sizeof(detail::slot_tags));
  }

  /// The view for kernels. They write rows through it also where the cache is const.
  rows_type device_rows() const noexcept {
    auto const layout = state_layout();
    auto* const counts = const_cast<std::int64_t*>(counts_.data());
    return {{const_cast<element*>(weights_.data()), const_cast<float*>(states_.data()), const_cast<std::int64_t*>(entries_.data()),
             const_cast<detail::slot_tags*>(tags_.data()), counts, const_cast<std::int64_t*>(leaving_.data()), options(),
             layout.width(dim()), layout.initial, detail::bucket_shape(tags_.size(), rows_type::groups_each), batch_,
             batch_ - options().batches_in_flight + 1, steps()},
            backing_->device_rows(),
            counts + first_hits};
  }

 private:
  friend struct detail::back_end<detail::row_cache_tag, execution_type>;
  static constexpr std::int64_t first_hits = detail::count_words, count_words = first_hits + rows_type::hit_words;

  Table* backing_;
  std::int64_t batch_ = 0;
  execution_type last_;  // that of the last call that changed the cache
  buffer<element, execution_type> weights_;
  buffer<float, execution_type> states_;
  buffer<std::int64_t, execution_type> entries_;
  buffer<detail::slot_tags, execution_type> tags_;
  buffer<std::int64_t, execution_type> counts_;   // fetched, written, uncached, rows that leave in a call; then hits
  buffer<std::int64_t, execution_type> leaving_;  // lines whose rows leave in a call, and these ids, by turns
};

}  // namespace TESSERA_ABI
}  // namespace tessera
