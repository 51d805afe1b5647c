// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <tessera/comm/topology.hpp>

#include "random.hpp"

namespace topology_test {

namespace {

using tessera::topology;
using tessera::topology_level;
using rank_list = std::vector<std::int64_t>;

rank_list topology_ranks(topology const& t, std::int64_t level, std::int64_t domain) {
  auto const ranks = t.ranks_of(level, domain);
  return {ranks.begin(), ranks.end()};
}

template <class Call>
tessera::error topology_error(Call const& call) {
  try {
    call();
  } catch (tessera::error const& e) {
    return e;
  }
  return {tessera::errc::device_error, "nothing was thrown"};
}

/// What is thrown where a topology of these levels is made.
tessera::error topology_refused(std::int64_t ranks, std::vector<topology_level> levels) {
  auto const e = topology_error([&] { topology const made(ranks, levels); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  return e;
}

/// Levels of nested domains of any sizes over ranks in any order.
std::vector<topology_level> random_levels(std::mt19937_64& random, std::int64_t ranks, std::int64_t levels) {
  rank_list order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<topology_level> result;
  std::vector<rank_list> domains;
  for (auto const rank : order) domains.push_back({rank});
  for (std::int64_t l = 0; l < levels; ++l) {
    std::vector<rank_list> wider;
    for (auto const& domain : domains) {
      if (wider.empty() || random() % 3 == 0) wider.emplace_back();
      wider.back().insert(wider.back().end(), domain.begin(), domain.end());
    }
    std::shuffle(wider.begin(), wider.end(), random);
    domains = wider;
    result.push_back({"level" + std::to_string(l), domains});
  }
  return result;
}

}  // namespace

TEST_CASE("topology: hosts of two ranks, by hand") {
  auto const t = topology::of_hosts(3, 2);
  CHECK(t.ranks() == 6);
  CHECK(t.levels() == 1);
  CHECK(t.name(0) == "host");
  CHECK(t.level("host") == 0);
  CHECK(t.domains(0) == 3);
  CHECK(topology_ranks(t, 0, 1) == rank_list{2, 3});
  CHECK(t.domain_of(0, 5) == 2);
  CHECK(t.index_in_domain(0, 5) == 1);
  CHECK(t.is_even(0));
  CHECK(t.domain_ranks(0) == 2);
  CHECK(t.shared_level(0, 1) == 0);
  CHECK(t.shared_level(1, 2) == 1);
  CHECK(t.shared_level(4, 4) == 0);
  CHECK(t.peers_of(0, 3) == rank_list{1, 3, 5});
  CHECK(t.peer_order(0) == rank_list{0, 2, 4, 1, 3, 5});
  CHECK(topology::of_hosts(2, 2).peer_order(0) == rank_list{0, 2, 1, 3});  // the example of the paper
}

TEST_CASE("topology: peer order is that of the key (g % L, g / L), also where hosts are more or fewer than their ranks") {
  for (std::int64_t const hosts : {1, 2, 3, 8})
    for (std::int64_t const ranks : {1, 2, 5, 8}) {
      auto const t = topology::of_hosts(hosts, ranks);
      rank_list expected(static_cast<std::size_t>(hosts * ranks));
      std::iota(expected.begin(), expected.end(), 0);
      std::sort(expected.begin(), expected.end(),
                [&](auto a, auto b) { return std::tuple(a % ranks, a / ranks) < std::tuple(b % ranks, b / ranks); });
      CHECK(t.peer_order(0) == expected);
      for (std::int64_t rank = 0; rank < t.ranks(); ++rank) {
        rank_list peers;
        for (std::int64_t other = 0; other < t.ranks(); ++other)
          if (other % ranks == rank % ranks) peers.push_back(other);
        CHECK(t.peers_of(0, rank) == peers);
      }
    }
}

TEST_CASE("topology: one rank, one host, no level") {
  auto const one = topology::flat(1);
  CHECK(one == topology::of_hosts(1, 1));
  CHECK(one.peer_order(0) == rank_list{0});
  CHECK(one.shared_level(0, 0) == 0);
  auto const flat = topology::flat(5);
  CHECK(flat.domains(0) == 1);
  CHECK(topology_ranks(flat, 0, 0) == rank_list{0, 1, 2, 3, 4});
  CHECK(flat.peers_of(0, 3) == rank_list{3});
  topology const bare(3, {});
  CHECK(bare.levels() == 0);
  CHECK(bare.shared_level(0, 2) == 0);
  CHECK(bare.shared_level(1, 1) == 0);
  CHECK(topology_error([&] { bare.with_groups("rack", 1); }).value("domains") == "0");
}

TEST_CASE("topology: of the hosts' names, whose ranks need not be neighbours") {
  std::vector<std::string> const hosts{"b", "a", "b", "c", "a", "b"};
  auto const t = topology::of_host_names(hosts);
  CHECK(t.domains(0) == 3);
  CHECK(topology_ranks(t, 0, 0) == rank_list{0, 2, 5});
  CHECK(topology_ranks(t, 0, 1) == rank_list{1, 4});
  CHECK(topology_ranks(t, 0, 2) == rank_list{3});
  CHECK(t.index_in_domain(0, 5) == 2);
  CHECK(!t.is_even(0));
  auto const e = topology_error([&] { t.peer_order(0); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("level") == "host");
  CHECK(e.value("ranks of domain 0") == "3");
  CHECK(e.value("domain") == "1");
  CHECK(e.value("its ranks") == "2");
  CHECK(topology_error([&] { t.peers_of(0, 1); }).code() == tessera::errc::invalid_argument);

  // Even, though in turn: peers go by the index in the host, not by the rank.
  std::vector<std::string> const in_turn{"x", "y", "y", "x"};
  CHECK(topology::of_host_names(in_turn).peer_order(0) == rank_list{0, 1, 3, 2});
  CHECK(topology::of_host_names(in_turn).peers_of(0, 2) == rank_list{3, 2});
  CHECK(topology::of_host_names(std::vector<std::string>(4, "same")) == topology::flat(4));

  CHECK(topology_error([] { topology::of_host_names(std::vector<std::string>{"a", ""}); }).value("rank") == "1");
  CHECK(topology_error([] { topology::of_host_names({}); }).value("ranks") == "0");
}

TEST_CASE("topology: groups of hosts") {
  auto const t = topology::of_hosts(4, 2).with_groups("rack", 2);
  CHECK(t.levels() == 2);
  CHECK(t.level("rack") == 1);
  CHECK(topology_ranks(t, 1, 1) == rank_list{4, 5, 6, 7});
  CHECK(t.shared_level(0, 1) == 0);
  CHECK(t.shared_level(0, 2) == 1);
  CHECK(t.shared_level(3, 4) == 2);
  CHECK(t.peer_order(1) == rank_list{0, 4, 1, 5, 2, 6, 3, 7});
  auto const e = topology_error([] { topology::of_hosts(4, 2).with_groups("rack", 3); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("domains") == "4");
  CHECK(e.value("each") == "3");
  CHECK(topology_error([] { topology::of_hosts(4, 2).with_groups("rack", 0); }).value("each") == "0");
  CHECK(topology_error([] { topology::of_hosts(4, 2).with_groups("host", 2); }).value("level") == "host");
}

TEST_CASE("topology: random nested domains are what was said") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    auto const ranks = static_cast<std::int64_t>(1 + random() % 30), levels = static_cast<std::int64_t>(random() % 4);
    auto const said = random_levels(random, ranks, levels);
    topology const t(ranks, said);
    REQUIRE(t.levels() == levels);
    auto const domain_said = [&](std::int64_t level, std::int64_t rank) {
      auto const& domains = said[static_cast<std::size_t>(level)].domains;
      auto const has = [&](auto const& d) { return std::find(d.begin(), d.end(), rank) != d.end(); };
      return std::find_if(domains.begin(), domains.end(), has) - domains.begin();
    };
    for (std::int64_t l = 0; l < levels; ++l) {
      auto const& level = said[static_cast<std::size_t>(l)];
      CHECK(t.level(level.name) == l);
      REQUIRE(t.domains(l) == static_cast<std::int64_t>(level.domains.size()));
      bool even = true;
      for (std::int64_t d = 0; d < t.domains(l); ++d) {
        auto sorted = level.domains[static_cast<std::size_t>(d)];
        even = even && sorted.size() == level.domains[0].size();
        std::sort(sorted.begin(), sorted.end());
        REQUIRE(topology_ranks(t, l, d) == sorted);
        for (std::size_t i = 0; i < sorted.size(); ++i) REQUIRE(t.index_in_domain(l, sorted[i]) == static_cast<std::int64_t>(i));
      }
      REQUIRE(t.is_even(l) == even);
      for (std::int64_t r = 0; r < ranks; ++r) REQUIRE(t.domain_of(l, r) == domain_said(l, r));
      if (!even) continue;
      auto order = t.peer_order(l);
      auto const count = static_cast<std::size_t>(t.domains(l));
      for (std::size_t i = 0; i < order.size(); ++i) {
        auto const first = order.begin() + static_cast<std::ptrdiff_t>(i / count * count);
        REQUIRE(t.peers_of(l, order[i]) == rank_list(first, first + static_cast<std::ptrdiff_t>(count)));
      }
      std::sort(order.begin(), order.end());
      for (std::int64_t r = 0; r < ranks; ++r) REQUIRE(order[static_cast<std::size_t>(r)] == r);
    }
    for (std::int64_t a = 0; a < ranks; ++a)
      for (std::int64_t b = 0; b < ranks; ++b) {
        std::int64_t shared = 0;
        while (shared < levels && domain_said(shared, a) != domain_said(shared, b)) ++shared;
        REQUIRE(t.shared_level(a, b) == shared);
      }
    REQUIRE(topology(ranks, t.description()) == t);
  }
}

TEST_CASE("topology: what it refuses") {
  CHECK(topology_refused(0, {}).value("ranks") == "0");
  CHECK(topology_error([] { topology::of_hosts(0, 4); }).value("hosts") == "0");
  CHECK(topology_error([] { topology::of_hosts(2, -1); }).value("ranks per host") == "-1");
  CHECK(topology_error([] { topology::flat(0); }).code() == tessera::errc::invalid_argument);
  CHECK(topology_refused(2, {{"chip", {{0}, {1}}}, {"", {{0, 1}}}}).value("level") == "1");
  CHECK(topology_refused(2, {{"host", {{0}, {1}}}, {"host", {{0, 1}}}}).value("level") == "host");

  auto const empty = topology_refused(2, {{"host", {{0, 1}, {}}}});
  CHECK(empty.value("level") == "host");
  CHECK(empty.value("domain") == "1");
  auto const none = topology_refused(2, {{"host", {{0}, {1, 2}}}});
  CHECK(none.value("rank") == "2");
  CHECK(none.value("domain") == "1");
  CHECK(none.value("ranks") == "2");
  CHECK(topology_refused(2, {{"host", {{0, -1}}}}).value("rank") == "-1");
  auto const twice = topology_refused(3, {{"host", {{0, 1}, {2, 1}}}});
  CHECK(twice.value("rank") == "1");
  CHECK(twice.value("domain") == "0");
  CHECK(twice.value("and domain") == "1");
  CHECK(topology_refused(2, {{"host", {{0, 1, 0}}}}).value("rank") == "0");
  auto const missing = topology_refused(4, {{"host", {{0, 3}, {2}}}});
  CHECK(missing.value("rank") == "1");
  CHECK(topology_refused(std::int64_t{1} << 60, {{"host", {{0, 1}}}}).value("rank") == "2");  // takes no memory for them
  CHECK(topology_refused(1, {{"host", {}}}).value("rank") == "0");

  auto const torn = topology_refused(4, {{"chip", {{0, 2}, {1}, {3}}}, {"host", {{0, 1}, {2, 3}}}});
  CHECK(torn.value("level") == "chip");
  CHECK(torn.value("domain") == "0");
  CHECK(torn.value("next level") == "host");
  CHECK(torn.value("rank") == "0");
  CHECK(torn.value("other rank") == "2");
  CHECK(torn.value("in other domain") == "1");

  auto const t = topology::of_hosts(2, 2);
  for (std::int64_t const bad : {-1, 4}) {
    CHECK(topology_error([&] { t.domain_of(0, bad); }).code() == tessera::errc::out_of_range);
    CHECK(topology_error([&] { t.domain_of(0, bad); }).value("rank") == std::to_string(bad));
    CHECK(topology_error([&] { t.shared_level(0, bad); }).value("rank") == std::to_string(bad));
    CHECK(topology_error([&] { t.index_in_domain(0, bad); }).value("rank") == std::to_string(bad));
    CHECK(topology_error([&] { t.ranks_of(0, bad); }).value("domain") == std::to_string(bad));
    CHECK(topology_error([&] { t.domains(bad); }).value("level") == std::to_string(bad));
    CHECK(topology_error([&] { t.is_even(bad); }).value("level") == std::to_string(bad));
  }
  auto const named = topology_error([] { topology::of_hosts(4, 2).with_groups("rack", 2).level("pod"); });
  CHECK(named.value("name") == "pod");
  CHECK(named.value("levels") == "host rack");

  tessera::check_topology(t, 4);
  auto const other = topology_error([&] { tessera::check_topology(t, 8); });
  CHECK(other.code() == tessera::errc::invalid_argument);
  CHECK(other.value("topology") == "4");
  CHECK(other.value("ranks") == "8");
}

}  // namespace topology_test
