// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/admission.hpp>
#include <tessera/embed/evicted_rows.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_slabs.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_bytes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Of a policy, or of the one that its state says was chosen.
template <class Policy, class State>
constexpr char const* policy_name(State const& state) noexcept {
  if constexpr (requires { state.name(); })
    return state.name();
  else
    return Policy::name;
}
template <class Policy, class State>
constexpr std::int64_t saved_width(State const& state) noexcept {
  if constexpr (requires { state.saved_width(); })
    return state.saved_width();
  else
    return Policy::saved_width;
}

}  // namespace detail

/// A row for each id seen so far, any int64, as far as the policies let it. With the default policies an id gets its row at its first
/// `locate`, for ever. A row appears with the values that a dense table of the same options has there. Rows lie in slabs that never move:
/// slots and row pointers stay valid until their id leaves. The slot then goes to a new id. Move-only.
///
/// Where options.most_rows ids have rows, a new id gets the row of the one that `Eviction` picks, or none where nothing may leave. Ids
/// located in the last options.batches_in_flight batches stay, so that backwards in flight find their rows. `begin_batch` counts batches
/// for both policies; before its first call all is one batch.
template <row_element Element = float, admission Admission = admit_all, eviction Eviction = keep_all>
class hash_table {
 public:
  using element = Element;
  using admission_policy = Admission;
  using eviction_policy = Eviction;
  static constexpr bool slots_are_ids = false;
  /// Whether the set of rows depends on more than the ids seen.
  static constexpr bool has_policies = Eviction::evicts || !std::is_same_v<Admission, admit_all>;

  /// Makes room for options.rows rows, with state for this optimizer. @throws tessera::error invalid_argument, out_of_memory.
  template <row_optimizer Optimizer>
  hash_table(host_exec const& exec, table_options const& options, Optimizer const& optimizer, Admission const& admission = {},
             Eviction const& eviction = {})
      : hash_table(exec, options, row_state_layout::checked(optimizer), admission, eviction) {}
  /// As above, with state of this layout.
  hash_table(host_exec const& exec, table_options const& options, row_state_layout layout, Admission const& admission = {},
             Eviction const& eviction = {})
      : options_(checked_options(options, layout)),
        memory_(exec.memory()),
        rows_(options.dim, layout),
        admission_(exec, admission, options),
        eviction_(eviction, options) {
    ids_.reserve(exec, options.rows);
    eviction_.reserve(exec, options.rows);
    rows_.reserve(exec, options.rows);
  }

  /// What such a table will occupy with options.rows rows. That is whole slabs, the map of ids, which is between 3/10 and 3/5 full, and the
  /// memory of the policies.
  static table_bytes bytes_for(table_options const& options, row_state_layout layout, Admission const& admission = {},
                               Eviction const& eviction = {}) noexcept {
    auto result = row_slabs<Element>::bytes_for(options, layout);
    result.index = id_map::bytes_for(options.rows) + admission.bytes_for(options) + eviction.bytes_for(options.rows);
    return result;
  }
  std::size_t bytes() const noexcept { return rows_.bytes() + ids_.bytes() + admission_.bytes() + eviction_.bytes() + evicted_.bytes(); }

  table_options const& options() const noexcept { return options_; }
  std::int64_t dim() const noexcept { return options_.dim; }
  /// How many ids have rows. As long as none has left, their slots are 0 … rows() - 1, in the order in which they came.
  std::int64_t rows() const noexcept { return ids_.size(); }
  std::int64_t slot_bound() const noexcept { return ids_.number_bound(); }
  row_state_layout state_layout() const noexcept { return rows_.layout(); }
  step_count steps() const noexcept { return steps_; }
  void set_steps(step_count steps) noexcept { steps_ = steps; }

  /// The id of each slot, (slot_bound(),); unspecified where no id has the slot.
  vector_view<std::int64_t const> ids() const noexcept { return ids_.ids(); }
  /// Whether an id has this slot. @pre slot in [0, slot_bound())
  bool holds_slot(std::int64_t slot) const noexcept(!checks_indices) { return ids_.holds_number(slot); }
  /// Calls f(slot, id) for each row: with an eviction policy the next to leave first, else slots ascending.
  template <class F>
  void for_each_row(F const& f) const {
    if constexpr (Eviction::evicts)
      eviction_.for_each([&](std::int64_t slot) { f(slot, ids_.ids()[slot]); });
    else
      for (std::int64_t slot = 0; slot < slot_bound(); ++slot)
        if (holds_slot(slot)) f(slot, ids_.ids()[slot]);
  }

  Element* row(std::int64_t slot) noexcept(!checks_indices) { return rows_.row(checked_slot(slot)); }
  Element const* row(std::int64_t slot) const noexcept(!checks_indices) { return rows_.row(checked_slot(slot)); }
  float* state(std::int64_t slot) noexcept(!checks_indices) { return rows_.state(checked_slot(slot)); }
  float const* state(std::int64_t slot) const noexcept(!checks_indices) { return rows_.state(checked_slot(slot)); }

