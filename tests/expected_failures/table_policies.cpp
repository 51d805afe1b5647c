// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/embed/hash_table.hpp>

struct my_admission {
  static constexpr char const* name = "mine";
  static constexpr std::int64_t saved_width = 0;
  std::size_t bytes_for(tessera::table_options const&) const { return 0; }

#if CASE == 1  // says: constructible_from
  struct state : tessera::detail::nothing_remembered {
    state(my_admission const&, tessera::table_options const&) {}
#else
  struct state : tessera::detail::nothing_remembered {
    state(tessera::host_exec const&, my_admission const&, tessera::table_options const&) {}
#endif
#if CASE != 2  // says: state.admits\(exec, number, number\)
    bool admits(tessera::host_exec const&, std::int64_t, std::int64_t) const { return true; }
#endif
  };
};

struct my_eviction : tessera::keep_all {
  struct state : tessera::keep_all::state {
    state(my_eviction const& policy, tessera::table_options const& options) : tessera::keep_all::state(policy, options) {}
#if CASE == 3  // says: held.victim\(now, slot\)
   private:
    using tessera::keep_all::state::victim;
#endif
  };
#if CASE == 4  // says: E::name
 private:
  using tessera::keep_all::name;
#endif
};

void use(tessera::hash_table<float, my_admission, my_eviction>&);

void use(tessera::host_exec const& exec, tessera::hash_table<>& keeps_all,
         tessera::hash_table<float, tessera::admit_all, tessera::evict_lru>& keeps_used,
         tessera::hash_table<float, tessera::admit_all, tessera::evict_ttl>& keeps_young) {
#if CASE == 5  // says: hash_table: this policy lets no row leave
  keeps_all.evict(exec, 1);
#else
  keeps_used.evict(exec, 1);
#endif
#if CASE == 5  // says: hash_table: with this policy no row expires
  keeps_used.evict_expired(exec);
#else
  keeps_young.evict_expired(exec);
#endif
}
