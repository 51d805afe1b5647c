// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>

#include "../support/hosts.hpp"

using tessera::buffer;
using tessera_tests::counting_memory;
using tessera_tests::is_aligned;
using tessera_tests::serial_host;

static_assert(!std::is_copy_constructible_v<buffer<float>> && !std::is_copy_assignable_v<buffer<float>>);
static_assert(std::is_nothrow_move_constructible_v<buffer<float>> && std::is_nothrow_move_assignable_v<buffer<float>>);
static_assert(std::is_same_v<decltype(std::declval<buffer<int> const&>().data()), int const*>);

namespace {

struct alignas(256) wide {
  float lanes[64];
};

// An execution on a stream of some device, and memory that notes on which stream each piece goes back.
struct stream_exec {
  using execution_concept = tessera::device_execution_tag;
  tessera::memory_ref<stream_exec> resource;
  int stream;

  tessera::memory_ref<stream_exec> const& memory() const noexcept { return resource; }
  stream_exec with_memory(tessera::memory_ref<stream_exec> other) const noexcept { return {other, stream}; }
};
struct noting_memory {
  std::vector<int> given_back;

  void* allocate(stream_exec const&, std::size_t bytes, std::size_t) { return ::operator new (bytes, std::align_val_t{64}); }
  void deallocate(stream_exec const& exec, void* pointer, std::size_t, std::size_t) noexcept {
    given_back.push_back(exec.stream);
    ::operator delete (pointer, std::align_val_t{64});
  }
};

}  // namespace

TEST_CASE("on a device, storage that is too small goes back on the stream that asks for more, to the memory it came from") {
  noting_memory first, second;
  stream_exec const early{tessera::memory_ref<stream_exec>(first), 1}, late{tessera::memory_ref<stream_exec>(second), 2};
  {
    buffer<float, stream_exec> values(early, 10);
    values.resize(late, 5);
    CHECK(first.given_back.empty());
    values.resize(late, 100);
    CHECK(first.given_back == std::vector<int>{2});
    CHECK(second.given_back.empty());
  }
  CHECK(second.given_back == std::vector<int>{2});
}

TEST_CASE("an empty buffer holds no memory") {
  serial_host host;
  buffer<float> const none;
  buffer<float> const zero(host.exec(), 0);
  CHECK(none.empty());
  CHECK(zero.empty());
  CHECK(zero.begin() == zero.end());
  CHECK(zero.capacity_bytes() == 0);
  CHECK(host.memory().allocations() == 0);
}

TEST_CASE("a buffer is aligned storage for its elements") {
  serial_host host;
  buffer<char> bytes(host.exec(), 3);
  buffer<wide> wides(host.exec(), 3);
  CHECK(is_aligned(bytes.data(), 64));
  CHECK(is_aligned(wides.data(), 256));
  CHECK(host.memory().live_bytes() == 3 + 3 * sizeof(wide));
  bytes[2] = 'c';
  CHECK(std::as_const(bytes)[2] == 'c');
  CHECK(bytes.end() - bytes.begin() == 3);
  CHECK(bytes.view().size() == 3);
  CHECK(std::as_const(bytes).view()[2] == 'c');
}

TEST_CASE("capacity grows and never shrinks") {
  serial_host host;
  buffer<int> numbers(host.exec(), 10);
  for (int i = 0; i < 10; ++i) numbers[i] = i;
  auto const* const data = numbers.data();
  numbers.resize(host.exec(), 4);
  CHECK(numbers.size() == 4);
  numbers.resize(host.exec(), 10);
  CHECK(numbers.data() == data);
  CHECK(numbers[9] == 9);
  CHECK(numbers.capacity_bytes() == 40);
  CHECK(host.memory().allocations() == 1);
  numbers.resize(host.exec(), 11);
  CHECK(host.memory().allocations() == 2);
  CHECK(host.memory().live_bytes() == 60);  // grown by half
  numbers.resize(host.exec(), 15);
  CHECK(host.memory().allocations() == 2);
  numbers.resize(host.exec(), 40);
  CHECK(host.memory().live_bytes() == 160);  // half would not have been enough
}

TEST_CASE("growing step by step in an arena, between workspace that comes and goes, stays within a few times the last size") {
  serial_host host;
  tessera::system_memory memory;
  tessera::arena arena(memory);
  auto const exec = host.exec().with_memory(arena);
  buffer<float> kept;
  for (std::int64_t size = 1; size <= 20'000; ++size) {
    kept.resize(exec, size);
    buffer<float> const workspace(exec, 2 * size);
  }
  CHECK(arena.reserved_bytes() < 20 * 20'000 * sizeof(float));
}

TEST_CASE("storage goes back to the memory it came from") {
  serial_host host;
  counting_memory other;
  auto const elsewhere = host.exec().with_memory(other);
  buffer<int> numbers(host.exec(), 10);
  numbers.resize(elsewhere, 5);  // fits: nothing moves
  CHECK(other.allocations() == 0);
  numbers.resize(elsewhere, 20);
  CHECK(host.memory().live_pieces() == 0);
  CHECK(other.live_bytes() == 80);
}

TEST_CASE("moving hands over the storage") {
  serial_host host;
  counting_memory other;
  buffer<int> a(host.exec(), 2);
  a[1] = 7;
  buffer<int> b(std::move(a));
  CHECK(b[1] == 7);
  CHECK(a.empty());  // NOLINT: moved-from is empty by contract
  CHECK(a.capacity_bytes() == 0);
  buffer<int> c(host.exec().with_memory(other), 3);
  c = std::move(b);
  CHECK(c.size() == 2);
  CHECK(c[1] == 7);
  CHECK(other.live_pieces() == 0);
  CHECK(b.empty());  // NOLINT
  auto& same = c;
  c = std::move(same);
  CHECK(c[1] == 7);
  a.resize(host.exec(), 5);
  CHECK(a.size() == 5);
  c = buffer<int>();
  CHECK(c.empty());
  CHECK(host.memory().live_bytes() == 20);
}

TEST_CASE("impossible sizes are refused") {
  serial_host host;
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t const size : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(), most, most / 8 + 1}) {
    buffer<double> numbers(host.exec(), 2);
    numbers[1] = 0.5;
    try {
      numbers.resize(host.exec(), size);
      FAIL("resized to ", size);
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value("size") == std::to_string(size));
      CHECK(e.value("element bytes") == "8");
    }
    CHECK(numbers[1] == 0.5);
  }
}

TEST_CASE("a buffer whose growth fails is empty and usable") {
  serial_host host;
  buffer<int> numbers(host.exec(), 2);
  host.memory().fail_after(0);
  CHECK_THROWS_AS(numbers.resize(host.exec(), 3), std::bad_alloc);
  CHECK(numbers.empty());
  CHECK(numbers.data() == nullptr);
  host.memory().never_fail();
  numbers.resize(host.exec(), 3);
  CHECK(numbers.size() == 3);
}

TEST_CASE("buffers in an arena, from scope to scope") {
  serial_host host;
  tessera::arena<counting_memory> workspace(host.memory());
  auto const exec = host.exec().with_memory(workspace);
  int const* first = nullptr;
  for (int round = 0; round < 10; ++round) {
    buffer<int> const a(exec, 100);
    buffer<wide> const b(exec, 3);
    if (round == 0) first = a.data();
    CHECK(a.data() == first);
    CHECK(is_aligned(b.data(), 256));
  }
  CHECK(host.memory().allocations() == 1);
}
