// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::mpi
// ctest-ranks: 1 2 3 4 8
#include <tessera/comm/mpi_communicator.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

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

TEST_CASE("mpi_communicator: what is out of range is refused") {
  CHECK_THROWS_AS(tessera::mpi_communicator(world(), {{.timeout_ms = 0}}), tessera::error);
  CHECK_THROWS_AS(tessera::mpi_communicator(world(), {{}, 1023}), tessera::error);
}
