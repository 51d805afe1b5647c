// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <random>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>

#include "../support/counting_memory.hpp"
#include "../support/random.hpp"

using tessera::arena;
using tessera::errc;
using tessera::host_exec;
using tessera::memory_ref;
using tessera::memory_resource;
using tessera::pmr_memory;
using tessera::system_memory;
using tessera_tests::counting_memory;
using tessera_tests::is_aligned;

// The sanitizers' allocators end the process where malloc returns null, unless told otherwise.
extern "C" char const* __asan_default_options();  // NOLINT: the sanitizer's name
extern "C" char const* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" char const* __tsan_default_options();  // NOLINT: the sanitizer's name
extern "C" char const* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace {

// What is not a memory resource is refused.
struct no_exec_argument {
  void* allocate(std::size_t, std::size_t);
  void deallocate(void*, std::size_t, std::size_t);
};
struct returns_bytes {
  std::byte* allocate(host_exec const&, std::size_t, std::size_t);
  void deallocate(host_exec const&, void*, std::size_t, std::size_t);
};
struct never_takes_back {
  void* allocate(host_exec const&, std::size_t, std::size_t);
};
static_assert(!memory_resource<no_exec_argument, host_exec> && !memory_resource<returns_bytes, host_exec> &&
              !memory_resource<never_takes_back, host_exec> && !memory_resource<int, host_exec> &&
              !memory_resource<std::pmr::memory_resource, host_exec>);
static_assert(memory_resource<memory_ref<host_exec>, host_exec> && sizeof(memory_ref<host_exec>) == 2 * sizeof(void*));
static_assert(!std::is_copy_constructible_v<arena<system_memory>> && !std::is_move_constructible_v<arena<system_memory>>);

struct any_exec {};

}  // namespace

TEST_CASE("system memory is aligned and writable") {
  system_memory memory;
  for (std::size_t const alignment : {1U, 2U, 8U, 16U, 64U, 256U, 4096U, 1U << 16, 1U << 21, 1U << 22})
    for (std::size_t const bytes : {0U, 1U, 63U, 64U, 65U, 4095U, 4097U, (1U << 22) - 1, 1U << 22, (1U << 22) + 1}) {
      CAPTURE(alignment);
      CAPTURE(bytes);
      void* const pointer = memory.allocate(any_exec{}, bytes, alignment);
      REQUIRE(pointer != nullptr);
      CHECK(is_aligned(pointer, alignment));
      if (bytes >= 1 << 22) CHECK(is_aligned(pointer, system_memory::huge_page_bytes));
      std::memset(pointer, 1, bytes);
      memory.deallocate(any_exec{}, pointer, bytes, alignment);
    }
}

TEST_CASE("more memory than there is, is refused") {
  system_memory memory;
  std::size_t volatile const most = std::numeric_limits<std::size_t>::max();
  for (std::size_t const bytes : {most, most - 1, most - 4096, most - (std::size_t{1} << 21), most / 2 + 1, most / 2, std::size_t{1} << 50})
    for (std::size_t const alignment : {1U, 64U, 4096U, 1U << 21}) {
      CAPTURE(bytes);
      CAPTURE(alignment);
      try {
        void* const pointer = memory.allocate(any_exec{}, bytes, alignment);
        memory.deallocate(any_exec{}, pointer, bytes, alignment);
        FAIL("got it");
      } catch (tessera::error const& e) {
        CHECK(e.code() == errc::out_of_memory);
        CHECK(e.value("bytes") == std::to_string(bytes));
      }
    }
}

TEST_CASE("a memory_ref reaches the resource it refers to") {
  counting_memory memory;
  tessera::serial_team team;
  host_exec const exec(team, memory);
  memory_ref<host_exec> const ref(memory);
  memory_ref<host_exec> const copy = ref;
  void* const pointer = ref.allocate(exec, 100, 64);
  CHECK(memory.live_bytes() == 100);
  copy.deallocate(exec, pointer, 100, 64);
  CHECK(memory.balanced());
  CHECK(memory.allocations() == 1);
}

