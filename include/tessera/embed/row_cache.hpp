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

/// What kernels see of a row cache: its lines, which are a bucket table's rows, and the table behind it. Slots [0, lines()) are lines; slot
/// lines() + id is the row behind.
template <row_element Element, class Eviction>
struct cached_rows : bucket_rows<Element, Eviction> {
  static constexpr std::int64_t hit_words = 1024;  // hits are counted in many places, so that they do not wait for each other

  dense_rows<Element> behind;
  std::int64_t* hits;  // (hit_words,)

  TESSERA_HOST_DEVICE constexpr std::int64_t lines() const noexcept { return this->bucket_rows<Element, Eviction>::slot_bound(); }
  TESSERA_HOST_DEVICE constexpr std::int64_t slot_bound() const noexcept { return lines() + behind.options().rows; }
  TESSERA_HOST_DEVICE constexpr bool holds(std::int64_t slot) const noexcept {
    return static_cast<std::uint64_t>(slot) < static_cast<std::uint64_t>(slot_bound());
  }
  TESSERA_HOST_DEVICE constexpr bool in_range(std::int64_t id) const noexcept { return behind.holds(id); }
  TESSERA_HOST_DEVICE constexpr std::int64_t id_of(std::int64_t slot) const noexcept {
    return slot < lines() ? this->bucket_rows<Element, Eviction>::id_of(slot) : slot - lines();
  }
  TESSERA_HOST_DEVICE constexpr Element* row(std::int64_t slot) const noexcept {
    return slot < lines() ? this->bucket_rows<Element, Eviction>::row(slot) : behind.row(slot - lines());
  }
  TESSERA_HOST_DEVICE constexpr float* state(std::int64_t slot) const noexcept {
    return slot < lines() ? this->states + slot * this->state_width : behind.state(slot - lines());
  }

  template <class Block>
  TESSERA_DEVICE void use(Block& block, std::int64_t line) const {
    block.add(hits + (block.index() + block.thread()) % hit_words, std::int64_t{1});
    this->bucket_rows<Element, Eviction>::use(block, line);
  }
};

/// What became of the ids that a row cache was asked for, since it was built.
struct cache_counts {
  std::int64_t hits = 0;      // values whose row had a line
  std::int64_t fetched = 0;   // rows that were brought into a line
  std::int64_t written = 0;   // rows that were written back for others
  std::int64_t uncached = 0;  // times that an id without a line found none that may be taken: its row is used where it is
};

namespace detail {

struct row_cache_tag {};

}  // namespace detail

/// Lines in a device's memory for the rows of a larger table, which lies in memory that the device reaches at a price: the host's, pinned,
/// over the bus. A training lookup brings the rows that it names into lines, with their states, and steps change the lines; a row goes back
/// when its line is taken for another. Set-associative: an id may have any of the 32 lines of its set; which row leaves, `Eviction` says:
/// evict_lru or evict_lfu. Lines named in the last options.batches_in_flight batches of the table behind, with the current one, are locked.
/// An id that finds all lines of its set locked is read, and changed, where it is. Evaluation brings nothing in.
///
/// A model of `row_store`, so that lookups, backwards and steps take it as any table; the results are those of the table behind it, bit for
/// bit. What the table behind holds is of no use to others between the first lookup and `write_back`. The table outlives the cache, and stays where it is: a vector of
/// tables is filled before caches refer to its elements. Where more
/// than one batch is in flight, a row that was used where it is by one of them and gets a line in another keeps the step of one only.
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

  /// Room for `lines` rows, rounded up to whole sets, in `exec`'s memory. @throws tessera::error invalid_argument, out_of_memory.
  row_cache(execution_type const& exec, Table& behind, std::int64_t lines) : behind_(&behind), last_(exec) {
    if (lines < 1)
      throw error(errc::invalid_argument, "row_cache: a cache has lines", {{"table", behind.options().id.value}, {"lines", lines}});
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
  Table& behind() const noexcept { return *behind_; }
  std::int64_t lines() const noexcept { return tags_.size() * rows_type::group_slots; }

  table_options const& options() const noexcept { return behind_->options(); }
  std::int64_t dim() const noexcept { return behind_->dim(); }
  std::int64_t rows() const noexcept { return behind_->rows(); }
  std::int64_t slot_bound() const noexcept { return lines() + rows(); }
  row_state_layout state_layout() const noexcept { return behind_->state_layout(); }
  step_count steps() const noexcept { return behind_->steps(); }
  void set_steps(step_count steps) noexcept { behind_->set_steps(steps); }

  /// Waits, behind the last call.
  cache_counts counts() const {
    auto const sums = detail::added_counts(last_, counts_);
    return {sums[4], sums[0], sums[1], sums[2]};
  }
  /// f(slot, id) for each row, where it stands behind the cache; `write_back` first, where their values matter.
  template <class F>
  void for_each_row(F const& f) const {
    behind_->for_each_row([&](std::int64_t slot, std::int64_t id) { f(lines() + slot, id); });
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

  /// Brings the rows of a later batch into lines, so that its lookup hits: on another stream, while the present batch computes (the caller
  /// orders that stream behind the last lookup and before the next). They count as used by the present batch.
  void prefetch(execution_type const& exec, vector_view<std::int64_t const> ids) {
    buffer<std::int64_t, execution_type> slots(exec, ids.size());
    locate(exec, ids, slots.view());
  }

  /// Writes all lines to the table behind; they stay.
  void write_back(execution_type const& exec) {
    last_ = exec;
    back_end::write_back(exec, device_rows());
  }
  /// Empties all lines without writing them: the table behind was changed by others.
  void forget(execution_type const& exec) {
    last_ = exec;
    exec.fill(entries_.data(), 0xFF, static_cast<std::size_t>(entries_.size()) * sizeof(std::int64_t));
    exec.fill(tags_.data(), 0, static_cast<std::size_t>(tags_.size()) * sizeof(detail::slot_tags));
  }

  /// For kernels: what they see is to be written, whoever holds the cache.
  rows_type device_rows() const noexcept {
    auto const layout = state_layout();
    auto* const counts = const_cast<std::int64_t*>(counts_.data());
    return {{const_cast<element*>(weights_.data()), const_cast<float*>(states_.data()), const_cast<std::int64_t*>(entries_.data()),
             const_cast<detail::slot_tags*>(tags_.data()), counts, const_cast<std::int64_t*>(leaving_.data()), options(),
             layout.width(dim()), layout.initial, detail::bucket_shape(tags_.size(), rows_type::groups_each), batch_,
             batch_ - options().batches_in_flight + 1, steps()},
            behind_->device_rows(),
            counts + first_hits};
  }

 private:
  friend struct detail::back_end<detail::row_cache_tag, execution_type>;
  static constexpr std::int64_t first_hits = detail::count_words, count_words = first_hits + rows_type::hit_words;

  Table* behind_;
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
