// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <ctime>

#include "../../bench/neighbours.hpp"
#include "skip.hpp"

namespace {

TEST_CASE("the cores' work is that for users and the system and what was stolen, neither idle nor waiting") {
  // user nice system idle iowait irq softirq steal guest guest_nice, in hundredths of a second
  CHECK(tessera_bench::busy_seconds("cpu  100 200 300 9000 8000 10 20 30 40 50", 100) == doctest::Approx(6.6));
  CHECK(std::isnan(tessera_bench::busy_seconds("", 100)));
  CHECK(std::isnan(tessera_bench::busy_seconds("cpu  100 200", 100)));
  CHECK(std::isnan(tessera_bench::busy_seconds("intr 1 2 3 4 5 6 7 8", 100)));
}

// Works for 0.3 s of a core's time.
void work() {
  auto const start = std::clock();
  while (std::clock() - start < CLOCKS_PER_SEC * 3 / 10) {
  }
}

TEST_CASE("another process is a neighbour, and this one, with the children that it has waited for, is not") {
  tessera_bench::neighbour_watch const watch;
  auto const start = std::chrono::steady_clock::now();
  auto const seconds = [&] { return watch.cores() * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  auto const child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    work();
    _exit(0);
  }
  siginfo_t done{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &done, WEXITED | WNOWAIT) == 0);  // which leaves it to be waited for
  auto const of_others = seconds();
  CHECK(waitpid(child, nullptr, 0) == child);
  auto const afterwards = seconds();
  if (!(of_others > 0)) return tessera_tests::skip("the system does not say how long its cores have worked");
  CHECK(of_others > 0.2);
  CHECK(afterwards < of_others - 0.1);
}

}  // namespace
