// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <vector>

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/plan/collect_exchanges_file.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "rank_clock.hpp"
#include "temporary_folder.hpp"

namespace collect_exchanges_test {

using tessera::collect_exchanges;
using tessera::exchange_case;
using tessera::exchange_sample;
using tessera_tests::rank_clock;

namespace {

exchange_case drawn(std::int64_t number, std::int64_t ranks) {
  exchange_case of;
  for (std::int64_t r = 0; r < ranks; ++r) {
    of.dims.push_back(4 * number + r);
    of.start_ms.push_back(static_cast<double>(r * number) / 8);
  }
  of.batch_samples = 8 + number;
  return of;
}

}  // namespace

TEST_CASE("collect_exchanges: rank 0 has the file and tells all ranks what is measured; a file that is complete is not measured again") {
  tessera_tests::temporary_folder const folder;
  auto const path = folder.file("exchanges.csv");
  std::string first;
  for (int again = 0; again < 2; ++again) {
    tessera::run_thread_ranks(3, [&](tessera::thread_communicator& comm) {
      tessera_tests::serial_host host;
      rank_clock clock{comm.rank()};
      auto const samples = collect_exchanges(host.exec(), comm, clock, path, "threads", 21,
                                             [](std::int64_t number) { return drawn(number, 3); }, {.warm_up = 1, .runs = 2});
      CHECK(samples.size() == (comm.rank() == 0 ? 22U : 0U));
      for (auto const& sample : samples) {
        CHECK(sample.exchange == drawn(sample.number, 3));
        REQUIRE(sample.times.forward_ms.size() == 3);
        for (std::size_t r = 0; r < 3; ++r) CHECK(sample.times.forward_ms[r] == doctest::Approx(static_cast<double>(r + 1)));
      }
      CHECK((clock.time == 0) == (again == 1));
    });
    if (again == 0) first = tessera_tests::contents(path);
    CHECK(tessera_tests::contents(path) == first);
  }
}

TEST_CASE("collect_exchanges: all ranks hear of a file that rank 0 refuses, and of an exchange that is of other ranks") {
  tessera_tests::temporary_folder const folder;
  auto const path = folder.file("exchanges.csv");
  tessera_tests::write_file(path, "something else\n");
  std::mutex mutex;
  std::vector<tessera::errc> codes(2);
  auto const run = [&](std::string const& file, std::int64_t of_ranks) {
    tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
      tessera_tests::serial_host host;
      rank_clock clock{comm.rank()};
      try {
        collect_exchanges(host.exec(), comm, clock, file, "threads", 3, [&](std::int64_t number) { return drawn(number, of_ranks); });
        FAIL_CHECK("accepted");
      } catch (tessera::error const& e) {
        std::lock_guard const lock(mutex);
        codes[static_cast<std::size_t>(comm.rank())] = e.code();
      }
    });
  };
  run(path, 2);
  CHECK(codes == std::vector{tessera::errc::incompatible, tessera::errc::rank_failed});
  CHECK(tessera_tests::contents(path) == "something else\n");
  run(folder.file("others.csv"), 3);
  CHECK(codes == std::vector{tessera::errc::shape_mismatch, tessera::errc::rank_failed});
}

}  // namespace collect_exchanges_test
