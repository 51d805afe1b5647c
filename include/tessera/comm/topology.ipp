// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/topology.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE topology topology::of_hosts(std::int64_t hosts, std::int64_t ranks_per_host) {
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

TESSERA_INLINE topology topology::of_host_names(vector_view<std::string const> host_of_rank) {
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

TESSERA_INLINE topology topology::with_groups(std::string name, std::int64_t each) const {
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

TESSERA_INLINE std::int64_t topology::level(std::string_view name) const {
  std::string known;
  for (std::int64_t l = 0; l < levels(); ++l) {
    if (at(l).name == name) return l;
    known.append(known.empty() ? "" : " ").append(at(l).name);
  }
  throw error(errc::invalid_argument, "topology: no level has this name", {{"name", name}, {"levels", known}});
}

TESSERA_INLINE vector_view<std::int64_t const> topology::ranks_of(std::int64_t level, std::int64_t domain) const {
  auto const& of = at(level);
  check("domain", domain, domains(level));
  auto const first = of.first[static_cast<std::size_t>(domain)];
  return {of.by_domain.data() + first, of.first[static_cast<std::size_t>(domain) + 1] - first};
}

TESSERA_INLINE bool topology::is_even(std::int64_t level) const {
  auto const& first = at(level).first;
  for (std::size_t d = 1; d < first.size(); ++d)
    if (first[d] - first[d - 1] != first[1]) return false;
  return true;
}

TESSERA_INLINE std::int64_t topology::domain_ranks(std::int64_t level) const {
  auto const size = ranks_of(level, 0).size();
  for (std::int64_t d = 1; d < domains(level); ++d)
    if (auto const other = ranks_of(level, d).size(); other != size)
      throw error(errc::invalid_argument, "topology: the domains of a level differ in size",
                  {{"level", name(level)}, {"ranks of domain 0", size}, {"domain", d}, {"its ranks", other}});
  return size;
}

TESSERA_INLINE std::int64_t topology::shared_level(std::int64_t a, std::int64_t b) const {
  auto const i = checked_rank(a), j = checked_rank(b);
  std::int64_t level = 0;
  while (level < levels() && at(level).domain_of[i] != at(level).domain_of[j]) ++level;
  return level;
}

TESSERA_INLINE std::vector<std::int64_t> topology::peers_of(std::int64_t level, std::int64_t rank) const {
  domain_ranks(level);
  auto const index = index_in_domain(level, rank);
  std::vector<std::int64_t> result;
  for (std::int64_t d = 0; d < domains(level); ++d) result.push_back(ranks_of(level, d)[index]);
  return result;
}

TESSERA_INLINE std::vector<std::int64_t> topology::peer_order(std::int64_t level) const {
  std::vector<std::int64_t> result;
  for (std::int64_t index = 0; index < domain_ranks(level); ++index)
    for (std::int64_t d = 0; d < domains(level); ++d) result.push_back(ranks_of(level, d)[index]);
  return result;
}

TESSERA_INLINE std::vector<topology_level> topology::description() const {
  std::vector<topology_level> result;
  for (std::int64_t l = 0; l < levels(); ++l) {
    auto& level = result.emplace_back(topology_level{name(l), {}});
    for (std::int64_t d = 0; d < domains(l); ++d) level.domains.emplace_back(ranks_of(l, d).begin(), ranks_of(l, d).end());
  }
  return result;
}

TESSERA_INLINE void topology::add(topology_level level) {
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

TESSERA_INLINE void topology::check_ranks(topology_level const& level) const {
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
    throw error(errc::invalid_argument, "topology: a rank is in no domain", {{"level", level.name}, {"rank", missing}, {"ranks", ranks_}});
}

TESSERA_INLINE void topology::check_nested(placed_level const& inner, placed_level const& outer) {
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

TESSERA_INLINE void check_topology(topology const& topology, std::int64_t ranks) {
  if (topology.ranks() != ranks)
    throw error(errc::invalid_argument, "topology: it describes another number of ranks than there are",
                {{"topology", topology.ranks()}, {"ranks", ranks}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