  /// The view for kernels. They write rows through it also where the table is const.
  tessera::host_rows<Element> host_rows() const noexcept {
    return {rows_.places(), slot_bound(), ids_.ids().data(), false, options_, steps_};
  }

  /// Begins the next batch, to which all that is located from now on belongs.
  void begin_batch() noexcept { ++clock_.batch; }
  /// Sets the time that policies look at. Until its first call the number of the batch is the time.
  /// @throws tessera::error invalid_argument for a time before the present one.
  void set_time(std::int64_t now) { set_clock({clock_.batch, now}); }
  table_clock clock() const noexcept { return clock_; }
  /// Sets batch and time, of a checkpoint for instance. @throws tessera::error invalid_argument for a batch or a time before the present
  /// one.
  void set_clock(table_clock clock) {
    auto const now = clock_.now(), next = clock.now();
    if (next.batch < now.batch || next.time < now.time)
      throw error(
          errc::invalid_argument, "hash_table: time does not run backwards",
          {{"table", options_.id.value}, {"time", now.time}, {"new time", next.time}, {"batch", now.batch}, {"new batch", next.batch}});
    clock_ = clock;
  }

  /// As `row_store` has it. Ids that have rows are used first, then the others get theirs, each in the order of `ids`, for any number of
  /// threads. The table grows in the memory that it was built with: by half of its room, to options.most_rows at most.
  /// @throws tessera::error out_of_memory; rows that appeared before stay, complete.
  void locate(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
              vector_view<row_status> statuses = {}) {
    detail::check_locate_shapes("hash_table::locate", ids.size(), slots.size(), statuses.size());
    use_rows(exec, ids, slots);
    insert_rows<true>(exec, ids, slots, statuses);
  }
  /// The first half of `locate`, where rows may leave; `locate_new` is the second. An id that has a row in any first half keeps it in all
  /// second halves of the batch. The first half gives the other ids slot -1; the second takes slots as the first left them.
  void locate_held(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) requires(Eviction::evicts) {
    detail::check_locate_shapes("hash_table::locate_held", ids.size(), slots.size(), 0);
    use_rows(exec, ids, slots);
  }
  void locate_new(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
                  vector_view<row_status> statuses = {}) requires(Eviction::evicts) {
    detail::check_locate_shapes("hash_table::locate_new", ids.size(), slots.size(), statuses.size());
    insert_rows<true>(exec, ids, slots, statuses);
  }
  /// As `locate`, without asking the admission policy.
  void insert(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
              vector_view<row_status> statuses = {}) {
    detail::check_locate_shapes("hash_table::insert", ids.size(), slots.size(), statuses.size());
    use_rows(exec, ids, slots);
    insert_rows<false>(exec, ids, slots, statuses);
  }

