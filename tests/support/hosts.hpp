// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <tessera/core/execution.hpp>
#include <tessera/core/thread_team.hpp>

#include "counting_memory.hpp"
#include "sanitizers.hpp"

namespace tessera_tests {

/// A team and counted memory, which outlive what a test makes with `exec()`. The memory is checked when the host goes.
template <class Team>
class host {
 public:
  template <class... Arguments>
  explicit host(Arguments... arguments) : team_(arguments...) {}

  tessera::host_exec exec() noexcept { return tessera::host_exec(team_, memory_); }
  Team& team() noexcept { return team_; }
  counting_memory& memory() noexcept { return memory_; }

 private:
  Team team_;
  counting_memory memory_;
};

/// The caller's thread alone.
struct serial_host : host<tessera::serial_team> {};

/// A pool of so many threads.
struct pool : host<tessera::thread_pool> {
  explicit pool(int threads) : host(threads) {}
};

/// A pool of `Threads` threads. `// ctest-labels: threads` belongs into a file that uses it.
template <int Threads>
struct pool_host : pool {
  pool_host() : pool(Threads) {}
};

// Hosts for which suites are instantiated: of one thread and of four; under a sanitizer of four alone, as no code asks
// whether it has one thread.
#if TESSERA_TEST_ASAN || TESSERA_TEST_TSAN
#define TESSERA_TEST_HOSTS tessera_tests::pool_host<4>
#else
#define TESSERA_TEST_HOSTS tessera_tests::serial_host, tessera_tests::pool_host<4>
#endif

/// Calls suite(threads) for pools of 1, 2 and 4 threads, each in a subcase, so that the suite may have its own; under a sanitizer, of 4.
template <class F>
void for_each_team(F const& suite) {
  if (!under_sanitizer) SUBCASE("1 thread") {
      suite(1);
    }
  if (!under_sanitizer) SUBCASE("2 threads") {
      suite(2);
    }
  SUBCASE("4 threads") { suite(4); }
}

/// Calls f(exec, memory) on one thread, then on pools of 2 and 4; under the address sanitizer on one thread and on 4, under that of threads on 4.
template <class F>
void for_each_host(F const& f) {
  auto const run = [&](auto&& host) {
    int const threads = host.exec().threads();
    CAPTURE(threads);
    f(host.exec(), host.memory());
  };
  if (!under_tsan) run(serial_host());
  if (!under_sanitizer) run(pool_host<2>());
  run(pool_host<4>());
}

}  // namespace tessera_tests
