// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory_adaptors.hpp>

/// What the adaptors must show of any execution and upstream; nothing reads the memory.
template <class Exec, class Upstream>
void memory_adaptors_suite(Exec const& exec, Upstream& upstream) {
  using tessera::limited_memory;
  using tessera::tracked_memory;

  SUBCASE("up to the limit and not a byte further, again and again") {
    limited_memory memory(upstream, 1000);
    CHECK(memory.limit_bytes() == 1000);
    for (int round = 0; round < 3; ++round) {
      void* const first = memory.allocate(exec, 600, 64);
      void* const second = memory.allocate(exec, 400, 64);
      CHECK(memory.used_bytes() == 1000);
      try {
        memory.allocate(exec, 1, 64);
        FAIL("past the limit");
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::out_of_memory);
        CHECK(std::string(e.what()) == "limited_memory: more than the limit (bytes 1, used 1000, limit 1000)");
      }
      memory.deallocate(exec, second, 400, 64);
      CHECK_THROWS_AS(memory.allocate(exec, ~std::size_t{0}, 64), tessera::error);
      CHECK(memory.used_bytes() == 600);
      memory.deallocate(exec, first, 600, 64);
      CHECK(memory.used_bytes() == 0);
    }
  }
  SUBCASE("what upstream refuses is not used") {
    limited_memory limited(upstream, 1000);
    tracked_memory tracked(limited);
    upstream.fail_after(0);
    CHECK_THROWS_AS(tracked.allocate(exec, 10, 64), std::bad_alloc);
    upstream.never_fail();
    CHECK(limited.used_bytes() == 0);
    CHECK(tracked.allocations() == 0);
    CHECK(tracked.total_bytes() == 0);
    CHECK(tracked.peak_bytes() == 0);
  }
  SUBCASE("what is out now, was at most, and in all") {
    tracked_memory memory(upstream);
    void* const first = memory.allocate(exec, 100, 64);
    void* const second = memory.allocate(exec, 30, 64);
    memory.deallocate(exec, first, 100, 64);
    void* const third = memory.allocate(exec, 50, 64);
    CHECK(memory.current_bytes() == 80);
    CHECK(memory.peak_bytes() == 130);
    CHECK(memory.total_bytes() == 180);
    CHECK(memory.live_allocations() == 2);
    CHECK(memory.allocations() == 3);
    memory.deallocate(exec, second, 30, 64);
    memory.deallocate(exec, third, 50, 64);
    CHECK(memory.current_bytes() == 0);
    CHECK(memory.live_allocations() == 0);
    CHECK(memory.peak_bytes() == 130);
  }
  SUBCASE("under buffers, one in the other and below an arena") {
    limited_memory limited(upstream, 1 << 20);
    tracked_memory tracked(limited);
    {
      tessera::arena arena(tracked, 4096);
      auto const inside = exec.with_memory(arena);
      for (int step = 0; step < 5; ++step) {
        tessera::buffer<std::int64_t, Exec> first(inside, 1000), second(inside, 2000);
        bool const apart = first.data() + 1000 <= second.data() || second.data() + 2000 <= first.data();
        CHECK(apart);
      }
      // The last round's single block.
      CHECK(tracked.live_allocations() == 1);
      CHECK(tracked.current_bytes() == arena.reserved_bytes());
      CHECK(tracked.allocations() == 3);
      CHECK_THROWS_AS((tessera::buffer<std::int64_t, Exec>(inside, 1 << 20)), tessera::error);
    }
    CHECK(tracked.current_bytes() == 0);
    CHECK(limited.used_bytes() == 0);
  }
}
