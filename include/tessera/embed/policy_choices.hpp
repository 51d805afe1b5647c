// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/admission.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// An admission policy that is chosen when its table is built: tables of any of these are of one type, and of one group in `local_tables`.
/// A checkpoint has the name and the words of the policy that was chosen.
struct admission_choice {
  std::variant<admit_all, admit_by_probability, admit_by_frequency> policy;

  static constexpr char const* name = "choice";
  static constexpr std::int64_t saved_width = admit_by_frequency::saved_width;  // at most
  std::size_t bytes_for(table_options const& table) const noexcept {
    return std::visit([&](auto const& chosen) { return chosen.bytes_for(table); }, policy);
  }

  class state {
   public:
    state(host_exec const& exec, admission_choice const& choice, table_options const& table)
        : state_(
              std::visit([&]<class Policy>(Policy const& chosen) { return any_state(std::in_place_type<of<Policy>>, exec, chosen, table); },
                         choice.policy)) {}

    /// Those of the policy that was chosen.
    char const* name() const noexcept { return names[state_.index()]; }
    std::int64_t saved_width() const noexcept { return widths[state_.index()]; }

    bool admits(host_exec const& exec, std::int64_t id, std::int64_t batch) {
      return std::visit([&](auto& chosen) { return chosen.admits(exec, id, batch); }, state_);
    }
    void admitted(std::int64_t id) noexcept {
      std::visit([&](auto& chosen) { chosen.admitted(id); }, state_);
    }
    std::size_t bytes() const noexcept {
      return std::visit([](auto const& chosen) { return std::size_t{chosen.bytes()}; }, state_);
    }
    std::int64_t saved_rows() const noexcept {
      return std::visit([](auto const& chosen) { return std::int64_t{chosen.saved_rows()}; }, state_);
    }
    void save(matrix_view<std::int64_t> words) const {
      std::visit([&](auto const& chosen) { chosen.save(words); }, state_);
    }
    void restore(host_exec const& exec, matrix_view<std::int64_t const> words) {
      std::visit([&](auto& chosen) { chosen.restore(exec, words); }, state_);
    }

   private:
    template <class Policy>
    using of = typename Policy::state;
    using any_state = std::variant<of<admit_all>, of<admit_by_probability>, of<admit_by_frequency>>;
    static constexpr char const* names[] = {admit_all::name, admit_by_probability::name, admit_by_frequency::name};
    static constexpr std::int64_t widths[] = {admit_all::saved_width, admit_by_probability::saved_width, admit_by_frequency::saved_width};

    any_state state_;
  };
};
static_assert(admission<admission_choice>);

/// An eviction policy that is chosen when its table is built, as `admission_choice` is. A table whose rows all stay is of `keep_all`.
struct eviction_choice {
  std::variant<evict_lru, evict_lfu, evict_ttl> policy;

  static constexpr bool evicts = true;
  static constexpr char const* name = "choice";
  static constexpr std::int64_t saved_width =
      std::max({evict_lru::saved_width, evict_lfu::saved_width, evict_ttl::saved_width});  // at most
  std::size_t bytes_for(std::int64_t slots) const noexcept {
    return std::visit([&](auto const& chosen) { return chosen.bytes_for(slots); }, policy);
  }

  class state {
   public:
    state(eviction_choice const& choice, table_options const& table)
        : state_(std::visit([&]<class Policy>(Policy const& chosen) { return any_state(std::in_place_type<of<Policy>>, chosen, table); },
                            choice.policy)) {}

    /// Those of the policy that was chosen.
    char const* name() const noexcept { return names[state_.index()]; }
    std::int64_t saved_width() const noexcept { return widths[state_.index()]; }

    void reserve(host_exec const& exec, std::int64_t slots) {
      std::visit([&](auto& chosen) { chosen.reserve(exec, slots); }, state_);
    }
    void prefetch(std::int64_t slot) const noexcept {
      std::visit([&](auto const& chosen) { chosen.prefetch(slot); }, state_);
    }
    void inserted(std::int64_t slot, table_moment now) noexcept {
      std::visit([&](auto& chosen) { chosen.inserted(slot, now); }, state_);
    }
    void used(host_exec const& exec, std::int64_t slot, table_moment now) {
      std::visit([&](auto& chosen) { chosen.used(exec, slot, now); }, state_);
    }
    void removed(std::int64_t slot) noexcept {
      std::visit([&](auto& chosen) { chosen.removed(slot); }, state_);
    }
    std::int64_t victim(table_moment now, std::int64_t first_kept) const noexcept {
      return std::visit([&](auto const& chosen) { return chosen.victim(now, first_kept); }, state_);
    }
    template <class F>
    void for_each(F const& f) const {
      std::visit([&](auto const& chosen) { chosen.for_each(f); }, state_);
    }
    std::size_t bytes() const noexcept {
      return std::visit([](auto const& chosen) { return chosen.bytes(); }, state_);
    }
    void save(std::int64_t slot, std::int64_t* words) const {
      std::visit([&](auto const& chosen) { chosen.save(slot, words); }, state_);
    }
    void restore(host_exec const& exec, std::int64_t slot, std::int64_t const* words) {
      std::visit([&](auto& chosen) { chosen.restore(exec, slot, words); }, state_);
    }

   private:
    template <class Policy>
    using of = typename Policy::state;
    using any_state = std::variant<of<evict_lru>, of<evict_lfu>, of<evict_ttl>>;
    static constexpr char const* names[] = {evict_lru::name, evict_lfu::name, evict_ttl::name};
    static constexpr std::int64_t widths[] = {evict_lru::saved_width, evict_lfu::saved_width, evict_ttl::saved_width};

    any_state state_;
  };
};
static_assert(eviction<eviction_choice>);

}  // namespace TESSERA_ABI
}  // namespace tessera
