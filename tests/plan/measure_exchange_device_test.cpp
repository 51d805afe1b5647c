// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <string>

#include <tessera/plan/collect_exchanges_file.hpp>

#include "../shard/emulated_ranks.hpp"
#include "rank_clock.hpp"
#include "temporary_folder.hpp"

namespace measure_exchange_device_test {

using tessera::exchange_case;
using tessera_tests::rank_clock;

TEST_CASE_TEMPLATE("measure_exchange between emulated devices: vectors move between them, times and barriers on the host", Ranks,
                   shard_tests::thread_ranks, shard_tests::nccl_ranks) {
  exchange_case const of{.dims = {8, 0, 20}, .start_ms = {0, 4, 1.5}, .batch_samples = 7};
  Ranks::run(3, [&](tessera::host_exec const& exec, tessera::thread_communicator& host, tessera_tests::emulated_exec const& device,
                    typename Ranks::communicator& comm) {
    rank_clock clock{comm.rank()};
    auto const times = tessera::measure_exchange(exec, host, device, comm, clock, of, {.warm_up = 1, .runs = 2});
    REQUIRE(times.forward_ms.size() == 3);
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(times.forward_ms[r] == doctest::Approx(static_cast<double>(r + 1)));
      CHECK(times.backward_ms[r] == doctest::Approx(static_cast<double>(r + 1)));
    }
  });
}

TEST_CASE("measure_exchange between emulated devices: the device is awaited before a run ends") {
  tessera_tests::emulated_device device;
  tessera_tests::serial_host host;
  auto of_host = tessera::make_thread_ranks<tessera::host_exec>(1);
  auto of_device = tessera::make_thread_ranks<tessera_tests::emulated_exec>(1);
  auto const exec = device.exec();
  rank_clock clock;
  auto const waits = device.waits;
  // Messages without bytes, which the communicator awaits no stream for.
  tessera::measure_exchange(host.exec(), of_host[0], exec, of_device[0], clock, {{0}, {0}, 4}, {.warm_up = 1, .runs = 2});
  CHECK(device.waits - waits >= 2 * 3);
}

TEST_CASE("measure_exchange between emulated devices: communicators that number ranks differently are refused on all ranks") {
  exchange_case const of{.dims = {8, 4, 4}, .start_ms = {0, 0, 0}, .batch_samples = 6};
  shard_tests::thread_ranks::run(3, [&](tessera::host_exec const& exec, tessera::thread_communicator& host,
                                        tessera_tests::emulated_exec const& device, shard_tests::thread_ranks::communicator& comm) {
    auto other = host.split(exec, 0, comm.rank() == 0 ? 0 : 3 - comm.rank());  // ranks 0, 2, 1
    rank_clock clock{comm.rank()};
    auto const e = tessera_tests::error_of([&] { tessera::measure_exchange(exec, other, device, comm, clock, of); });
    CHECK(e.code() == (comm.rank() == 0 ? tessera::errc::rank_failed : tessera::errc::incompatible));
    if (comm.rank() == 1) CHECK(e.value("host_rank") == "2");
  });
}

TEST_CASE("collect_exchanges between emulated devices: rank 0 has the file, which is complete afterwards") {
  tessera_tests::temporary_folder const folder;
  auto const path = folder.file("exchanges.csv");
  for (int again = 0; again < 2; ++again)
    shard_tests::nccl_ranks::run(2, [&](tessera::host_exec const& exec, tessera::thread_communicator& host,
                                        tessera_tests::emulated_exec const& device, shard_tests::nccl_ranks::communicator& comm) {
      rank_clock clock{comm.rank()};
      auto const draw = [](std::int64_t number) { return exchange_case{{4 + number, 8}, {0, 1}, 16}; };
      auto const samples =
          tessera::collect_exchanges(exec, host, device, comm, clock, path, "devices", 21, draw, {.warm_up = 0, .runs = 1});
      CHECK(samples.size() == (comm.rank() == 0 ? 22U : 0U));
      CHECK((clock.time == 0) == (again == 1));
    });
}

}  // namespace measure_exchange_device_test
