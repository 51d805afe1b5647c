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

namespace detail {

/// The state of the policy that was chosen of several.
template <class... Policies>
class chosen_state {
 public:
  static constexpr std::int64_t most_saved_width = std::max({Policies::saved_width...});

  char const* name() const noexcept { return names[state_.index()]; }
  std::int64_t saved_width() const noexcept { return widths[state_.index()]; }
  std::size_t bytes() const noexcept {
    return visit([](auto const& chosen) { return std::size_t{chosen.bytes()}; });
  }

 protected:
  // `first`: what the policies' states take before the policy.
  template <class... First>
  chosen_state(std::variant<Policies...> const& policy, table_options const& table, First const&... first)
      : state_(std::visit(
            [&]<class Policy>(Policy const& chosen) {
              return any_state(std::in_place_type<typename Policy::state>, first..., chosen, table);
            },
            policy)) {}

  template <class F>
  decltype(auto) visit(F const& f) {
    return std::visit(f, state_);
  }
  template <class F>
  decltype(auto) visit(F const& f) const {
    return std::visit(f, state_);
  }

 private:
  using any_state = std::variant<typename Policies::state...>;
  static constexpr char const* names[] = {Policies::name...};
  static constexpr std::int64_t widths[] = {Policies::saved_width...};

  any_state state_;
};

}  // namespace detail

/// An admission policy that is chosen when its table is built. Tables with any of these policies are of one type, and of one group in
/// `local_tables`. A checkpoint keeps the name and the words of the policy that was chosen.
struct admission_choice {
  std::variant<admit_all, admit_by_probability, admit_by_frequency> policy;

 private:
  using chosen_state = detail::chosen_state<admit_all, admit_by_probability, admit_by_frequency>;

 public:
  static constexpr char const* name = "choice";
  static constexpr std::int64_t saved_width = chosen_state::most_saved_width;
  std::size_t bytes_for(table_options const& table) const noexcept {
    return std::visit([&](auto const& chosen) { return chosen.bytes_for(table); }, policy);
  }

  struct state : chosen_state {
    state(host_exec const& exec, admission_choice const& choice, table_options const& table) : chosen_state(choice.policy, table, exec) {}

    bool admits(host_exec const& exec, std::int64_t id, std::int64_t batch) {
      return visit([&](auto& chosen) { return chosen.admits(exec, id, batch); });
    }
    void admitted(std::int64_t id) noexcept {
      visit([&](auto& chosen) { chosen.admitted(id); });
    }
    std::int64_t saved_rows() const noexcept {
      return visit([](auto const& chosen) { return std::int64_t{chosen.saved_rows()}; });
    }
    void save(matrix_view<std::int64_t> words) const {
      visit([&](auto const& chosen) { chosen.save(words); });
    }
    void restore(host_exec const& exec, matrix_view<std::int64_t const> words) {
      visit([&](auto& chosen) { chosen.restore(exec, words); });
    }
  };
};
static_assert(admission<admission_choice>);

/// An eviction policy that is chosen when its table is built, as `admission_choice` is. A table whose rows never leave takes `keep_all`
/// instead.
struct eviction_choice {
  std::variant<evict_lru, evict_lfu, evict_ttl> policy;

 private:
  using chosen_state = detail::chosen_state<evict_lru, evict_lfu, evict_ttl>;

 public:
  static constexpr bool evicts = true;
  static constexpr char const* name = "choice";
  static constexpr std::int64_t saved_width = chosen_state::most_saved_width;
  std::size_t bytes_for(std::int64_t slots) const noexcept {
    return std::visit([&](auto const& chosen) { return chosen.bytes_for(slots); }, policy);
  }

  struct state : chosen_state {
    state(eviction_choice const& choice, table_options const& table) : chosen_state(choice.policy, table) {}

    void reserve(host_exec const& exec, std::int64_t slots) {
      visit([&](auto& chosen) { chosen.reserve(exec, slots); });
    }
    void prefetch(std::int64_t slot) const noexcept {
      visit([&](auto const& chosen) { chosen.prefetch(slot); });
    }
    void inserted(std::int64_t slot, table_moment now) noexcept {
      visit([&](auto& chosen) { chosen.inserted(slot, now); });
    }
    void used(host_exec const& exec, std::int64_t slot, table_moment now) {
      visit([&](auto& chosen) { chosen.used(exec, slot, now); });
    }
    void removed(std::int64_t slot) noexcept {
      visit([&](auto& chosen) { chosen.removed(slot); });
    }
    std::int64_t victim(table_moment now, std::int64_t first_kept) const noexcept {
      return visit([&](auto const& chosen) { return chosen.victim(now, first_kept); });
    }
    template <class F>
    void for_each(F const& f) const {
      visit([&](auto const& chosen) { chosen.for_each(f); });
    }
    void save(std::int64_t slot, std::int64_t* words) const {
      visit([&](auto const& chosen) { chosen.save(slot, words); });
    }
    void restore(host_exec const& exec, std::int64_t slot, std::int64_t const* words) {
      visit([&](auto& chosen) { chosen.restore(exec, slot, words); });
    }
  };
};
static_assert(eviction<eviction_choice>);

}  // namespace TESSERA_ABI
}  // namespace tessera
