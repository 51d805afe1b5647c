// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/two_hop_communicator.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/rank_levels.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>

#include "communicator_suite.hpp"
#include "sanitizers.hpp"

namespace two_hop_communicator_test {

namespace {

using tessera::topology, tessera::thread_communicator;
using tessera_tests::serial_host;
using counting_communicator = tessera::counting_communicator<thread_communicator>;
using two_hop = tessera::two_hop_communicator<thread_communicator>;

topology named(std::vector<std::string> const& hosts) { return topology::of_host_names(hosts); }

// Hosts of as many ranks and of unlike ones, whose ranks are neighbours or not.
std::vector<topology> layouts() {
  std::vector<topology> all;
  for (auto const& [hosts, ranks] : {std::pair(1, 3), {3, 1}, {3, 2}}) all.push_back(topology::of_hosts(hosts, ranks));
  if (!tessera_tests::under_sanitizer) {
    for (std::int64_t const ranks : {1, 2, 5, 8}) all.push_back(topology::of_hosts(1, ranks));
    for (std::int64_t const hosts : {2, 8}) all.push_back(topology::of_hosts(hosts, 1));
    for (auto const& [hosts, ranks] : {std::pair(2, 2), {4, 2}, {2, 4}, {2, 3}}) all.push_back(topology::of_hosts(hosts, ranks));
  }
  all.push_back(named({"a", "b", "a", "c", "b", "a"}));
  all.push_back(named({"a", "a", "a", "b"}));
  all.push_back(named({"a", "b", "c", "d", "e", "a"}));
  return all;
}

tessera::error thrown_by(std::exception_ptr const& failure) {
  REQUIRE(failure != nullptr);
  try {
    std::rethrow_exception(failure);
  } catch (tessera::error const& e) {
    return e;
  } catch (std::exception const& e) {
    return {tessera::errc::device_error, e.what()};
  }
}

// Of each rank, what f(comm, exec) throws there.
template <class F>
std::vector<tessera::error> failures_of(topology const& ranks, F const& f, tessera::communicator_options const& options = {}) {
  auto const count = static_cast<std::size_t>(ranks.ranks());
  std::vector<std::exception_ptr> found(count);
  std::vector<serial_host> hosts(count);
  try {
    tessera::run_thread_ranks(
        static_cast<int>(count),
        [&](thread_communicator& of) {
          auto const r = static_cast<std::size_t>(of.rank());
          try {
            two_hop comm(of, ranks);
            f(comm, hosts[r].exec());
          } catch (...) {
            found[r] = std::current_exception();
            throw;
          }
        },
        options);
  } catch (std::exception const&) {
  }
  std::vector<tessera::error> all;
  for (auto const& one : found) all.push_back(thrown_by(one));
  return all;
}

}  // namespace

TEST_CASE("two_hop_communicator: a model of communicator, over hosts of any shape") {
  auto const seed = tessera_tests::draw_seed();
  for (auto const& ranks : layouts()) {
    CAPTURE(ranks.ranks());
    CAPTURE(ranks.domains(0));
    tessera::run_thread_ranks(static_cast<int>(ranks.ranks()), [&](thread_communicator& of) {
      two_hop comm(of, ranks);
      CHECK(comm.hosts() == ranks.domains(0));
      tessera_tests::check_communicator(comm, seed);
    });
  }
}

TEST_CASE("two_hop_communicator: over any communicator, and over itself: racks of hosts") {
  auto const seed = tessera_tests::draw_seed();
  auto const ranks = topology::of_hosts(4, 2).with_groups("rack", 2);
  tessera::run_thread_ranks(8, [&](thread_communicator& of) {
    tessera::any_communicator comm = two_hop(of, ranks);
    tessera_tests::check_communicator(comm, seed);
    tessera::two_hop_communicator<tessera::any_communicator> by_racks(comm, ranks, {.level = "rack"});
    CHECK(by_racks.hosts() == 2);
    tessera_tests::check_communicator(by_racks, seed);
  });
}

TEST_CASE("two_hop_communicator: one message goes from host to host, and carriers share them evenly") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  for (auto const& ranks : layouts()) {
    auto const count = static_cast<int>(ranks.ranks()), hosts = static_cast<int>(ranks.domains(0));
    if (hosts == 1 || hosts == count) continue;  // exchanges are those of the base
    CAPTURE(count);
    CAPTURE(hosts);
    auto const host_of = [&](int rank) { return static_cast<std::size_t>(ranks.domain_of(0, rank)); };
    std::vector<tessera::sent_counts> sent(static_cast<std::size_t>(count));
    std::vector<serial_host> memories(sent.size());
    constexpr int exchanges = 3;
    tessera::run_thread_ranks(count, [&](thread_communicator& of) {
      auto const r = static_cast<std::size_t>(of.rank());
      auto const exec = memories[r].exec();
      tessera::two_hop_communicator<counting_communicator> comm(counting_communicator(of, sent[r]), ranks);
      tessera::two_hop_communicator<counting_communicator>::pending_type pending;
      for (int e = 0; e < exchanges; ++e) {  // of a message from each rank to each other one, of none, and of two to one rank
        std::vector<std::vector<std::byte>> bytes;
        std::vector<tessera::sent_message> send;
        std::vector<tessera::awaited_message> receive;
        for (int other = 0; other < count && e != 1; ++other) {
          if (e == 2 && (other != 0 || of.rank() == 0)) continue;
          for (int n = 0; n < 1 + e / 2; ++n) bytes.push_back(tessera_tests::made_message(seed, of.rank(), other, n, 5000).bytes);
        }
        std::size_t next = 0;
        for (int other = 0; other < count && e != 1; ++other) {
          if (e == 2 && (other != 0 || of.rank() == 0)) continue;
          for (int n = 0; n < 1 + e / 2; ++n) send.push_back({other, bytes[next++]});
        }
        for (int other = 0; other < count && e != 1; ++other) {
          if (e == 2 && (other == 0 || of.rank() != 0)) continue;
          for (int n = 0; n < 1 + e / 2; ++n) receive.push_back({other});
        }
        comm.begin(exec, {send, receive}, pending);
        auto const received = comm.finish(exec, pending);
        for (std::int64_t i = 0; i < received.size(); ++i) {
          auto const n = e == 2 ? static_cast<int>(i % 2) : 0;
          tessera_tests::made_message const expected(seed, receive[static_cast<std::size_t>(i)].from, of.rank(), n, 5000);
          CHECK(tessera_tests::same_bytes(received[i], expected.bytes));
        }
      }
    });
    std::vector<std::vector<std::int64_t>> between(static_cast<std::size_t>(hosts),
                                                   std::vector<std::int64_t>(static_cast<std::size_t>(hosts)));
    for (int r = 0; r < count; ++r) {
      auto const own = static_cast<std::int64_t>(ranks.ranks_of(0, ranks.domain_of(0, r)).size());
      std::int64_t of_rank = 0, of_host = 0;
      for (auto const& of_operation : sent[static_cast<std::size_t>(r)])
        for (auto const& to : of_operation.second) {
          auto const messages = to.second.messages;
          if (host_of(to.first) == host_of(r)) {
            of_host += messages;
            continue;
          }
          between[host_of(r)][host_of(to.first)] += messages;
          of_rank += messages;
        }
      auto const carried = of_rank / exchanges;
      CHECK(carried >= (hosts - 1) / own);
      CHECK(carried <= tessera::divide_up(hosts - 1, own));
      bool const carries = ranks.index_in_domain(0, r) < std::min<std::int64_t>(own, hosts - 1);
      CHECK(of_host == exchanges * (own - 1) * (carries ? 2 : 1));
    }
    for (std::size_t a = 0; a < between.size(); ++a)
      for (std::size_t b = 0; b < between.size(); ++b) CHECK(between[a][b] == (a == b ? 0 : exchanges));
  }
}

