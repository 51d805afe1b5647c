// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(__linux__)
#include <sys/resource.h>
#include <unistd.h>
#endif

#include <tessera/core/error.hpp>
#include <tessera/core/thread_team.hpp>

#include "../support/sanitizers.hpp"

using tessera::chunk_function;
using tessera::serial_team;
using tessera::thread_pool;
using tessera::thread_team;

namespace {

// What is not a team is refused.
struct no_size {
  void run(std::int64_t, chunk_function);
};
struct no_chunks {
  void run(chunk_function);
  int size() const;
};
struct size_is_text {
  void run(std::int64_t, chunk_function);
  std::string size() const;
};
static_assert(!thread_team<no_size> && !thread_team<no_chunks> && !thread_team<size_is_text> && !thread_team<int> &&
              !thread_team<std::thread>);
static_assert(!std::is_copy_constructible_v<thread_pool> && !std::is_move_constructible_v<thread_pool>);

template <class Team>
void check_every_chunk_once(Team& team, std::int64_t chunks) {
  std::vector<int> runs(static_cast<std::size_t>(chunks), 0);  // plain: each chunk has its own, and the region's end publishes them
  auto const body = [&](std::int64_t chunk) { ++runs[static_cast<std::size_t>(chunk)]; };
  team.run(chunks, chunk_function(body));
  std::int64_t wrong = 0;
  for (int const n : runs) wrong += n != 1;
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("every chunk runs exactly once") {
  auto const all_counts = [](auto& team) {
    for (std::int64_t const chunks : {0, 1, 2, 3, 1000, 100'000}) {
      CAPTURE(chunks);
      check_every_chunk_once(team, chunks);
    }
  };
  SUBCASE("serial_team") {
    serial_team team;
    CHECK(team.size() == 1);
    all_counts(team);
  }
  for (int const threads : {1, 2, 4, 9}) {
    SUBCASE(("pool of " + std::to_string(threads)).c_str()) {
      thread_pool pool(threads);
      CHECK(pool.size() == threads);
      all_counts(pool);
    }
  }
}

TEST_CASE("a pool that was never used goes quietly") {
  for (int i = 0; i < 20; ++i) thread_pool const pool(3);
}

TEST_CASE("numbers of threads out of range are refused") {
  for (int const threads : {0, -1, 4097, 5000}) {
    try {
      thread_pool const pool(threads);
      FAIL("made ", threads);
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value("threads") == std::to_string(threads));
      CHECK(std::string(e.what()) == "thread_pool: number of threads (threads " + std::to_string(threads) + ", least 1, most 4096)");
    }
  }
}

TEST_CASE("more than one thread takes part") {
  thread_pool pool(2);
  std::atomic<int> arrived = 0;
  // Each chunk waits for the other: only two threads get through.
  auto const body = [&](std::int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  };
  pool.run(2, chunk_function(body));
  CHECK(arrived == 2);
}

TEST_CASE("a region inside a region runs on its caller") {
  thread_pool pool(3);
  constexpr std::int64_t outer = 20, inner = 30;
  std::vector<int> runs(outer * inner, 0);
  std::atomic<int> strangers = 0;
  auto const body = [&](std::int64_t i) {
    auto const caller = std::this_thread::get_id();
    auto const inner_body = [&](std::int64_t k) {
      strangers += std::this_thread::get_id() != caller;
      ++runs[static_cast<std::size_t>(i * inner + k)];
    };
    pool.run(inner, chunk_function(inner_body));
  };
  pool.run(outer, chunk_function(body));
  CHECK(runs == std::vector<int>(outer * inner, 1));
  CHECK(strangers == 0);
}

TEST_CASE("several threads start regions at once") {
  thread_pool pool(3);
  std::vector<std::thread> callers;
  std::vector<std::int64_t> sums(3, 0);
  for (std::size_t c = 0; c < sums.size(); ++c)
    callers.emplace_back([&, c] {
      for (int round = 0; round < 300; ++round) {
        std::int64_t parts[7] = {};
        auto const body = [&](std::int64_t chunk) { parts[chunk] = chunk; };
        pool.run(7, chunk_function(body));
        for (auto const part : parts) sums[c] += part;
      }
    });
  for (auto& caller : callers) caller.join();
  for (auto const sum : sums) CHECK(sum == 300 * 21);
}

TEST_CASE("workers wake from sleep, and the pool may go while they sleep") {
  for (int const threads : {2, 4}) {
    thread_pool pool(threads);
    for (int round = 0; round < 4; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      check_every_chunk_once(pool, 50);
      std::atomic<int> arrived = 0;
      auto const body = [&](std::int64_t) {
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
      };
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      pool.run(2, chunk_function(body));  // hangs unless a sleeper wakes
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

TEST_CASE("thousands of tiny regions, each with results of the one before") {
  thread_pool pool(4);
  std::vector<std::int64_t> values(5, 0);
  std::int64_t const regions = 5000;
  for (std::int64_t region = 0; region < regions; ++region) {
    std::vector<std::int64_t> next(5);
    auto const body = [&](std::int64_t chunk) {
      next[static_cast<std::size_t>(chunk)] = values[static_cast<std::size_t>((chunk + 1) % 5)] + 1;
    };
    pool.run(2 + region % 4, chunk_function(body));
    for (auto chunk = 2 + region % 4; chunk < 5; ++chunk) body(chunk);
    values = next;
  }
  CHECK(values == std::vector<std::int64_t>(5, regions));
}

TEST_CASE("two pools nest without waiting for each other") {
  thread_pool outer(2), inner(2);
  std::atomic<int> count = 0;
  auto const leaf = [&](std::int64_t) { ++count; };
  auto const body = [&](std::int64_t) { inner.run(10, chunk_function(leaf)); };
  outer.run(10, chunk_function(body));
  CHECK(count == 100);
}

#if defined(__linux__) && !TESSERA_TEST_ASAN && !TESSERA_TEST_TSAN
TEST_CASE("when the system refuses a thread, those that started end and an error says so") {
  long pages = 0;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file(std::fopen("/proc/self/statm", "r"), std::fclose);
  REQUIRE(file != nullptr);
  REQUIRE(std::fscanf(file.get(), "%ld", &pages) == 1);
  rlimit limit{}, before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  limit = before;
  limit.rlim_cur = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{400} << 20);  // some dozen stacks
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  std::string what, started;
  auto code = tessera::errc::io_error;
  try {
    thread_pool const pool(4096);
  } catch (tessera::error const& e) {
    what = e.what();
    started = e.value("started");
    code = e.code();
  }
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(code == tessera::errc::out_of_memory);
  CHECK(what.find("thread_pool: the system refuses a thread (threads 4096, started ") == 0);
  CHECK(std::stoi("0" + started) < 4096);
}
#endif