TEST_CASE("a pmr resource serves through its adaptor") {
  SUBCASE("monotonic over a buffer, nothing behind it") {
    alignas(4096) std::byte storage[3 * 4096];
    std::pmr::monotonic_buffer_resource upstream(storage, sizeof storage, std::pmr::null_memory_resource());
    pmr_memory memory(upstream);
    auto* const first = static_cast<std::byte*>(memory.allocate(any_exec{}, 100, 64));
    auto* const second = static_cast<std::byte*>(memory.allocate(any_exec{}, 100, 4096));
    CHECK(first == storage);
    CHECK(is_aligned(second, 4096));
    CHECK(second >= first + 100);
    memory.deallocate(any_exec{}, second, 100, 4096);
    memory.deallocate(any_exec{}, first, 100, 64);
    CHECK_THROWS_AS(memory.allocate(any_exec{}, 3 * 4096, 64), std::bad_alloc);
  }
  SUBCASE("a pool gets every piece back") {
    std::pmr::unsynchronized_pool_resource upstream;
    pmr_memory memory(upstream);
    std::vector<void*> pieces;
    for (std::size_t i = 1; i < 200; ++i) {
      pieces.push_back(memory.allocate(any_exec{}, 37 * i, 64));
      CHECK(is_aligned(pieces.back(), 64));
      std::memset(pieces.back(), 1, 37 * i);
    }
    for (std::size_t i = 1; i < 200; ++i) memory.deallocate(any_exec{}, pieces[i - 1], 37 * i, 64);
  }
}

namespace {

/// A piece of an arena that gives itself back.
class scoped_piece {
 public:
  scoped_piece(arena<counting_memory>& owner, std::size_t bytes, std::size_t alignment = 64)
      : owner_(owner), bytes_(bytes), alignment_(alignment), pointer_(owner.allocate(any_exec{}, bytes, alignment)) {}
  scoped_piece(scoped_piece const&) = delete;
  scoped_piece& operator=(scoped_piece const&) = delete;
  ~scoped_piece() { owner_.deallocate(any_exec{}, pointer_, bytes_, alignment_); }
  std::byte* data() const { return static_cast<std::byte*>(pointer_); }

 private:
  arena<counting_memory>& owner_;
  std::size_t bytes_, alignment_;
  void* pointer_;
};

}  // namespace

TEST_CASE("an arena asks upstream late and gives everything back") {
  counting_memory upstream;
  {
    arena<counting_memory> memory(upstream);
    CHECK(upstream.allocations() == 0);
    CHECK(memory.reserved_bytes() == 0);
    { scoped_piece const piece(memory, 1); }
    CHECK(upstream.allocations() == 1);
    CHECK(memory.reserved_bytes() == upstream.live_bytes());
    scoped_piece const large(memory, std::size_t{1} << 20);
    CHECK(memory.reserved_bytes() >= std::size_t{1} << 20);
    CHECK(memory.reserved_bytes() == upstream.live_bytes());
  }
  CHECK(upstream.balanced());
}

TEST_CASE("pieces given back in reverse order are free at once, whatever their sizes and alignments") {
  counting_memory upstream;
  arena<counting_memory> memory(upstream, 1 << 16);
  scoped_piece const pinned(memory, 3);
  std::byte* first_time[3] = {};
  for (int round = 0; round < 10'000; ++round) {
    scoped_piece const a(memory, 10);
    scoped_piece const b(memory, 10, 4096);
    scoped_piece const c(memory, 0, 256);
    if (round == 0) {
      first_time[0] = a.data();
      first_time[1] = b.data();
      first_time[2] = c.data();
    }
    if (a.data() != first_time[0] || b.data() != first_time[1] || c.data() != first_time[2]) FAIL("moved in round ", round);
  }
  CHECK(upstream.allocations() == 1);
}