TEST_CASE("two_hop_communicator: sums level by level take no hop more") {
  auto const ranks = topology::of_hosts(3, 2);
  std::vector<tessera::sent_counts> flat(6), hops(6);
  std::vector<serial_host> memories(6);
  tessera::run_thread_ranks(6, [&](thread_communicator& of) {
    auto const r = static_cast<std::size_t>(of.rank());
    auto const exec = memories[r].exec();
    auto const count_sums = [&](auto& comm, tessera::sent_counts& counts) {
      auto levels = tessera::split_by_levels(exec, comm, ranks);
      counts.clear();
      using comm_type = typename std::remove_reference_t<decltype(levels)>::value_type;
      std::vector<float> values(1000, 1.5F);
      tessera::pending_sum<comm_type> pending;
      tessera::rank_sums<comm_type>(levels).all(exec, values, pending);
      CHECK(values == std::vector<float>(1000, 9.0F));
    };
    counting_communicator base(of, flat[r]);
    count_sums(base, flat[r]);
    tessera::two_hop_communicator<counting_communicator> comm(counting_communicator(of, hops[r]), ranks);
    count_sums(comm, hops[r]);
  });
  for (std::size_t r = 0; r < 6; ++r)
    for (auto const& of_operation : flat[r])
      CHECK(tessera::sent_by(hops[r], of_operation.first) == tessera::sent_by(flat[r], of_operation.first));
}

