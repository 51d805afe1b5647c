// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/admission.hpp>
#include <tessera/embed/bucket_rows.hpp>
#include <tessera/embed/evicted_rows.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_bytes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How many ids were inserted, evicted and refused since a bucket table was built.
struct bucket_counts {
  std::int64_t inserted = 0;      ///< ids that got a row
  std::int64_t evicted = 0;       ///< ids that left for others, or by `evict`
  std::int64_t not_admitted = 0;  ///< times that an id was asked for and got no row
};

namespace detail {

struct bucket_table_tag {};

/// The eviction policies that a device has.
template <class Eviction>
concept bucket_eviction = requires {
  sizeof(slot_use<Eviction>);
};

}  // namespace detail

/// A row for each id of [0, 2^63 - 1) seen so far, in a device's memory. The table holds rows up to a fixed capacity: options.rows, rounded
/// up to a multiple of 32. A row appears with the values that a dense table of the same options has there. Rows and states stay in their
/// slot until their id leaves. What is read of them does not depend on the slot. Move-only.
///
/// An id belongs to one bucket of slots. With `keep_all` a bucket has 1024 to 2016 slots, or all that there are; an id that finds it full
/// gets no row. Up to 4/5 full, practically none does (at most five in 10^13 ids). With `evict_lru` and `evict_lfu` a bucket has 32 slots,
/// and an id that finds it full gets the row of another. That is the one used longest ago, or in the fewest batches and of those longest
/// ago; of several, that of the least id. Rows located in the last options.batches_in_flight batches are locked: where all are, the new id
/// gets none. `begin_batch` counts batches.
///
/// Ids that a call finds are used first, then the others get their rows. Where more new ids come to a bucket in one call than have room,
/// the least stay. So which ids stay and leave depends on the calls alone. Timing decides slots and the order in which ids left. It also
/// decides which new ids of a bucket are `inserted` and which `evicted`. Of several places of a new id it decides which one is so; the
/// others are `found`.
///
/// A call synchronises only where its contract says so. Source: for buckets that evict within themselves, NVIDIA Merlin's HierarchicalKV;
/// for tags compared eight at once, Abseil's Swiss tables.
template <row_element Element, device_execution Exec, detail::bucket_eviction Eviction = keep_all>
class bucket_table {
 public:
  using element = Element;
  using execution_type = Exec;
  using admission_policy = admit_all;
  using eviction_policy = Eviction;
  using rows_type = bucket_rows<Element, Eviction>;
  using back_end = detail::back_end<detail::bucket_table_tag, Exec>;
  static constexpr bool slots_are_ids = false;
  static constexpr bool has_policies = Eviction::evicts;

  /// Allocates all slots, with state for this optimizer. @throws tessera::error invalid_argument, out_of_memory.
  template <row_optimizer Optimizer>
  bucket_table(Exec const& exec, table_options const& options, Optimizer const& optimizer)
      : bucket_table(exec, options, row_state_layout::checked(optimizer)) {}
  /// As above, with state of this layout.
  bucket_table(Exec const& exec, table_options const& options, row_state_layout layout) : options_(options), layout_(layout), last_(exec) {
    constexpr auto most = std::int64_t{1} << 37;  // 32 bits of the hash choose the bucket
    detail::check_hashed_options("bucket_table", options, layout_);
    if (options.rows > most)
      throw error(errc::invalid_argument, "bucket_table: more rows than a table can have",
                  {{"table", options.id.value}, {"rows", options.rows}, {"most", most}});
    weights_.resize(exec, slot_bound() * row_scale<Element>::extent(options.dim));
    states_.resize(exec, slot_bound() * layout_.width(options.dim));
    entries_.resize(exec, slot_bound() * rows_type::words);
    tags_.resize(exec, slot_bound() / rows_type::group_slots);
    counts_.resize(exec, count_words);
    clear(exec);
  }