TEST_CASE("a loop of equal steps stops calling upstream") {
  std::size_t first_block_bytes = 0;
  SUBCASE("from a byte") { first_block_bytes = 1; }
  SUBCASE("from an odd number") { first_block_bytes = 4999; }
  SUBCASE("from the default") { first_block_bytes = std::size_t{1} << 16; }
  CAPTURE(first_block_bytes);
  counting_memory upstream;
  arena<counting_memory> memory(upstream, first_block_bytes);
  auto const step = [&] {
    scoped_piece const a(memory, 100'001);
    scoped_piece const b(memory, 10, 4096);
    scoped_piece const c(memory, 300'003);
    {
      scoped_piece const d(memory, 70'007, 128);
      scoped_piece const e(memory, 13);
    }
    scoped_piece const f(memory, 900'009, 4096);
    scoped_piece const g(memory, 5);
  };
  step();
  CHECK(upstream.live_pieces() == 0);  // several blocks were needed: they went back
  step();
  CHECK(upstream.live_pieces() == 1);
  auto const calls = upstream.allocations();
  auto const reserved = memory.reserved_bytes();
  for (int round = 0; round < 100; ++round) step();
  CHECK(upstream.allocations() == calls);
  CHECK(memory.reserved_bytes() == reserved);
}

TEST_CASE("pieces given back in any order are free once those taken later are") {
  counting_memory upstream;
  arena<counting_memory> memory(upstream, 1 << 16);
  auto const take = [&](std::size_t bytes) { return memory.allocate(any_exec{}, bytes, 64); };
  auto const give = [&](void* pointer, std::size_t bytes) { memory.deallocate(any_exec{}, pointer, bytes, 64); };
  void* const pinned = take(64);
  void* const a = take(100);
  void* const b = take(200);
  void* const c = take(300);
  give(b, 200);
  void* const d = take(1);
  CHECK(d > c);  // b lies under c
  give(d, 1);
  give(a, 100);
  give(c, 300);
  CHECK(take(500) == a);
  give(a, 500);
  give(pinned, 64);
  CHECK(upstream.allocations() == 1);
}

TEST_CASE("an arena refuses what it cannot align, and survives an upstream that has no more") {
  counting_memory upstream;
  arena<counting_memory> memory(upstream, 4096);
  try {
    memory.allocate(any_exec{}, 64, 8192);
    FAIL("got it");
  } catch (tessera::error const& e) {
    CHECK(e.code() == errc::invalid_argument);
    CHECK(std::string(e.what()) == "arena: alignment too large (alignment 8192, largest 4096)");
  }
  std::size_t volatile const most = std::numeric_limits<std::size_t>::max();
  CHECK_THROWS_AS(memory.allocate(any_exec{}, most, 64), tessera::error);
  {
    scoped_piece const a(memory, 4000);
    scoped_piece const b(memory, 4000);
    upstream.fail_after(0);
    CHECK_THROWS_AS(memory.allocate(any_exec{}, 1 << 20, 64), std::bad_alloc);
    CHECK_THROWS_AS(memory.allocate(any_exec{}, most - 64, 64), std::bad_alloc);
    scoped_piece const c(memory, 4000);  // there is still room in the second block
    upstream.never_fail();
    scoped_piece const d(memory, 1 << 20);
  }
  CHECK(upstream.live_pieces() == 0);
  scoped_piece const whole(memory, 4000);
  CHECK(upstream.live_pieces() == 1);
}

TEST_CASE("an arena in a checked build refuses what it did not give, or has back") {
  if constexpr (!tessera::checked) return;
  counting_memory upstream;
  arena<counting_memory> memory(upstream);
  int foreign = 0;
  auto const refused = [&](void* pointer) {
    try {
      memory.deallocate(any_exec{}, pointer, 64, 64);
    } catch (tessera::error const& e) {
      return e.code() == errc::invalid_argument;
    }
    return false;
  };
  CHECK(refused(&foreign));
  auto* const first = memory.allocate(any_exec{}, 64, 64);
  auto* const second = memory.allocate(any_exec{}, 64, 64);
  CHECK(refused(&foreign));
  CHECK_FALSE(refused(first));
  CHECK(refused(first));  // waits for the second
  CHECK_FALSE(refused(second));
  CHECK(refused(second));
}

TEST_CASE("random use of an arena never overlaps, loses or moves a piece") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  struct model_piece {
    std::byte* data;
    std::size_t bytes, alignment;
    unsigned char mark;
  };
  counting_memory upstream;
  {
    arena<counting_memory> memory(upstream, random() % 10'000);
    std::vector<model_piece> model;
    auto const give_back = [&](std::size_t i) {
      auto const& p = model[i];
      for (std::size_t k = 0; k < p.bytes; ++k)
        if (p.data[k] != std::byte{p.mark}) FAIL("byte ", k, " of ", p.bytes, " changed");
      memory.deallocate(any_exec{}, p.data, p.bytes, p.alignment);
      model.erase(model.begin() + static_cast<std::ptrdiff_t>(i));
    };
    for (int step = 0; step < 20'000; ++step) {
      auto const action = random() % 100;
      if (action < 50 && model.size() < 60) {
        std::size_t const alignment = std::size_t{1} << random() % 13;
        std::size_t const bytes = action < 2 ? random() % 100'000 : random() % 3 == 0 ? 0 : random() % 500;
        auto* const data = static_cast<std::byte*>(memory.allocate(any_exec{}, bytes, alignment));
        if (!is_aligned(data, std::max<std::size_t>(alignment, 64))) FAIL("misaligned");
        for (auto const& p : model)
          if (data < p.data + p.bytes && p.data < data + bytes) FAIL("overlap");
        auto const mark = static_cast<unsigned char>(random());
        std::memset(data, mark, bytes);
        model.push_back({data, bytes, alignment, mark});
      } else if (action < 90 && !model.empty()) {
        give_back(model.size() - 1);
      } else if (action < 99 && !model.empty()) {
        give_back(random() % model.size());
      } else if (action == 99) {
        while (!model.empty()) give_back(random() % model.size());
        CHECK(upstream.live_pieces() <= 1);
      }
    }
    while (!model.empty()) give_back(model.size() - 1);
  }
  CHECK(upstream.balanced());
}