TEST_CASE("two_hop_communicator: a rank that leaves, and one that does not come, end all and are named") {
  auto const ranks = topology::of_hosts(2, 2);
  auto const left = failures_of(ranks, [](two_hop& comm, tessera::host_exec const& exec) {
    if (comm.rank() == 3) throw std::runtime_error("line 9 is bad");
    tessera::barrier(exec, comm, "reading");
  });
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(left[r].code() == tessera::errc::rank_failed);
    CHECK(left[r].value("operation") == "reading");
    CHECK(std::string(left[r].what()).find("line 9 is bad") != std::string::npos);
  }
  CHECK(left[2].value("rank") == "3");

  auto const late = failures_of(ranks,
                                [](two_hop& comm, tessera::host_exec const& exec) {
                                  if (comm.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(400));
                                  tessera::barrier(exec, comm, "a long step");
                                },
                                {.timeout_ms = 60});
  for (auto const& one : late) CHECK((one.code() == tessera::errc::timed_out || one.code() == tessera::errc::rank_failed));
  bool is_named = false;
  for (auto const& one : late)
    if (one.code() == tessera::errc::timed_out) {
      CHECK(one.value("operation") == "a long step");
      CHECK(one.value("timeout_ms") == "60");
      is_named = is_named || one.value("ranks").find('3') != std::string_view::npos;
    }
  CHECK(is_named);

  // An exchange that ends before its finish.
  auto const given_up = failures_of(ranks, [](two_hop& comm, tessera::host_exec const& exec) {
    {
      two_hop::pending_type pending;
      if (comm.rank() == 0) comm.begin(exec, {}, pending);
    }
    tessera::barrier(exec, comm);
  });
  for (auto const& one : given_up) CHECK(one.code() == tessera::errc::rank_failed);
}

TEST_CASE("two_hop_communicator: ranks that are out of step are refused, and go on") {
  auto const ranks = topology::of_hosts(2, 2);
  std::vector<serial_host> hosts(4);
  tessera::run_thread_ranks(4, [&](thread_communicator& of) {
    auto const exec = hosts[static_cast<std::size_t>(of.rank())].exec();
    two_hop comm(of, ranks);
    auto const refused = [&](bool expects, std::string const& from, auto const& call) {
      try {
        call();
        CHECK_FALSE(expects);
      } catch (tessera::error const& e) {
        CHECK(expects);
        CHECK(e.code() == tessera::errc::incompatible);
        CHECK(e.value("from rank") == from);
      }
      tessera::barrier(exec, comm);
    };
    std::vector<std::byte> const bytes(10, std::byte{3});
    for (int const to : {1, 3}) {  // of the same host, and of another
      tessera::sent_message const send{to, bytes};
      tessera::awaited_message const receive{0};
      for (bool const sends : {true, false}) {
        refused(comm.rank() == to, "0", [&] {
          two_hop::pending_type pending;
          bool const is_sent = sends && comm.rank() == 0, is_awaited = !sends && comm.rank() == to;
          comm.begin(exec, {{&send, is_sent ? 1 : 0}, {&receive, is_awaited ? 1 : 0}}, pending);
          comm.finish(exec, pending);
        });
      }
      // Of operations that differ. Rank 0's reaches one rank alone.
      refused(comm.rank() == to, "0", [&] {
        two_hop::pending_type pending;
        comm.begin(exec, {{&send, comm.rank() == 0 ? 1 : 0}, {&receive, comm.rank() == to ? 1 : 0}, comm.rank() == 0 ? "one" : "another"},
                   pending);
        comm.finish(exec, pending);
      });
    }
  });
}

