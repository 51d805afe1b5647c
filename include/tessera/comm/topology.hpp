// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// One level of a topology: the domains that the ranks fall into, such as hosts.
struct topology_level {
  std::string name;                                ///< such as "host"
  std::vector<std::vector<std::int64_t>> domains;  ///< the ranks of domain 0, 1, …, in any order

  friend bool operator==(topology_level const&, topology_level const&) = default;
};

/// Where the ranks of a job run: nested domains from the innermost level to the outermost, such as chip, host and rack.
///
/// Ranks are 0 … ranks() - 1, levels 0 … levels() - 1, domains of a level 0 … domains(level) - 1. Each rank is in one domain of each
/// level, and each domain in one domain of the next level. Domains of a level may differ in size. Members that take a level, a domain or a
/// rank throw out_of_range, naming it, where there is none.
class topology {
 public:
  /// A topology of these levels, the innermost first; there may be none.
  /// @throws tessera::error invalid_argument, naming level, domain and rank. It does so for less than one rank, an empty name, two levels of
  /// one name, and an empty domain. It also does so for a rank that is none, and for one that is in no domain of a
  /// level or in two. So it does for a domain whose ranks are in several domains of the next level.
  topology(std::int64_t ranks, std::vector<topology_level> levels) : ranks_(ranks) {
    if (ranks < 1) throw error(errc::invalid_argument, "topology: there is at least one rank", {{"ranks", ranks}});
    for (auto& level : levels) add(std::move(level));
  }

  /// One host. @throws tessera::error invalid_argument for less than one rank.
  static topology flat(std::int64_t ranks) { return of_hosts(1, ranks); }

  /// Hosts of as many ranks each, which count from host to host. @throws tessera::error invalid_argument for less than one of either.
  static topology of_hosts(std::int64_t hosts, std::int64_t ranks_per_host);

  /// The hosts that the ranks say they run on. Hosts are numbered by their first rank; ranks of a host need not be neighbours.
  /// @throws tessera::error invalid_argument, naming the rank, for an empty name; and for no names.
  static topology of_host_names(vector_view<std::string const> host_of_rank);

  /// The same with one more level outside: domains of `each` neighbouring domains of the outermost level. So a tower is made of several
  /// hosts. @throws tessera::error invalid_argument, as the constructor, and where `each` does not divide the number of domains.
  topology with_groups(std::string name, std::int64_t each) const;

  /// The number of ranks.
  std::int64_t ranks() const noexcept { return ranks_; }
  /// The number of levels.
  std::int64_t levels() const noexcept { return static_cast<std::int64_t>(levels_.size()); }
  /// The number of domains of a level.
  std::int64_t domains(std::int64_t level) const { return static_cast<std::int64_t>(at(level).first.size()) - 1; }
  /// The name of a level.
  std::string const& name(std::int64_t level) const { return at(level).name; }

  /// The level of that name. @throws tessera::error invalid_argument naming it and the levels that there are.
  std::int64_t level(std::string_view name) const;

  /// The domain that a rank is in.
  std::int64_t domain_of(std::int64_t level, std::int64_t rank) const { return at(level).domain_of[checked_rank(rank)]; }
  /// The ranks of a domain, ascending. The view is of this topology's memory.
  vector_view<std::int64_t const> ranks_of(std::int64_t level, std::int64_t domain) const;
  /// Which of its domain's ranks a rank is, from 0.
  std::int64_t index_in_domain(std::int64_t level, std::int64_t rank) const { return at(level).index[checked_rank(rank)]; }

  /// Whether all domains of a level have as many ranks.
  bool is_even(std::int64_t level) const;
  /// The ranks that each domain of a level has. @throws tessera::error invalid_argument, naming the level and two domains, where they
  /// differ.
  std::int64_t domain_ranks(std::int64_t level) const;

  /// The innermost level at which two ranks are in one domain, and levels() where there is none. A rank shares the innermost level with
  /// itself.
  std::int64_t shared_level(std::int64_t a, std::int64_t b) const;

  /// The peers of a rank: of each domain the rank with the same index in it, by domain; one of them is the rank itself.
  /// @throws tessera::error as `domain_ranks`. Source: "Disaggregated Multi-Tower", the section on SPTT.
  std::vector<std::int64_t> peers_of(std::int64_t level, std::int64_t rank) const;
  /// All ranks in peer order: by index in the domain, then by domain, so that peers are neighbours. Of hosts of L ranks each, rank g comes
  /// by the key (g % L, g / L). The paper's key (g % T, g / L), with T hosts, is a misprint: it holds where T = L.
  /// @throws tessera::error as `domain_ranks`. Source: as above.
  std::vector<std::int64_t> peer_order(std::int64_t level) const;

  /// The levels as the constructor takes them, with ranks in ascending order.
  std::vector<topology_level> description() const;

  friend bool operator==(topology const& a, topology const& b) { return a.ranks_ == b.ranks_ && a.levels_ == b.levels_; }

 private:
  struct placed_level {
    std::string name;
    std::vector<std::int64_t> by_domain;  // (ranks,), of each domain ascending
    std::vector<std::int64_t> first;      // (domains + 1,), where the ranks of a domain begin
    std::vector<std::int64_t> domain_of;  // (ranks,)
    std::vector<std::int64_t> index;      // (ranks,)

    friend bool operator==(placed_level const&, placed_level const&) = default;
  };

  static void check(char const* what, std::int64_t number, std::int64_t count) {
    if (number < 0 || number >= count)
      throw error(errc::out_of_range, std::string("topology: no such ") + what, {{what, number}, {"count", count}});
  }
  placed_level const& at(std::int64_t level) const {
    check("level", level, levels());
    return levels_[static_cast<std::size_t>(level)];
  }
  std::size_t checked_rank(std::int64_t rank) const {
    check("rank", rank, ranks_);
    return static_cast<std::size_t>(rank);
  }

  void add(topology_level level);

  // Each rank once. Takes memory by what the level lists, not by the number of ranks that it should list.
  void check_ranks(topology_level const& level) const;

  static void check_nested(placed_level const& inner, placed_level const& outer);

  std::int64_t ranks_;
  std::vector<placed_level> levels_;
};

/// Refuses a topology of another number of ranks than the job has. @throws tessera::error invalid_argument naming both.
void check_topology(topology const& topology, std::int64_t ranks);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/comm/topology.ipp>
#endif
