// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <vector>

#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/plan/measure_exchange.hpp>

#include "hosts.hpp"

namespace measure_exchange_test {

using tessera::exchange_case;
using tessera::exchange_times;
using tessera::measure_exchange;

namespace {

/// A clock that moves only when it is waited for, and by what `steps` say when it is read: in turns, in seconds.
struct fake_clock {
  std::vector<double> steps{0};
  double time = 100;
  std::size_t reads = 0;
  std::vector<double> waits{};

  double now() { return time += steps[reads++ % steps.size()]; }
  void wait(double seconds) {
    waits.push_back(seconds);
    time += seconds;
  }
};
static_assert(tessera::measuring_clock<fake_clock>);

}  // namespace

TEST_CASE("measure_exchange: messages have the vectors of each rank's samples, and go back; all ranks have the same times") {
  exchange_case const of{.dims = {8, 0, 20}, .start_ms = {0, 4, 1.5}, .batch_samples = 7};
  std::int64_t const samples[] = {3, 2, 2};
  std::mutex mutex;
  std::vector<exchange_times> results;
  tessera::run_thread_ranks(3, [&](tessera::thread_communicator& comm) {
    tessera_tests::serial_host host;
    tessera::sent_counts sent;
    tessera::counting_communicator counted(comm, sent);
    auto const own = static_cast<std::size_t>(comm.rank());
    // Runs take 1, 2 and 6 ms times the rank's number plus one; the time between runs does not count.
    auto const unit = static_cast<double>(own + 1) / 1000;
    fake_clock clock{.steps = {50, unit, 50, 6 * unit, 50, 2 * unit}};
    auto const times = measure_exchange(host.exec(), counted, clock, of, {.warm_up = 3, .runs = 3});
    std::lock_guard const lock(mutex);
    results.push_back(times);
    CHECK(clock.reads == 2 * 2 * 6);
    CHECK(clock.waits == std::vector<double>(own == 0 ? 0 : 6, of.start_ms[own] / 1000));
    for (int to = 0; to < 3; ++to) {
      auto const there = static_cast<std::size_t>(to);
      CHECK(sent["measure_exchange: forward"][to] == tessera::message_count{6, 6 * 4 * samples[to] * of.dims[own]});
      CHECK(sent["measure_exchange: backward"][to] == tessera::message_count{6, 6 * 4 * samples[own] * of.dims[there]});
    }
  });
  REQUIRE(results.size() == 3);
  for (auto const& times : results) {
    CHECK(times == results[0]);
    REQUIRE(times.forward_ms.size() == 3);
    for (std::size_t r = 0; r < 3; ++r) {
      // Medians, of which a rank's own wait is no part.
      CHECK(times.forward_ms[r] == doctest::Approx(2.0 * static_cast<double>(r + 1)));
      CHECK(times.backward_ms[r] == doctest::Approx(2.0 * static_cast<double>(r + 1)));
    }
  }
}

TEST_CASE("measure_exchange: one rank, and cases that cannot be") {
  tessera_tests::serial_host host;
  auto comm = tessera::self_communicator();
  fake_clock clock;
  auto const times = measure_exchange(host.exec(), comm, clock, {.dims = {4}, .start_ms = {0}, .batch_samples = 0});
  CHECK(times == exchange_times{{0}, {0}});
  auto const refused = [&](exchange_case const& of, tessera::repetition const& repeat, std::string const& message) {
    CHECK_THROWS_WITH_AS(measure_exchange(host.exec(), comm, clock, of, repeat), message.c_str(), tessera::error);
  };
  refused({{1, 2}, {0}, 1}, {}, "measure_exchange: one number a rank of dims (dims 2, ranks 1)");
  refused({{1}, {}, 1}, {}, "measure_exchange: one number a rank of start_ms (start_ms 0, ranks 1)");
  refused({{-1}, {0}, 1}, {}, "measure_exchange: a negative dim (rank 0, dim -1)");
  refused({{1}, {-2}, 1}, {}, "measure_exchange: a start that is negative or not finite (rank 0, start_ms -2)");
  refused({{1}, {0}, -1}, {}, "measure_exchange: a negative number of samples (batch_samples -1)");
  refused({{1}, {0}, 1}, {1, 0}, "measure_exchange: at least one run (runs 0)");
  refused({{1}, {0}, 1}, {-1, 1}, "measure_exchange: a negative number of runs (warm_up -1)");
}

TEST_CASE("median_of: odd and even numbers of values") {
  CHECK(tessera::detail::median_of({3}) == 3);
  CHECK(tessera::detail::median_of({9, 1, 5}) == 5);
  CHECK(tessera::detail::median_of({9, 1, 5, 3}) == 4);
}

}  // namespace measure_exchange_test