TEST_CASE("two_hop_communicator: failures of ranks of any host are thrown by those that await them, with their text") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const ranks = topology::of_hosts(3, 2);
  std::vector<serial_host> hosts(6);
  tessera::run_thread_ranks(6, [&](thread_communicator& of) {
    auto const exec = hosts[static_cast<std::size_t>(of.rank())].exec();
    two_hop comm(of, ranks);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 10; ++round) {
      // Two ranks fail, and each rank awaits a message of its predecessors by one and by two.
      auto const first = static_cast<int>(random() % 6), second = static_cast<int>(random() % 6);
      std::string const text(random() % 300, 'x');
      std::vector<std::byte> const bytes(100, static_cast<std::byte>(round));
      std::vector<tessera::sent_message> const send{{(of.rank() + 1) % 6, bytes}, {(of.rank() + 2) % 6, bytes}};
      std::vector<int> const from{(of.rank() + 5) % 6, (of.rank() + 4) % 6};
      std::vector<tessera::awaited_message> const receive{{from[0], 100}, {from[1]}};
      bool const fails = of.rank() == first || of.rank() == second;
      two_hop::pending_type pending;
      comm.begin(exec, {send, receive, "a round"}, pending, fails ? std::make_exception_ptr(std::runtime_error(text)) : nullptr);
      int lowest = 6;
      for (int const one : from)
        if (one == first || one == second) lowest = std::min(lowest, one);
      try {
        auto const received = comm.finish(exec, pending);
        CHECK_FALSE(fails);
        CHECK(lowest == 6);
        CHECK(received.size() == 2);
      } catch (tessera::error const& e) {
        CHECK_FALSE(fails);
        CHECK(e.code() == tessera::errc::rank_failed);
        CHECK(e.value("rank") == std::to_string(lowest));
        CHECK(e.value("operation") == "a round");
        CHECK(e.value("reason") == text);
      } catch (std::runtime_error const& e) {
        CHECK(fails);
        CHECK(e.what() == text);
      }
    }
  });
}

TEST_CASE("two_hop_communicator: what is out of range is refused") {
  auto const own = tessera::make_thread_ranks(4);
  auto const code_of = [&](topology const& ranks, tessera::two_hop_options const& options) {
    try {
      two_hop const comm(own[0], ranks, options);
    } catch (tessera::error const& e) {
      return e.code();
    }
    return tessera::errc::device_error;
  };
  CHECK(code_of(topology::of_hosts(2, 2), {}) == tessera::errc::device_error);
  CHECK(code_of(topology::of_hosts(3, 2), {}) == tessera::errc::invalid_argument);
  CHECK(code_of(topology::of_hosts(2, 2), {.level = "rack"}) == tessera::errc::invalid_argument);
  CHECK(code_of(topology(4, {}), {}) == tessera::errc::invalid_argument);

  serial_host host;
  two_hop one(own[0], topology::of_hosts(2, 2)), other(own[0], topology::of_hosts(2, 2));
  two_hop::pending_type pending;
  CHECK_THROWS_AS(one.finish(host.exec(), pending), tessera::error);
  one.begin(host.exec(), {}, pending);
  CHECK(pending.under_way());
  CHECK_THROWS_AS(one.begin(host.exec(), {}, pending), tessera::error);
  CHECK_THROWS_AS(other.finish(host.exec(), pending), tessera::error);
  auto const moved = std::move(pending);
  CHECK(moved.under_way());
  CHECK_FALSE(pending.under_way());  // NOLINT: it is of no exchange
}

}  // namespace two_hop_communicator_test
