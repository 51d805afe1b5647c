// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/linked_numbers.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// When a row was used: the number of the batch, and the time of the table.
struct table_moment {
  std::int64_t batch = 0;
  std::int64_t time = 0;
};

/// The clock of a table: the number of batches begun, and the time that its caller set, if any.
struct table_clock {
  std::int64_t batch = 0;
  std::optional<std::int64_t> time;

  /// The batch, and the time where there is one, else the batch again.
  constexpr table_moment now() const noexcept { return {batch, time.value_or(batch)}; }
  friend constexpr bool operator==(table_clock const&, table_clock const&) = default;
};

/// Decides which row leaves a table. The policy is its options; what it remembers is its `state`, one a table:
/// - `state(policy, table)` refuses options out of range. `reserve(exec, slots)` makes room for slots below `slots` and for the next
///   `inserted`, which then does not throw. The first `reserve` takes `policy.bytes_for(slots)`.
/// - `inserted(slot, now)`, `used(exec, slot, now)` and `removed(slot)` note what happened to a row. A row counts as used once a batch, so
///   that repetitions within a batch change nothing. Batches and times never decrease.
/// - `victim(now, first_kept)` is the row to leave next among those not used in batch `first_kept` or later; -1 for none.
/// - `for_each(f)` calls f(slot) for each row, the next to leave first.
/// - `save(slot, words)` and `restore(exec, slot, words)`, (saved_width,), are what a checkpoint keeps of each row under the policy's
///   `name`. Rows are restored in the order of `for_each`, each after it was inserted.
/// - `name()` and `saved_width()` of a state are optional: they replace those of the policy, whose width is then the upper bound.
/// - `evicts` is false for a policy that lets no row leave: a table then calls none of the above.
template <class E>
concept eviction = std::is_trivially_copyable_v<E> && std::default_initializable<E> &&
    std::constructible_from<typename E::state, E const&, table_options const&> &&
    requires(E const& policy, typename E::state& state, typename E::state const& held, host_exec const& exec, std::int64_t slot,
             table_moment now, void (*f)(std::int64_t), std::int64_t* words, std::int64_t const* saved) {
  { E::evicts } -> std::convertible_to<bool>;
  { E::name } -> std::convertible_to<char const*>;
  { E::saved_width } -> std::convertible_to<std::int64_t>;
  { policy.bytes_for(slot) } -> std::same_as<std::size_t>;
  state.reserve(exec, slot);
  state.prefetch(slot);
  state.inserted(slot, now);
  state.used(exec, slot, now);
  state.removed(slot);
  { held.victim(now, slot) } -> std::same_as<std::int64_t>;
  held.for_each(f);
  { held.bytes() } -> std::same_as<std::size_t>;
  held.save(slot, words);
  state.restore(exec, slot, saved);
};

/// No row leaves by itself.
struct keep_all {
  static constexpr bool evicts = false;
  static constexpr char const* name = "all";
  static constexpr std::int64_t saved_width = 0;
  static constexpr std::size_t bytes_for(std::int64_t) noexcept { return 0; }

  struct state {
    state(keep_all const&, table_options const&) noexcept {}
    static constexpr void reserve(host_exec const&, std::int64_t) noexcept {}
    static constexpr void prefetch(std::int64_t) noexcept {}
    static constexpr void inserted(std::int64_t, table_moment) noexcept {}
    static constexpr void used(host_exec const&, std::int64_t, table_moment) noexcept {}
    static constexpr void removed(std::int64_t) noexcept {}
    static constexpr std::int64_t victim(table_moment, std::int64_t) noexcept { return -1; }
    template <class F>
    static constexpr void for_each(F const&) noexcept {}
    static constexpr std::size_t bytes() noexcept { return 0; }
    static constexpr void save(std::int64_t, std::int64_t*) noexcept {}
    static constexpr void restore(host_exec const&, std::int64_t, std::int64_t const*) noexcept {}
  };
};
static_assert(eviction<keep_all>);

namespace detail {

// The rows of a table, the one not used for longest first; of several last used in one batch, in the order of their first use there. Each
// use takes the same time. `Moment`: std::int64_t for the batch alone, or table_moment.
template <class Moment>
class rows_by_use {
 public:
  static std::size_t bytes_for(std::int64_t slots) noexcept { return linked_numbers<Moment>::bytes_for(slots); }