  /// How many rows such a table has room for.
  static constexpr std::int64_t capacity(table_options const& options) noexcept {
    return divide_up(options.rows, rows_type::group_slots) * rows_type::group_slots;
  }
  /// What such a table will occupy, before it is built.
  static table_bytes bytes_for(table_options const& options, row_state_layout layout) noexcept {
    auto const slots = static_cast<std::size_t>(capacity(options));
    return {.weights = slots * static_cast<std::size_t>(row_scale<Element>::extent(options.dim)) * sizeof(Element),
            .state = slots * static_cast<std::size_t>(layout.width(options.dim)) * sizeof(float),
            .index = slots * (rows_type::words * sizeof(std::int64_t) + 1) + count_words * sizeof(std::int64_t)};
  }
  std::size_t bytes() const noexcept {
    return weights_.capacity_bytes() + states_.capacity_bytes() + entries_.capacity_bytes() + tags_.capacity_bytes() +
           counts_.capacity_bytes() + leaving_.capacity_bytes() + evicted_.bytes();
  }

  table_options const& options() const noexcept { return options_; }
  std::int64_t dim() const noexcept { return options_.dim; }
  std::int64_t slot_bound() const noexcept { return capacity(options_); }
  row_state_layout state_layout() const noexcept { return layout_; }
  step_count steps() const noexcept { return steps_; }
  void set_steps(step_count steps) noexcept { steps_ = steps; }

  /// How many ids have rows. As `counts` and `for_each_row`, it waits for the last call that changed the table.
  std::int64_t rows() const { return detail::back_end<detail::bucket_table_tag, Exec>::count_rows(last_, device_rows()); }
  /// How many ids were inserted, evicted and refused. It waits.
  bucket_counts counts() const {
    auto const sums = detail::added_counts(last_, counts_);
    return {sums[0], sums[1], sums[2]};
  }
  /// Calls f(slot, id) for each row: the next to leave first, where rows leave, else slots ascending. It takes as much memory of the host
  /// as there are entries.
  template <class F>
  void for_each_row(F const& f) const {
    std::vector<std::int64_t> entries(static_cast<std::size_t>(entries_.size()));
    last_.copy_out(entries.data(), entries_.data(), entries.size() * sizeof entries[0]);
    std::vector<std::int64_t> held;  // where entries begin
    for (std::size_t at = 0; at < entries.size(); at += rows_type::words)
      if (entries[at] >= 0) held.push_back(static_cast<std::int64_t>(at));
    auto const entry = [&](std::int64_t at) { return entries.data() + at; };
    if constexpr (rows_type::evicts)
      std::sort(held.begin(), held.end(),
                [&](auto a, auto b) { return std::pair(entry(a)[1], entry(a)[0]) < std::pair(entry(b)[1], entry(b)[0]); });
    for (auto const at : held) f(at / rows_type::words, *entry(at));
  }

  // The device's memory.
  Element* row(std::int64_t slot) noexcept(!checks_indices) { return detail::row_at(weights_.data(), checked_slot(slot), dim()); }
  Element const* row(std::int64_t slot) const noexcept(!checks_indices) {
    return detail::row_at(weights_.data(), checked_slot(slot), dim());
  }
  float* state(std::int64_t slot) noexcept(!checks_indices) { return states_.data() + checked_slot(slot) * layout_.width(dim()); }
  float const* state(std::int64_t slot) const noexcept(!checks_indices) {
    return states_.data() + checked_slot(slot) * layout_.width(dim());
  }

  /// Begins the next batch, to which all that is located from now on belongs.
  void begin_batch() noexcept { ++batch_; }
  table_clock clock() const noexcept { return {batch_, std::nullopt}; }
  /// Sets the batch, of a checkpoint for instance; policies of a device do not look at time.
  /// @throws tessera::error invalid_argument for a batch before the present one, or one that is too large.
  void set_clock(table_clock clock) {
    if (clock.batch < batch_ || clock.batch > most_batches)
      throw error(errc::invalid_argument, "bucket_table: batches are counted upwards",
                  {{"table", options_.id.value}, {"batch", batch_}, {"new batch", clock.batch}, {"most", most_batches}});
    batch_ = clock.batch;
  }
  /// What a checkpoint keeps: the names of the policies, and how many words of a row.
  static constexpr char const* admission_name() noexcept { return admission_policy::name; }
  static constexpr char const* eviction_name() noexcept { return Eviction::name; }
  /// The words of a row's use in a checkpoint.
  static constexpr std::int64_t use_words() noexcept { return Eviction::saved_width; }

