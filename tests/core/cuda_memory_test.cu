// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/cuda_memory.cuh>

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/core/for_each_index.cuh>
#include <tessera/core/memory_adaptors.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/core/unique.cuh>

#include "../support/cuda_device.cuh"
#include "../support/device_arrays.hpp"

using tessera::cuda_exec;

namespace {

struct triple {
  std::int64_t* values;
  TESSERA_DEVICE void operator()(std::int64_t i) const { values[i] *= 3; }
};

template <class Memory>
void check_step(cuda_exec const& exec, Memory& memory) {
  auto const inside = exec.with_memory(memory);
  for (int step = 0; step < 3; ++step) {
    auto const keys = tessera_tests::put(inside, std::vector<std::int64_t>{5, 1, 5, 3});
    tessera::buffer<std::int64_t, cuda_exec> distinct(inside, 4), inverse(inside, 4);
    CHECK(tessera::unique(inside, keys.view(), distinct.view(), inverse.view()) == 3);
    CHECK(tessera_tests::get(inside, inverse) == std::vector<std::int64_t>{2, 0, 2, 1});
  }
}

}  // namespace

TEST_CASE("a GPU's step with memory of every kind") {
  tessera_tests::on_cuda([](cuda_exec const& exec) {
    tessera::cuda_memory memory(exec.device().ordinal());
    tessera::pinned_memory pinned(exec.device().ordinal());
    tessera::tracked_memory tracked(memory);
    check_step(exec, tracked);
    CHECK(tracked.live_allocations() == 0);
    auto const before = tracked.allocations();
    {
      tessera::arena arena(tracked);
      check_step(exec, arena);
    }
    CHECK(tracked.allocations() <= before + 3);
    tessera::arena of_pinned(pinned);
    check_step(exec, pinned);
    check_step(exec, of_pinned);
    tessera::limited_memory limited(exec.device(), 1 << 20);
    check_step(exec, limited);
    CHECK_THROWS_AS((tessera::buffer<std::int64_t, cuda_exec>(exec.with_memory(limited), 1 << 20)), tessera::error);
    CHECK_THROWS_AS(memory.allocate(exec, 1, 512), tessera::error);
    CHECK_THROWS_AS(memory.allocate(exec, std::size_t{1} << 60, 256), tessera::error);
  });
}

TEST_CASE("pinned memory: the host and a GPU work on the same values") {
  tessera_tests::on_cuda([](cuda_exec const& exec) {
    tessera::serial_team team;
    tessera::pinned_memory pinned(exec.device().ordinal());
    tessera::buffer<std::int64_t> values(tessera::host_exec(team, pinned), 1000);
    std::iota(values.begin(), values.end(), 1);
    tessera::for_each_index(exec, values.size(), 1, triple{values.data()});
    exec.synchronize();
    for (std::int64_t i = 0; i < values.size(); ++i) CHECK(values[i] == 3 * (i + 1));
  });
}
