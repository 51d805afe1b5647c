// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/comm/counting_communicator.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include "communicator_suite.hpp"

namespace counting_communicator_test {

using tessera::message_count;
using tessera::sent_counts;

TEST_CASE("counting_communicator: a model of communicator, over threads and over any other") {
  auto const seed = tessera_tests::draw_seed();
  for (int const ranks : {1, 2, 3, 4, 8})
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& of) {
      sent_counts sent;
      tessera::counting_communicator comm(of, sent);
      tessera_tests::check_communicator(comm, seed);
      tessera::any_communicator any = tessera::counting_communicator(tessera::any_communicator(of), sent);
      tessera_tests::check_communicator(any, seed);
    });
}

TEST_CASE("counting_communicator: messages and bytes of each operation, to each rank, itself too") {
  constexpr int ranks = 3;
  std::vector<sent_counts> sent(ranks);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& of) {
    auto const r = static_cast<std::size_t>(of.rank());
    auto const exec = hosts[r].exec();
    tessera::counting_communicator comm(of, sent[r]);
    decltype(comm)::pending_type pending;
    // Ten bytes to the next rank, in two messages, and none at all to itself.
    std::vector<std::byte> const bytes(7);
    auto const next = (comm.rank() + 1) % ranks, before = (comm.rank() + ranks - 1) % ranks;
    std::vector<tessera::sent_message> const send{{next, bytes}, {comm.rank(), {}}, {next, {bytes.data(), 3}}};
    std::vector<tessera::awaited_message> const receive{{before}, {before}, {comm.rank()}};
    for (int round = 0; round < 2; ++round) {
      comm.begin(exec, {send, receive, "in rounds"}, pending);
      comm.finish(exec, pending);
    }
    CHECK(sent[r].size() == 1);
    CHECK(sent[r]["in rounds"] == std::map<int, message_count>{{next, {4, 20}}, {comm.rank(), {2, 0}}});
    CHECK(sent_by(sent[r], "in rounds") == message_count{6, 20});
    CHECK(sent_by(sent[r], "never") == message_count{});
    CHECK(sent_to(sent[r], [&](int to) { return to != comm.rank(); }) == message_count{4, 20});

    // What is refused, and what fails, counts nothing.
    std::vector<tessera::sent_message> const nowhere{{0, bytes}, {ranks, bytes}};
    CHECK_THROWS_AS(comm.begin(exec, {nowhere, {}, "nowhere"}, pending), tessera::error);
    auto const failure = comm.rank() == 1 ? std::make_exception_ptr(std::runtime_error("no data")) : nullptr;
    try {
      tessera::barrier(exec, comm, "agreed", failure);
      FAIL_CHECK("a failure was not thrown");
    } catch (std::exception const&) {
    }
    CHECK(sent_by(sent[r], "nowhere") == message_count{});
    CHECK(sent_by(sent[r], "agreed") == (comm.rank() == 1 ? message_count{} : message_count{ranks, 0}));
  });
}

TEST_CASE("counting_communicator: ranks that are split off, and split again, keep the numbers of the first communicator") {
  constexpr int ranks = 8;
  std::vector<sent_counts> sent(ranks);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& of) {
    auto const r = static_cast<std::size_t>(of.rank());
    auto const exec = hosts[r].exec();
    tessera::counting_communicator comm(of, sent[r]);
    auto odd_or_even = comm.split(exec, comm.rank() % 2, -comm.rank());
    auto pairs = odd_or_even.split(exec, odd_or_even.rank() / 2, 0);
    CHECK(sent[r].empty());
    CHECK(pairs.size() == 2);
    std::int64_t const own = comm.rank();
    decltype(pairs)::pending_type pending;
    std::vector<int> members;
    for (auto const& one : tessera::all_gather<std::int64_t>(exec, pairs, {&own, 1}, pending, "in pairs"))
      members.push_back(static_cast<int>(one[0]));
    CHECK(sent[r]["in pairs"] == std::map<int, message_count>{{members.at(0), {1, 8}}, {members.at(1), {1, 8}}});
    CHECK(members.at(0) % 2 == members.at(1) % 2);
    tessera::barrier(exec, odd_or_even, "in halves");
    CHECK(sent[r]["in halves"].size() == 4);
    for (auto const& to : sent[r]["in halves"]) CHECK(to.first % 2 == comm.rank() % 2);
  });
}

}  // namespace counting_communicator_test
