// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "memory_adaptors_suite.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tessera/core/execution.hpp>

#include "../support/hosts.hpp"

namespace {

/// Serves no host.
struct elsewhere {
  struct exec {};
  static constexpr std::size_t most_alignment = 256;
  void* allocate(exec const&, std::size_t, std::size_t) { return nullptr; }
  void deallocate(exec const&, void*, std::size_t, std::size_t) noexcept {}
};
static_assert(tessera::memory_resource<tessera::limited_memory<elsewhere>, elsewhere::exec> &&
              !tessera::memory_resource<tessera::limited_memory<elsewhere>, tessera::host_exec>);
static_assert(tessera::memory_resource<tessera::tracked_memory<elsewhere>, elsewhere::exec> &&
              !tessera::memory_resource<tessera::tracked_memory<elsewhere>, tessera::host_exec>);
static_assert(!tessera::memory_resource<tessera::arena<elsewhere>, tessera::host_exec>);
static_assert(tessera::arena<tessera::tracked_memory<tessera::limited_memory<elsewhere>>>::most_alignment == 256);
static_assert(tessera::arena<tessera::tracked_memory<tessera::system_memory>>::most_alignment == 4096);

}  // namespace

TEST_CASE("memory adaptors on the host") {
  tessera_tests::serial_host host;
  memory_adaptors_suite(host.exec(), host.memory());
}

TEST_CASE("memory adaptors count right, and keep the limit, on many threads") {
  tessera_tests::pool_host<4> host;
  tessera::tracked_memory tracked(host.memory());
  tessera::limited_memory limited(tracked, 64 * 3);
  auto const exec = host.exec();
  std::atomic<std::int64_t> refused = 0;
  exec.run(4, [&](std::int64_t) {
    for (int i = 0; i < 500; ++i) {
      try {
        void* const first = limited.allocate(exec, 64, 64);
        try {
          limited.deallocate(exec, limited.allocate(exec, 64, 64), 64, 64);
        } catch (tessera::error const&) {
          ++refused;
        }
        limited.deallocate(exec, first, 64, 64);
      } catch (tessera::error const&) {
        ++refused;
      }
    }
  });
  CHECK(limited.used_bytes() == 0);
  CHECK(tracked.current_bytes() == 0);
  CHECK(tracked.live_allocations() == 0);
  CHECK(tracked.peak_bytes() >= 128);
  CHECK(tracked.peak_bytes() <= 64 * 3);
  CHECK(tracked.total_bytes() == static_cast<std::uint64_t>(64 * tracked.allocations()));
  CHECK(tracked.allocations() + refused >= 4 * 500);
}