  void find(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const {
    constexpr std::int64_t ids_per_piece = 2048, ahead = 16;
    detail::check_locate_shapes("hash_table::find", ids.size(), slots.size(), 0);
    for_each_piece(exec, ids.size(), ids_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        if (i + ahead < last) ids_.prefetch(ids[i + ahead]);
        slots[i] = ids_.find(ids[i]);
      }
    });
  }

  /// Removes the rows of these ids, also of batches in flight, and returns how many left; it passes over an id without a row.
  std::int64_t erase(host_exec const&, vector_view<std::int64_t const> ids) {
    auto const before = rows();
    for (auto const id : ids)
      if (auto const slot = ids_.erase(id); slot != id_map::absent) eviction_.removed(slot);
    return before - rows();
  }

  /// Evicts up to `most` rows, in the order of the policy, except those of batches in flight; returns how many left.
  std::int64_t evict(host_exec const& exec, std::int64_t most) {
    static_assert(Eviction::evicts, "hash_table: this policy lets no row leave");
    auto const home = exec.with_memory(memory_);
    std::int64_t count = 0;
    while (count < most && evict_one(home)) ++count;
    return count;
  }
  /// Evicts all rows whose lifetime is over, except those of batches in flight; returns how many left.
  std::int64_t evict_expired(host_exec const& exec) {
    static_assert(std::is_same_v<Eviction, evict_ttl>, "hash_table: with this policy no row expires");
    return evict(exec, rows());
  }

  /// Whether rows evicted from now on are kept for the caller, until `clear_evicted`; at first they are not. The table's memory takes them.
  void keep_evicted(bool keep) noexcept { keeps_evicted_ = keep; }
  /// The rows kept, in the order in which they left.
  evicted_rows_view evicted() const noexcept { return evicted_.view(); }
  /// Forgets the rows kept.
  void clear_evicted() noexcept { evicted_.clear(); }

  /// What the policies remember, for a checkpoint, as their concepts have it. Uses of rows are restored in the order of `for_each_row`;
  /// sightings are those of ids without rows.
  char const* admission_name() const noexcept { return detail::policy_name<Admission>(admission_); }
  char const* eviction_name() const noexcept { return detail::policy_name<Eviction>(eviction_); }
  /// The words that admission keeps of an id without a row.
  std::int64_t sighting_words() const noexcept { return detail::saved_width<Admission>(admission_); }
  /// The words that eviction keeps of a row.
  std::int64_t use_words() const noexcept { return detail::saved_width<Eviction>(eviction_); }
  /// Writes the words of a row's use, (use_words(),).
  void save_use(std::int64_t slot, std::int64_t* words) const { eviction_.save(slot, words); }
  /// Restores the use of a row from its words.
  void restore_use(host_exec const& exec, std::int64_t slot, std::int64_t const* words) {
    eviction_.restore(exec.with_memory(memory_), slot, words);
  }
  /// How many ids without a row admission knows.
  std::int64_t saved_sightings() const noexcept { return admission_.saved_rows(); }
  /// Writes what admission keeps, (saved_sightings(), sighting_words()).
  void save_sightings(matrix_view<std::int64_t> words) const { admission_.save(words); }
  /// Restores what admission kept.
  void restore_sightings(host_exec const& exec, matrix_view<std::int64_t const> words) {
    admission_.restore(exec.with_memory(memory_), words);
  }

 private:
  static table_options const& checked_options(table_options const& options, row_state_layout layout) {
    detail::check_hashed_options("hash_table", options, layout);
    return options;
  }

  // While rows are given, a new slot stands as -2 - slot, so that its row can be initialised after, by many threads.
  static constexpr std::int64_t marked(std::int64_t slot) noexcept { return -2 - slot; }
  static constexpr bool is_marked(std::int64_t slot) noexcept { return slot <= -2; }

  std::int64_t checked_slot(std::int64_t slot) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_slot("hash_table", options_, slot, slot_bound());
    return slot;
  }

  void use_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) {
    constexpr std::int64_t ahead = 8;
    find(exec, ids, slots);
    if constexpr (Eviction::evicts) {
      auto const home = exec.with_memory(memory_);
      for (std::int64_t i = 0; i < slots.size(); ++i) {
        if (i + ahead < slots.size() && slots[i + ahead] >= 0) eviction_.prefetch(slots[i + ahead]);
        if (slots[i] >= 0) eviction_.used(home, slots[i], clock_.now());
      }
    }
  }

  template <bool AskAdmission>
  void insert_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
                   vector_view<row_status> statuses) {
    auto const home = exec.with_memory(memory_);
    bool any_new = false;
    try {
      for (std::int64_t i = 0; i < ids.size(); ++i) {
        auto status = row_status::found;
        if (slots[i] < 0) {
          slots[i] = insert_row<AskAdmission>(home, ids[i], status);
          any_new = any_new || is_marked(slots[i]);
        }
        if (!statuses.empty()) statuses[i] = status;
      }
    } catch (...) {
      initialise(exec, ids, slots);
      throw;
    }
    if (any_new) initialise(exec, ids, slots);
  }

  // The slot for an id that had none when the call began; marked when it is new.
  template <bool AskAdmission>
  std::int64_t insert_row(host_exec const& home, std::int64_t id, row_status& status) {
    if (auto const slot = ids_.find(id); slot != id_map::absent) return slot;
    status = row_status::not_admitted;
    if (AskAdmission && !admission_.admits(home, id, clock_.batch)) return -1;
    bool const full = rows() >= options_.most_rows;
    if (full && !evict_one(home)) return -1;
    auto const slots = std::max(slot_bound(), rows() + 1);
    rows_.grow(home, slots, options_.most_rows);
    eviction_.reserve(home, slots);
    auto const slot = ids_.insert(home, id).first;
    eviction_.inserted(slot, clock_.now());
    admission_.admitted(id);
    status = full ? row_status::evicted : row_status::inserted;
    return marked(slot);
  }

  void initialise(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) {
    for_each_piece(exec, ids.size(), detail::rows_per_init_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        if (!is_marked(slots[i])) continue;
        slots[i] = marked(slots[i]);  // its own inverse
        detail::initialise_row(options_, state_layout(), ids[i], row(slots[i]), state(slots[i]));
      }
    });
  }

  bool evict_one(host_exec const& home) {
    auto const slot = eviction_.victim(clock_.now(), clock_.batch - options_.batches_in_flight + 1);
    if (slot < 0) return false;
    auto const id = ids_.ids()[slot];
    if (keeps_evicted_)
      evicted_.push_back(home, id, vector_view<Element const>(row(slot), dim()),
                         vector_view<float const>(state(slot), state_layout().width(dim())));
    ids_.erase(id);
    eviction_.removed(slot);
    return true;
  }

  table_options options_;
  step_count steps_{};
  table_clock clock_;
  bool keeps_evicted_ = false;
  memory_ref<host_exec> memory_;
  id_map ids_;  // an id's number is its slot
  row_slabs<Element> rows_;
  [[no_unique_address]] typename Admission::state admission_;
  [[no_unique_address]] typename Eviction::state eviction_;
  evicted_rows evicted_;
};
static_assert(row_store<hash_table<>> && row_store<hash_table<float16>> && row_store<hash_table<bfloat16>>);
static_assert(row_store<hash_table<float, admit_by_frequency, evict_lru>> &&
              row_store<hash_table<float, admit_by_probability, evict_lfu>> && row_store<hash_table<float, admit_all, evict_ttl>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
