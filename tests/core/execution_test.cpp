// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>

#include "../support/hosts.hpp"

using tessera::chunk_function;
using tessera::execution;
using tessera::host_exec;
using tessera_tests::counting_memory;

namespace {

// A user's threads, in five lines: every second chunk on a thread of its own.
struct pair_of_threads {
  void run(std::int64_t chunks, chunk_function f) {
    std::thread odd([=] {
      for (std::int64_t i = 1; i < chunks; i += 2) f(i);
    });
    for (std::int64_t i = 0; i < chunks; i += 2) f(i);
    odd.join();
  }
  int size() { return 2; }
};
static_assert(tessera::thread_team<pair_of_threads>);

// What is not an execution is refused, and a host_exec never refers to a temporary.
struct without_tag {};
struct other_tag {
  using execution_concept = int;
};
static_assert(!execution<without_tag> && !execution<other_tag> && !execution<int> && execution<host_exec>);
static_assert(std::is_constructible_v<host_exec, tessera::serial_team&, counting_memory&>);
static_assert(!std::is_constructible_v<host_exec, tessera::serial_team, counting_memory&>);
static_assert(!std::is_constructible_v<host_exec, tessera::serial_team&, counting_memory>);
static_assert(!std::is_constructible_v<host_exec, int&, counting_memory&>);
static_assert(!std::is_default_constructible_v<host_exec>);
static_assert(std::is_trivially_copyable_v<host_exec> && sizeof(host_exec) == 5 * sizeof(void*));

template <class F>
void for_each_team(F const& f) {
  tessera_tests::for_each_host([&](host_exec const& exec, counting_memory&) { f(exec); });
  tessera_tests::host<pair_of_threads> user;
  f(user.exec());
}

}  // namespace

TEST_CASE("run calls every chunk once") {
  for_each_team([](host_exec const& exec) {
    for (std::int64_t const chunks : {0, 1, 2, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(chunks), 0);
      exec.run(chunks, [&](std::int64_t chunk) { ++runs[static_cast<std::size_t>(chunk)]; });
      CHECK(runs == std::vector<int>(static_cast<std::size_t>(chunks), 1));
    }
  });
}

TEST_CASE("run calls a plain function") {
  static std::atomic<std::int64_t> sum;
  struct add {
    static void chunk(std::int64_t i) { sum += i; }
  };
  for_each_team([](host_exec const& exec) {
    sum = 0;
    exec.run(5, add::chunk);
    CHECK(sum == 10);
  });
}

TEST_CASE("threads() is the team's size") {
  tessera_tests::serial_host alone;
  tessera_tests::pool_host<4> four;
  tessera_tests::host<pair_of_threads> pair;
  CHECK(alone.exec().threads() == 1);
  CHECK(four.exec().threads() == 4);
  CHECK(pair.exec().threads() == 2);
}

TEST_CASE("a team that says it has no threads counts as one, as it runs all the same") {
  struct : tessera::serial_team {
    static unsigned size() noexcept { return 0; }  // as std::thread::hardware_concurrency may
  } team;
  tessera::system_memory memory;
  CHECK(host_exec(team, memory).threads() == 1);
}

TEST_CASE("the exception of the lowest chunk wins, and all the others run") {
  for_each_team([](host_exec const& exec) {
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> finished = 0;
      std::string caught;
      try {
        exec.run(100, [&](std::int64_t chunk) {
          if (chunk == 17 || chunk == 18 || chunk > 60) throw std::runtime_error("chunk " + std::to_string(chunk));
          ++finished;
        });
      } catch (std::runtime_error const& e) {
        caught = e.what();
      }
      CHECK(caught == "chunk 17");
      CHECK(finished == 100 - 41);
    }
  });
}

TEST_CASE("exceptions of any type pass, also from the only chunk and from inner regions") {
  for_each_team([](host_exec const& exec) {
    CHECK_THROWS_AS(exec.run(1, [](std::int64_t) { throw 5; }), int);
    CHECK_THROWS_AS(exec.run(3,
                             [&](std::int64_t) {
                               exec.run(3, [](std::int64_t i) {
                                 if (i == 2) throw std::out_of_range("inner");
                               });
                             }),
                    std::out_of_range);
    int after = 0;
    exec.run(1, [&](std::int64_t) { after = 1; });
    CHECK(after == 1);
  });
}

TEST_CASE("pieces cover the range, bounded by n and grain alone") {
  for_each_team([](host_exec const& exec) {
    for (std::int64_t const n : {0, 1, 9, 10, 11, 1000, 1001})
      for (std::int64_t const grain : {1, 3, 10, 5000}) {
        std::vector<std::pair<std::int64_t, std::int64_t>> pieces(static_cast<std::size_t>((n + grain - 1) / grain), {-1, -1});
        tessera::for_each_piece(exec, n, grain, [&](std::int64_t first, std::int64_t last) {
          pieces[static_cast<std::size_t>(first / grain)] = {first, last};
        });
        std::int64_t next = 0;
        for (auto const& [first, last] : pieces) {
          if (first != next || last != std::min(n, first + grain)) FAIL("piece ", first, " to ", last);
          next = last;
        }
        CHECK(next == n);
      }
  });
}

TEST_CASE("divide_up does not overflow") {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  static_assert(tessera::divide_up(0, 5) == 0 && tessera::divide_up(1, 5) == 1 && tessera::divide_up(5, 5) == 1 &&
                tessera::divide_up(6, 5) == 2);
  static_assert(tessera::divide_up(most, 1) == most && tessera::divide_up(most, most) == 1 && tessera::divide_up(most, 2) == most / 2 + 1);
  CHECK(tessera::divide_up(most - 1, most) == 1);
}

TEST_CASE("other memory for the same threads") {
  tessera_tests::pool_host<2> host;
  counting_memory other;
  auto const exec = host.exec().with_memory(other);
  CHECK(exec.threads() == 2);
  exec.memory().deallocate(exec, exec.memory().allocate(exec, 10, 64), 10, 64);
  CHECK(other.allocations() == 1);
  CHECK(host.memory().allocations() == 0);
  auto const back = exec.with_memory(host.exec().memory());
  back.memory().deallocate(back, back.memory().allocate(back, 10, 64), 10, 64);
  CHECK(host.memory().allocations() == 1);
  auto memory = host.exec().memory();
  host_exec const from_ref(host.team(), memory);
  from_ref.memory().deallocate(from_ref, from_ref.memory().allocate(from_ref, 10, 64), 10, 64);
  CHECK(host.memory().allocations() == 2);
}