  /// As `row_store` has it. Workspace: 16 bytes an id. It synchronises only where evicted rows are kept.
  void locate(Exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
              vector_view<row_status> statuses = {}) {
    detail::check_locate_shapes("bucket_table::locate", ids.size(), slots.size(), statuses.size());
    back_end::template locate<true>(exec, *this, ids, slots, statuses);
  }
  void find(Exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const {
    detail::check_locate_shapes("bucket_table::find", ids.size(), slots.size(), 0);
    back_end::template locate<false>(exec, *this, ids, slots, {});
  }

  /// Removes the rows of these ids, also of batches in flight; it passes over an id without a row.
  void erase(Exec const& exec, vector_view<std::int64_t const> ids) {
    last_ = exec;
    detail::back_end<detail::bucket_table_tag, Exec>::erase(exec, device_rows(), ids);
  }
  /// Removes all rows.
  void clear(Exec const& exec) {
    last_ = exec;
    exec.fill(entries_.data(), 0xFF, static_cast<std::size_t>(entries_.size()) * sizeof(std::int64_t));
    exec.fill(tags_.data(), 0, static_cast<std::size_t>(tags_.size()) * sizeof(detail::slot_tags));
    exec.fill(counts_.data(), 0, count_words * sizeof(std::int64_t));
  }
  /// Evicts up to `most` rows of all buckets, in the order of the policy, except locked ones; returns how many left. Synchronises.
  /// Workspace: 32 bytes a slot.
  std::int64_t evict(Exec const& exec, std::int64_t most) requires(Eviction::evicts) {
    return detail::back_end<detail::bucket_table_tag, Exec>::evict(exec, *this, most);
  }

  /// Whether rows evicted from now on are kept for the caller, until `clear_evicted`; at first they are not. Each call that may evict then
  /// waits for their number, and allocates memory for them. Where that memory runs out, the evicted rows are lost; the table is as it
  /// should be.
  void keep_evicted(bool keep) noexcept requires(Eviction::evicts) { keeps_evicted_ = keep; }
  /// The rows kept, in the device's memory, call after call; those of one call are in any order.
  evicted_rows_view evicted() const noexcept { return evicted_.view(dim(), layout_.width(dim())); }
  /// Forgets the rows kept.
  void clear_evicted() noexcept { evicted_.count = 0; }

  /// The view for kernels. They write rows through it also where the table is const.
  rows_type device_rows() const noexcept {
    return {const_cast<Element*>(weights_.data()),
            const_cast<float*>(states_.data()),
            const_cast<std::int64_t*>(entries_.data()),
            const_cast<detail::slot_tags*>(tags_.data()),
            const_cast<std::int64_t*>(counts_.data()),
            keeps_evicted_ ? const_cast<std::int64_t*>(leaving_.data()) : nullptr,
            options_,
            layout_.width(options_.dim),
            layout_.initial,
            detail::bucket_shape(tags_.size(), rows_type::groups_each),
            batch_,
            batch_ - options_.batches_in_flight + 1,
            steps_};
  }

 private:
  friend struct detail::back_end<detail::bucket_table_tag, Exec>;
  static constexpr std::int64_t count_words = detail::count_words;
  static constexpr std::int64_t most_batches = (std::int64_t{1} << 40) - 1;  // `slot_use` has room for

  // `evicted_rows` on a device.
  struct evicted_on_device {
    buffer<std::int64_t, Exec> ids;
    buffer<float, Exec> weights, states;
    std::int64_t count = 0;

    evicted_rows_view view(std::int64_t dim, std::int64_t width) const noexcept {
      return {{ids.data(), count}, {weights.data(), count, dim}, {states.data(), count, width}};
    }
    std::size_t bytes() const noexcept { return ids.capacity_bytes() + weights.capacity_bytes() + states.capacity_bytes(); }
  };

  std::int64_t checked_slot(std::int64_t slot) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_slot("bucket_table", options_, slot, slot_bound());
    return slot;
  }

  table_options options_;
  row_state_layout layout_;
  step_count steps_{};
  std::int64_t batch_ = 0;
  bool keeps_evicted_ = false;
  Exec last_;  // that of the last call that changed the table
  buffer<Element, Exec> weights_;
  buffer<float, Exec> states_;
  buffer<std::int64_t, Exec> entries_;
  buffer<detail::slot_tags, Exec> tags_;
  buffer<std::int64_t, Exec> counts_;
  buffer<std::int64_t, Exec> leaving_;
  evicted_on_device evicted_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