  void reserve(host_exec const& exec, std::int64_t slots) { rows_.reserve(exec, slots); }
  void prefetch(std::int64_t slot) const noexcept { rows_.prefetch(slot); }
  void inserted(std::int64_t slot, table_moment now) noexcept {
    set(rows_[slot], now);
    rows_.push_back(order_, slot);
  }
  void used(host_exec const&, std::int64_t slot, table_moment now) noexcept {
    if (batch(rows_[slot]) == now.batch) return;
    set(rows_[slot], now);
    rows_.remove(order_, slot);
    rows_.push_back(order_, slot);
  }
  void removed(std::int64_t slot) noexcept { rows_.remove(order_, slot); }

  std::int64_t first(std::int64_t first_kept) const noexcept {
    return order_.empty() || batch(rows_[order_.first]) >= first_kept ? -1 : order_.first;
  }
  Moment const& last_use(std::int64_t slot) const noexcept { return rows_[slot]; }
  template <class F>
  void for_each(F const& f) const {
    for (auto slot = order_.first; slot >= 0; slot = rows_.next(slot)) f(slot);
  }
  std::size_t bytes() const noexcept { return rows_.bytes(); }
  void restore(std::int64_t slot, Moment last_use) noexcept {
    rows_.remove(order_, slot);
    rows_[slot] = last_use;
    rows_.push_back(order_, slot);
  }

 private:
  static void set(std::int64_t& row, table_moment now) noexcept { row = now.batch; }
  static void set(table_moment& row, table_moment now) noexcept { row = now; }
  static std::int64_t batch(std::int64_t row) noexcept { return row; }
  static std::int64_t batch(table_moment row) noexcept { return row.batch; }

  linked_numbers<Moment> rows_;
  number_list order_;
};

}  // namespace detail

/// The row not used for longest leaves first. It takes 24 bytes a row, and the same time a use for any number of rows.
struct evict_lru {
  static constexpr bool evicts = true;
  static constexpr char const* name = "lru";
  static constexpr std::int64_t saved_width = 1;  ///< last batch
  static std::size_t bytes_for(std::int64_t slots) noexcept { return detail::rows_by_use<std::int64_t>::bytes_for(slots); }

  struct state : detail::rows_by_use<std::int64_t> {
    state(evict_lru const&, table_options const&) noexcept {}
    std::int64_t victim(table_moment, std::int64_t first_kept) const noexcept { return first(first_kept); }
    void save(std::int64_t slot, std::int64_t* words) const noexcept { words[0] = last_use(slot); }
    void restore(host_exec const&, std::int64_t slot, std::int64_t const* words) noexcept { rows_by_use::restore(slot, words[0]); }
  };
};
static_assert(eviction<evict_lru>);

/// A row may leave once it has not been used for `lifetime`, in batches or in the unit of the table's time. The row not used for longest
/// leaves first. The policy takes 32 bytes a row.
struct evict_ttl {
  std::int64_t lifetime = std::numeric_limits<std::int64_t>::max();

  static constexpr bool evicts = true;
  static constexpr char const* name = "ttl";
  static constexpr std::int64_t saved_width = 2;  ///< last batch, last time
  static std::size_t bytes_for(std::int64_t slots) noexcept { return detail::rows_by_use<table_moment>::bytes_for(slots); }

  class state : public detail::rows_by_use<table_moment> {
   public:
    state(evict_ttl const& policy, table_options const& table) : lifetime_(policy.lifetime) {
      if (lifetime_ < 0)
        throw error(errc::invalid_argument, "evict_ttl: a lifetime is not negative", {{"table", table.id.value}, {"lifetime", lifetime_}});
    }
    std::int64_t victim(table_moment now, std::int64_t first_kept) const noexcept {
      auto const slot = first(first_kept);
      // As unsigned numbers: two times may lie further apart than an int64 reaches.
      return slot < 0 || static_cast<std::uint64_t>(now.time) - static_cast<std::uint64_t>(last_use(slot).time) <=
                             static_cast<std::uint64_t>(lifetime_)
                 ? -1
                 : slot;
    }
    void save(std::int64_t slot, std::int64_t* words) const noexcept {
      words[0] = last_use(slot).batch;
      words[1] = last_use(slot).time;
    }
    void restore(host_exec const&, std::int64_t slot, std::int64_t const* words) noexcept {
      rows_by_use::restore(slot, {words[0], words[1]});
    }

   private:
    std::int64_t lifetime_;
  };
};
static_assert(eviction<evict_ttl>);

/// The row used in the fewest batches leaves first; of several, the one not used for longest. It takes 32 bytes a row and 40 for each
/// different count, and the same time a use for any number of rows. Source: Shah, Mitra, Matani, "An O(1) algorithm for implementing the
/// LFU cache eviction scheme", 2010: a list of counts, each with a list of rows.
struct evict_lfu {
  static constexpr bool evicts = true;
  static constexpr char const* name = "lfu";
  static constexpr std::int64_t saved_width = 2;  ///< count, last batch
  static std::size_t bytes_for(std::int64_t slots) noexcept {
    return linked_numbers<row>::bytes_for(slots) + (slots > 0 ? linked_numbers<rows_of_count>::bytes_for(first_groups) : 0);
  }

