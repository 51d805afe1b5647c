// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::mpi
// ctest-ranks: 2 3
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/core/error.hpp>

#include "hosts.hpp"
#include "mpi_world.hpp"

using tessera_tests::world;

TEST_CASE("mpi_communicator: a process that throws is named by all, and those that go on are in step") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::mpi_communicator comm(world(), {{.timeout_ms = 600'000}});
  auto const failing = comm.size() - 1;
  try {
    tessera::barrier(exec, comm, "reading",
                     comm.rank() == failing ? std::make_exception_ptr(std::runtime_error("line 3 is bad")) : nullptr);
    FAIL_CHECK("nothing was thrown");
  } catch (tessera::error const& e) {
    CHECK(comm.rank() != failing);
    CHECK(e.code() == tessera::errc::rank_failed);
    CHECK(e.value("rank") == std::to_string(failing));
    CHECK(e.value("operation") == "reading");
    CHECK(e.value("reason") == "line 3 is bad");
  } catch (std::runtime_error const&) {
    CHECK(comm.rank() == failing);
  }
  tessera::barrier(exec, comm);
}

TEST_CASE("mpi_communicator: a rank that fails before a sum of MPI's own, and one that does not come to it, end the others") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (bool const says_so : {true, false}) {
    CAPTURE(says_so);
    tessera::mpi_communicator comm(world(), {{.timeout_ms = says_so ? 600'000 : 300}});
    auto const failing = comm.size() - 1;
    std::vector<float> values(1000, 2);
    bool has_sums = false;
    tessera::barrier(exec, comm);
    if (comm.rank() == failing) {
      if (says_so)
        comm.fail("line 5 is bad");
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    }
    try {
      comm.sum_native(exec, values);
      CHECK((!says_so && comm.rank() == failing));  // the others have left by now, but for what they gave before
      has_sums = true;
    } catch (tessera::error const& e) {
      CHECK(e.value("operation") == "sum_native");
      if (says_so && comm.size() == 2) CHECK(e.value("rank") == std::to_string(failing));
      if (says_so) CHECK(e.code() == tessera::errc::rank_failed);
      if (says_so) CHECK(std::string(e.what()).find("line 5 is bad") != std::string::npos);
      if (!says_so) CHECK((e.code() == tessera::errc::timed_out || e.code() == tessera::errc::rank_failed));
    }
    if (!has_sums) CHECK(values == std::vector<float>(1000, 2));  // as they were
    try {
      comm.sum_native(exec, values);
      FAIL_CHECK("a rank that has left goes on");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::rank_failed);
    }
    MPI_Barrier(world());
  }
}

// The last test of this file: behind it the communicator is of no use.
TEST_CASE("mpi_communicator: a process that does not come is named by those that wait for it, within the time limit") {
  using clock = std::chrono::steady_clock;
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::mpi_communicator comm(world(), {{.timeout_ms = 500}});
  tessera::barrier(exec, comm);
  auto const late = comm.size() - 1;
  auto const code_of = [&](char const* operation) {
    try {
      tessera::barrier(exec, comm, operation);
    } catch (tessera::error const& e) {
      if (e.code() == tessera::errc::timed_out) {
        CHECK(e.value("operation") == "a long step");
        CHECK(e.value("timeout_ms") == "500");
        CHECK(std::string(e.value("ranks")).find(std::to_string(late)) != std::string::npos);
      }
      return e.code();
    }
    return tessera::errc::io_error;  // nothing was thrown
  };
  if (comm.rank() == late) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    // The others have left by now, but for what they sent before.
    code_of("a long step");
  } else {
    auto const start = clock::now();
    auto const code = code_of("a long step");
    CHECK((code == tessera::errc::timed_out || code == tessera::errc::rank_failed));  // another may have given up first, and say so
    CHECK(clock::now() - start >= std::chrono::milliseconds(400));
  }
  CHECK(code_of("after it") == tessera::errc::rank_failed);  // every call throws
  MPI_Barrier(world());
}
