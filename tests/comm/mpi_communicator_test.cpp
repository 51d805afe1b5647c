// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::mpi
// ctest-ranks: 1 2 3 4 8
#include <tessera/comm/mpi_communicator.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/mpi_progress_thread.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/comm/two_hop_communicator.hpp>

#include "communicator_suite.hpp"
#include "mpi_world.hpp"

using tessera_tests::common_seed, tessera_tests::world;

TEST_CASE("mpi_communicator: a model of communicator, with pieces of any size") {
  auto const seed = common_seed();
  for (std::int64_t const piece_bytes : {std::int64_t{1024}, std::int64_t{48} << 10, std::int64_t{1} << 20}) {
    CAPTURE(piece_bytes);
    tessera::mpi_communicator comm(world(), {{.timeout_ms = 600'000}, piece_bytes});
    tessera_tests::check_communicator(comm, seed);
  }
}

TEST_CASE("two_hop_communicator: a model of communicator, over processes") {
  auto const seed = common_seed();
  tessera::mpi_communicator base(world());
  for (std::int64_t const ranks_per_host : {2, 3, 4}) {
    std::vector<std::string> hosts;
    for (int r = 0; r < base.size(); ++r) hosts.push_back("host " + std::to_string(r / ranks_per_host));  // the last may have fewer
    tessera::two_hop_communicator<tessera::mpi_communicator> comm(base, tessera::topology::of_host_names(hosts));
    tessera_tests::check_communicator(comm, seed);
    tessera_tests::serial_host host;
    std::vector<float> values(100, 1);
    comm.sum_native(host.exec(), values);
    CHECK(values == std::vector<float>(100, static_cast<float>(base.size())));
  }
}

TEST_CASE("mpi_communicator: a message of another size than awaited, of many pieces") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::mpi_communicator comm(world(), {{.timeout_ms = 600'000}, 1024});
  auto const next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
  for (std::int64_t const sent : {0, 1, 1024, 1025, 2048, 2049, 5000, 9000})
    for (std::int64_t const awaited : {0, 1, 1024, 1025, 3000, 5000, 9001}) {
      std::vector<std::byte> const bytes(static_cast<std::size_t>(sent), std::byte{7});
      tessera::sent_message const send[] = {{next, bytes}, {next, bytes}};
      tessera::awaited_message const receive[] = {{before, awaited}, {before, sent}};
      tessera::mpi_pending pending;
      comm.begin(exec, {{send, 2}, {receive, 2}}, pending);
      if (sent == awaited)
        CHECK(comm.finish(exec, pending)[0].size() == sent);
      else
        CHECK_THROWS_AS(comm.finish(exec, pending), tessera::error);
      // What comes behind it is as it was sent.
      tessera::sent_message const again{next, bytes};
      tessera::awaited_message const known{before, sent};
      comm.begin(exec, {{&again, 1}, {&known, 1}}, pending);
      CHECK(tessera_tests::same_bytes(comm.finish(exec, pending)[0], bytes));
    }
}

TEST_CASE("mpi_communicator: sums in MPI's order are within rounding of those in the order of ranks, the same on all ranks") {
  auto const seed = common_seed();
  CAPTURE(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::mpi_progress_thread progress;
  tessera::mpi_communicator plain(world()), moved(world(), {}, &progress);
  tessera::any_communicator any = plain;
  CHECK(any.has_native_sum());
  CHECK_FALSE(tessera::any_communicator(tessera::self_communicator()).has_native_sum());
  tessera::any_communicator alone = tessera::self_communicator();
  std::vector<float> one(1);
  CHECK_THROWS_AS(alone.sum_native(exec, one), tessera::error);
  auto half = plain.split(exec, plain.rank() % 2, 0);
  auto const check = [&](auto& comm, std::int64_t count) {
    CAPTURE(count);
    std::seed_seq mix{seed & 0xffffffff, static_cast<std::uint64_t>(comm.rank()), static_cast<std::uint64_t>(count)};
    std::mt19937_64 random(mix);
    auto const own = tessera_tests::random_floats(random, static_cast<std::size_t>(count));
    auto ordered = own, native = own, sizes = own;
    for (auto& size : sizes) size = std::fabs(size);
    using comm_type = std::remove_reference_t<decltype(comm)>;
    tessera::pending_sum<comm_type> pending;
    tessera::rank_sums<comm_type>(comm).all(exec, ordered, pending);
    tessera::rank_sums<comm_type>(comm).all(exec, sizes, pending);
    comm.sum_native(exec, native);
    auto const rounding = static_cast<float>(comm.size()) * 2 * std::numeric_limits<float>::epsilon();
    bool all_near = true;
    for (std::size_t i = 0; i < native.size(); ++i) all_near &= std::fabs(native[i] - ordered[i]) <= rounding * sizes[i];
    CHECK(all_near);
    auto first = native;
    tessera::broadcast<float>(exec, comm, first, 0);
    CHECK(tessera_tests::equal_bits(first, native));
  };
  for (std::int64_t const count : {0, 1, 17, 4000, 300'001}) {
    check(plain, count);
    check(moved, count);
    check(any, count);
    check(half, count);
  }

  // Beside an exchange that is under way, again and again.
  auto const next = (plain.rank() + 1) % plain.size(), before = (plain.rank() + plain.size() - 1) % plain.size();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> const bytes(100'000, static_cast<std::byte>(round));
    tessera::sent_message const send{next, bytes};
    tessera::awaited_message const receive{before};
    tessera::mpi_pending pending;
    plain.begin(exec, {{&send, 1}, {&receive, 1}}, pending);
    std::vector<float> values(1000, 1);
    plain.sum_native(exec, values);
    CHECK(values == std::vector<float>(1000, static_cast<float>(plain.size())));
    CHECK(tessera_tests::same_bytes(plain.finish(exec, pending)[0], bytes));
  }
}

TEST_CASE("mpi_communicator: what is out of range is refused") {
  CHECK_THROWS_AS(tessera::mpi_communicator(world(), {{.timeout_ms = 0}}), tessera::error);
  CHECK_THROWS_AS(tessera::mpi_communicator(world(), {{}, 1023}), tessera::error);
}