 private:
  static constexpr std::int64_t first_groups = 16;
  struct row {
    std::int64_t batch;  // the last
    std::int64_t group;
  };
  struct rows_of_count {
    std::int64_t count;
    number_list rows;  // the one not used for longest first
  };

 public:
  class state {
   public:
    state(evict_lfu const&, table_options const&) noexcept {}

    void reserve(host_exec const& exec, std::int64_t slots) {
      rows_.reserve(exec, slots);
      if (slots > 0) reserve_group(exec);
    }
    void prefetch(std::int64_t slot) const noexcept { rows_.prefetch(slot); }
    void inserted(std::int64_t slot, table_moment now) noexcept {
      rows_[slot].batch = now.batch;
      join(group_of(none, 1), slot);
    }
    void used(host_exec const& exec, std::int64_t slot, table_moment now) {
      if (rows_[slot].batch == now.batch) return;
      reserve_group(exec);
      auto const group = rows_[slot].group;
      move(slot, group_of(group, groups_[group].count + 1));
      rows_[slot].batch = now.batch;
    }
    void removed(std::int64_t slot) noexcept { leave(slot); }

    std::int64_t victim(table_moment, std::int64_t first_kept) const noexcept {
      for (auto group = order_.first; group >= 0; group = groups_.next(group))
        if (auto const slot = groups_[group].rows.first; rows_[slot].batch < first_kept) return slot;
      return none;
    }
    template <class F>
    void for_each(F const& f) const {
      for (auto group = order_.first; group >= 0; group = groups_.next(group))
        for (auto slot = groups_[group].rows.first; slot >= 0; slot = rows_.next(slot)) f(slot);
    }
    std::size_t bytes() const noexcept { return rows_.bytes() + groups_.bytes(); }
    void save(std::int64_t slot, std::int64_t* words) const noexcept {
      words[0] = groups_[rows_[slot].group].count;
      words[1] = rows_[slot].batch;
    }
    void restore(host_exec const& exec, std::int64_t slot, std::int64_t const* words) {
      if (words[0] < 1 || words[0] > most_counted)
        throw error(errc::out_of_range, "evict_lfu: a count that no row has",
                    {{"slot", slot}, {"count", words[0]}, {"most", most_counted}});
      reserve_group(exec);
      auto before = order_.last;
      while (before >= 0 && groups_[before].count >= words[0]) before = groups_.previous(before);
      move(slot, group_of(before, words[0]));
      rows_[slot].batch = words[1];
    }

   private:
    static constexpr std::int64_t none = -1;

    // Makes sure that one group is unused.
    void reserve_group(host_exec const& exec) {
      if (!unused_.empty()) return;
      groups_.reserve(exec, group_bound_ == 0 ? first_groups : group_bound_ + 1);
      groups_.push_back(unused_, group_bound_++);
    }
    // The group of that count, which belongs right behind group `before`; it may be empty.
    std::int64_t group_of(std::int64_t before, std::int64_t count) noexcept {
      auto const behind = before == none ? order_.first : groups_.next(before);
      if (behind != none && groups_[behind].count == count) return behind;
      auto const group = unused_.first;
      groups_.remove(unused_, group);
      groups_[group] = {count, {}};
      groups_.insert_after(order_, before, group);
      return group;
    }
    void join(std::int64_t group, std::int64_t slot) noexcept {
      rows_[slot].group = group;
      rows_.push_back(groups_[group].rows, slot);
    }
    void leave(std::int64_t slot) noexcept {
      auto const group = rows_[slot].group;
      rows_.remove(groups_[group].rows, slot);
      if (!groups_[group].rows.empty()) return;
      groups_.remove(order_, group);
      groups_.push_back(unused_, group);
    }
    void move(std::int64_t slot, std::int64_t group) noexcept {
      if (rows_[slot].group == group)
        rows_.remove(groups_[group].rows, slot);
      else
        leave(slot);
      join(group, slot);
    }

    linked_numbers<row> rows_;
    linked_numbers<rows_of_count> groups_;
    number_list order_;   // groups that have rows, by count
    number_list unused_;  // other groups
    std::int64_t group_bound_ = 0;
  };
};
static_assert(eviction<evict_lfu>);

}  // namespace TESSERA_ABI
}  // namespace tessera
