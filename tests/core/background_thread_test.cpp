// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <atomic>
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

#include <tessera/core/background_thread.hpp>

#include "../support/sanitizers.hpp"

using tessera::background_thread;

static_assert(!std::is_copy_constructible_v<background_thread> && !std::is_move_constructible_v<background_thread>);

TEST_CASE("background_thread: runs one job after the other, on one thread that is not the caller's") {
  background_thread thread;
  std::vector<std::thread::id> ran_on;
  for (int job = 0; job < 200; ++job) {
    thread.start([&] { ran_on.push_back(std::this_thread::get_id()); });  // plain: each job sees what the one before wrote
    thread.wait();
  }
  thread.wait();  // no job: at once
  REQUIRE(ran_on.size() == 200);
  CHECK(ran_on.front() != std::this_thread::get_id());
  for (auto const id : ran_on) CHECK(id == ran_on.front());
}

TEST_CASE("background_thread: a second job is refused, and the first goes on") {
  background_thread thread;
  std::atomic<bool> may_end{false};
  bool has_ended = false, other_ran = false;
  thread.start([&] {
    while (!may_end) std::this_thread::yield();
    has_ended = true;
  });
  try {
    thread.start([&] { other_ran = true; });
    FAIL("a second job began");
  } catch (tessera::error const& refusal) {
    CHECK(refusal.code() == tessera::errc::invalid_argument);
    CHECK(refusal.sentence() == "background_thread: another job is under way");
  }
  may_end = true;
  thread.wait();
  CHECK(has_ended);
  CHECK_FALSE(other_ran);
}

TEST_CASE("background_thread: the destructor waits for the job, and lets go of what it holds") {
  auto const held = std::make_shared<int>(0);
  for (int round = 0; round < 20; ++round) {
    background_thread thread;
    thread.start([held] { ++*held; });
  }
  CHECK(*held == 20);
  CHECK(held.use_count() == 1);
  background_thread never_asked;
}

#if defined(__linux__) && !TESSERA_TEST_ASAN && !TESSERA_TEST_TSAN
TEST_CASE("background_thread: when the system refuses a thread, an error says so") {
  long pages = 0;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file(std::fopen("/proc/self/statm", "r"), std::fclose);
  REQUIRE(file != nullptr);
  REQUIRE(std::fscanf(file.get(), "%ld", &pages) == 1);
  rlimit limit{}, before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  limit = before;
  limit.rlim_cur = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{200} << 20);  // some dozen stacks
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  std::string what;
  std::vector<std::unique_ptr<background_thread>> threads(4096);
  try {
    for (auto& thread : threads) thread = std::make_unique<background_thread>();
  } catch (tessera::error const& e) {
    what = e.what();
  }
  threads.clear();
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(what.starts_with("background_thread: the system refuses a thread (reason "));
}
#endif
