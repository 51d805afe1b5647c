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
  static topology of_hosts(std::int64_t hosts, std::int64_t ranks_per_host) {
    if (hosts < 1 || ranks_per_host < 1)
      throw error(errc::invalid_argument, "topology: there is at least one host, and one rank a host",
                  {{"hosts", hosts}, {"ranks per host", ranks_per_host}});
    topology_level level{"host", {}};
    for (std::int64_t host = 0, rank = 0; host < hosts; ++host) {
      auto& domain = level.domains.emplace_back();
      for (std::int64_t i = 0; i < ranks_per_host; ++i) domain.push_back(rank++);
    }
    return {hosts * ranks_per_host, {std::move(level)}};
  }

  /// The hosts that the ranks say they run on. Hosts are numbered by their first rank; ranks of a host need not be neighbours.
  /// @throws tessera::error invalid_argument, naming the rank, for an empty name; and for no names.
  static topology of_host_names(vector_view<std::string const> host_of_rank) {
    topology_level level{"host", {}};
    std::map<std::string_view, std::size_t> numbers;
    for (std::int64_t rank = 0; rank < host_of_rank.size(); ++rank) {
      if (host_of_rank[rank].empty()) throw error(errc::invalid_argument, "topology: the name of a rank's host is empty", {{"rank", rank}});
      auto const host = numbers.emplace(host_of_rank[rank], numbers.size()).first->second;
      if (host == level.domains.size()) level.domains.emplace_back();
      level.domains[host].push_back(rank);
    }
    return {host_of_rank.size(), {std::move(level)}};
  }

  /// The same with one more level outside: domains of `each` neighbouring domains of the outermost level. So a tower is made of several
  /// hosts. @throws tessera::error invalid_argument, as the constructor, and where `each` does not divide the number of domains.
  topology with_groups(std::string name, std::int64_t each) const {
    auto const outermost = levels() - 1;
    auto const count = outermost < 0 ? 0 : domains(outermost);
    if (each < 1 || count % each != 0 || count == 0)
      throw error(errc::invalid_argument, "topology: the domains of the outermost level make no groups of this size",
                  {{"level", name}, {"domains", count}, {"each", each}});
    topology_level groups{std::move(name), {}};
    for (std::int64_t domain = 0; domain < count; ++domain) {
      if (domain % each == 0) groups.domains.emplace_back();
      for (auto const rank : ranks_of(outermost, domain)) groups.domains.back().push_back(rank);
    }
    topology result(*this);
    result.add(std::move(groups));
    return result;
  }

  /// The number of ranks.
  std::int64_t ranks() const noexcept { return ranks_; }
  /// The number of levels.
  std::int64_t levels() const noexcept { return static_cast<std::int64_t>(levels_.size()); }
  /// The number of domains of a level.
  std::int64_t domains(std::int64_t level) const { return static_cast<std::int64_t>(at(level).first.size()) - 1; }
  /// The name of a level.
  std::string const& name(std::int64_t level) const { return at(level).name; }

  /// The level of that name. @throws tessera::error invalid_argument naming it and the levels that there are.
  std::int64_t level(std::string_view name) const {
    std::string known;
    for (std::int64_t l = 0; l < levels(); ++l) {
      if (at(l).name == name) return l;
      known.append(known.empty() ? "" : " ").append(at(l).name);
    }
    throw error(errc::invalid_argument, "topology: no level has this name", {{"name", name}, {"levels", known}});
  }

  /// The domain that a rank is in.
  std::int64_t domain_of(std::int64_t level, std::int64_t rank) const { return at(level).domain_of[checked_rank(rank)]; }
  /// The ranks of a domain, ascending. The view is of this topology's memory.
  vector_view<std::int64_t const> ranks_of(std::int64_t level, std::int64_t domain) const {
    auto const& of = at(level);
    check("domain", domain, domains(level));
    auto const first = of.first[static_cast<std::size_t>(domain)];
    return {of.by_domain.data() + first, of.first[static_cast<std::size_t>(domain) + 1] - first};
  }
  /// Which of its domain's ranks a rank is, from 0.
  std::int64_t index_in_domain(std::int64_t level, std::int64_t rank) const { return at(level).index[checked_rank(rank)]; }

  /// Whether all domains of a level have as many ranks.
  bool is_even(std::int64_t level) const {
    auto const& first = at(level).first;
    for (std::size_t d = 1; d < first.size(); ++d)
      if (first[d] - first[d - 1] != first[1]) return false;
    return true;
  }
  /// The ranks that each domain of a level has. @throws tessera::error invalid_argument, naming the level and two domains, where they
  /// differ.
  std::int64_t domain_ranks(std::int64_t level) const {
    auto const size = ranks_of(level, 0).size();
    for (std::int64_t d = 1; d < domains(level); ++d)
      if (auto const other = ranks_of(level, d).size(); other != size)
        throw error(errc::invalid_argument, "topology: the domains of a level differ in size",
                    {{"level", name(level)}, {"ranks of domain 0", size}, {"domain", d}, {"its ranks", other}});
    return size;
  }

  /// The innermost level at which two ranks are in one domain, and levels() where there is none. A rank shares the innermost level with
  /// itself.
  std::int64_t shared_level(std::int64_t a, std::int64_t b) const {
    auto const i = checked_rank(a), j = checked_rank(b);
    std::int64_t level = 0;
    while (level < levels() && at(level).domain_of[i] != at(level).domain_of[j]) ++level;
    return level;
  }

  /// The peers of a rank: of each domain the rank with the same index in it, by domain; one of them is the rank itself.
  /// @throws tessera::error as `domain_ranks`. Source: "Disaggregated Multi-Tower", the section on SPTT.
  std::vector<std::int64_t> peers_of(std::int64_t level, std::int64_t rank) const {
    domain_ranks(level);
    auto const index = index_in_domain(level, rank);
    std::vector<std::int64_t> result;
    for (std::int64_t d = 0; d < domains(level); ++d) result.push_back(ranks_of(level, d)[index]);
    return result;
  }
  /// All ranks in peer order: by index in the domain, then by domain, so that peers are neighbours. Of hosts of L ranks each, rank g comes
  /// by the key (g % L, g / L). The paper's key (g % T, g / L), with T hosts, is a misprint: it holds where T = L.
  /// @throws tessera::error as `domain_ranks`. Source: as above.
  std::vector<std::int64_t> peer_order(std::int64_t level) const {
    std::vector<std::int64_t> result;
    for (std::int64_t index = 0; index < domain_ranks(level); ++index)
      for (std::int64_t d = 0; d < domains(level); ++d) result.push_back(ranks_of(level, d)[index]);
    return result;
  }

  /// The levels as the constructor takes them, with ranks in ascending order.
  std::vector<topology_level> description() const {
    std::vector<topology_level> result;
    for (std::int64_t l = 0; l < levels(); ++l) {
      auto& level = result.emplace_back(topology_level{name(l), {}});
      for (std::int64_t d = 0; d < domains(l); ++d) level.domains.emplace_back(ranks_of(l, d).begin(), ranks_of(l, d).end());
    }
    return result;
  }

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

  void add(topology_level level) {
    if (level.name.empty()) throw error(errc::invalid_argument, "topology: the name of a level is empty", {{"level", levels()}});
    for (auto const& other : levels_)
      if (other.name == level.name) throw error(errc::invalid_argument, "topology: two levels have one name", {{"level", level.name}});
    check_ranks(level);

    placed_level placed{std::move(level.name), {}, {0}, {}, {}};
    placed.domain_of.resize(static_cast<std::size_t>(ranks_));
    placed.index.resize(static_cast<std::size_t>(ranks_));
    for (auto& domain : level.domains) {
      std::sort(domain.begin(), domain.end());
      for (std::size_t i = 0; i < domain.size(); ++i) {
        placed.domain_of[static_cast<std::size_t>(domain[i])] = static_cast<std::int64_t>(placed.first.size()) - 1;
        placed.index[static_cast<std::size_t>(domain[i])] = static_cast<std::int64_t>(i);
      }
      placed.by_domain.insert(placed.by_domain.end(), domain.begin(), domain.end());
      placed.first.push_back(static_cast<std::int64_t>(placed.by_domain.size()));
    }
    if (!levels_.empty()) check_nested(levels_.back(), placed);
    levels_.push_back(std::move(placed));
  }

  // Each rank once. Takes memory by what the level lists, not by the number of ranks that it should list.
  void check_ranks(topology_level const& level) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> listed;  // rank, domain
    for (std::size_t d = 0; d < level.domains.size(); ++d) {
      auto const domain = static_cast<std::int64_t>(d);
      if (level.domains[d].empty())
        throw error(errc::invalid_argument, "topology: a domain has no ranks", {{"level", level.name}, {"domain", domain}});
      for (auto const rank : level.domains[d]) {
        if (rank < 0 || rank >= ranks_)
          throw error(errc::invalid_argument, "topology: a domain has a rank that is none",
                      {{"level", level.name}, {"domain", domain}, {"rank", rank}, {"ranks", ranks_}});
        listed.emplace_back(rank, domain);
      }
    }
    std::sort(listed.begin(), listed.end());
    for (std::size_t i = 1; i < listed.size(); ++i)
      if (listed[i].first == listed[i - 1].first)
        throw error(errc::invalid_argument, "topology: a rank is listed twice",
                    {{"level", level.name}, {"rank", listed[i].first}, {"domain", listed[i - 1].second}, {"and domain", listed[i].second}});
    std::int64_t missing = 0;
    for (auto const& [rank, domain] : listed) missing += rank == missing;
    if (missing < ranks_)
      throw error(errc::invalid_argument, "topology: a rank is in no domain",
                  {{"level", level.name}, {"rank", missing}, {"ranks", ranks_}});
  }

  static void check_nested(placed_level const& inner, placed_level const& outer) {
    for (std::size_t d = 0; d + 1 < inner.first.size(); ++d) {
      auto const* const ranks = inner.by_domain.data();
      auto const domain_of = [&](std::int64_t at) { return outer.domain_of[static_cast<std::size_t>(ranks[at])]; };
      for (auto at = inner.first[d]; at < inner.first[d + 1]; ++at)
        if (domain_of(at) != domain_of(inner.first[d]))
          throw error(errc::invalid_argument, "topology: the ranks of a domain are in two domains of the next level",
                      {{"level", inner.name},
                       {"domain", d},
                       {"next level", outer.name},
                       {"rank", ranks[inner.first[d]]},
                       {"in domain", domain_of(inner.first[d])},
                       {"other rank", ranks[at]},
                       {"in other domain", domain_of(at)}});
    }
  }

  std::int64_t ranks_;
  std::vector<placed_level> levels_;
};

/// Refuses a topology of another number of ranks than the job has. @throws tessera::error invalid_argument naming both.
inline void check_topology(topology const& topology, std::int64_t ranks) {
  if (topology.ranks() != ranks)
    throw error(errc::invalid_argument, "topology: it describes another number of ranks than there are",
                {{"topology", topology.ranks()}, {"ranks", ranks}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
