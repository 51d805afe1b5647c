// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::mpi
// ctest-ranks: 1 2 3
#include <tessera/comm/mpi_progress_thread.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/mpi_communicator.hpp>

#include "communicator_suite.hpp"
#include "mpi_world.hpp"

namespace mpi_progress_thread_test {

namespace {

std::atomic<std::thread::id> caller;  // the thread of the test
std::atomic<int> calls_of_others = 0;

}  // namespace

// In the place of MPI's own, as its profiling interface allows: counts calls that the test's thread did not make.
extern "C" int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* found, MPI_Status* status) {
  if (std::this_thread::get_id() != caller) ++calls_of_others;
  return PMPI_Iprobe(source, tag, comm, found, status);
}

TEST_CASE("mpi_progress_thread: communicators that it serves are models of communicator, with any pause") {
  auto const seed = tessera_tests::common_seed();
  for (int const pause : {0, 20, 1000}) {
    CAPTURE(pause);
    tessera::mpi_progress_thread progress{std::chrono::microseconds(pause)};
    tessera::mpi_communicator comm(tessera_tests::world(), {{.timeout_ms = 600'000}, 2048}, &progress);
    tessera_tests::check_communicator(comm, seed);
  }
}

TEST_CASE("mpi_progress_thread: MPI is called while the ranks do other work, for two communicators at once") {
  caller = std::this_thread::get_id();
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::mpi_progress_thread progress;
  tessera::mpi_communicator first(tessera_tests::world(), {{.timeout_ms = 600'000}}, &progress);
  auto second = first.split(exec, 0, -first.rank());
  auto const next = (first.rank() + 1) % first.size(), before = (first.rank() + first.size() - 1) % first.size();
  constexpr std::int64_t bytes = 4 << 20;
  std::vector<std::byte> const sent(bytes, static_cast<std::byte>(first.rank()));
  for (int round = 0; round < 3; ++round) {
    tessera::mpi_pending a, b;
    tessera::sent_message const to{next, sent};
    tessera::awaited_message const from{before, bytes};
    // Ranks are numbered the other way there.
    auto const other = [&](int rank) { return second.size() - 1 - rank; };
    tessera::sent_message const to_other{other(before), sent};
    tessera::awaited_message const from_other{other(next), round == 1 ? tessera::awaited_message::unknown : bytes};
    first.begin(exec, {{&to, 1}, {&from, 1}}, a);
    second.begin(exec, {{&to_other, 1}, {&from_other, 1}}, b);
    auto const calls = calls_of_others.load();
    auto const deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (calls_of_others == calls && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    CHECK(calls_of_others > calls);
    auto moved = std::move(a);  // under way
    CHECK(tessera_tests::same_bytes(first.finish(exec, moved)[0], std::vector<std::byte>(bytes, static_cast<std::byte>(before))));
    CHECK(tessera_tests::same_bytes(second.finish(exec, b)[0], std::vector<std::byte>(bytes, static_cast<std::byte>(next))));
  }
}

}  // namespace mpi_progress_thread_test
