// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/cuda_event.cuh>

#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/for_each_index.cuh>

#include "../support/cuda_device.cuh"
#include "../support/device_arrays.hpp"

using tessera::cuda_event;
using tessera::cuda_exec;

namespace {

static_assert(!std::is_copy_constructible_v<cuda_event> && std::is_nothrow_move_constructible_v<cuda_event>);

struct count_up {
  std::int64_t* values;
  std::int64_t rounds;
  TESSERA_DEVICE void operator()(std::int64_t i) const {
    for (std::int64_t r = 0; r < rounds; ++r) values[i] = values[i] * 3 + 1;
  }
};

}  // namespace

TEST_CASE("what waits for an event sees what was enqueued before it") {
  tessera_tests::on_cuda([](cuda_exec const& first) {
    cudaStream_t stream = nullptr;
    tessera::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    auto const second = first.device().on(stream);
    {
      cuda_event event(first.device());
      CHECK(event.is_done());
      auto values = tessera_tests::put(first, std::vector<std::int64_t>(100'000, 1));
      tessera::buffer<std::int64_t, cuda_exec> copy(second, values.size());
      tessera::for_each_index(first, values.size(), 1, count_up{values.data(), 5000});
      event.record(first);
      event.wait(second);
      second.copy(copy.data(), values.data(), 8 * static_cast<std::size_t>(values.size()));
      auto const copied = tessera_tests::get(second, copy);
      CHECK(event.is_done());
      CHECK(copied == tessera_tests::get(first, values));
    }
    tessera::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  });
}

TEST_CASE("milliseconds between two events, in their order; moved events stay what they are") {
  tessera_tests::on_cuda([](cuda_exec const& exec) {
    cuda_event begin(exec.device(), {.timed = true}), end(exec.device(), {.timed = true});
    auto values = tessera_tests::put(exec, std::vector<std::int64_t>(1000, 1));
    begin.record(exec);
    tessera::for_each_index(exec, values.size(), 1, count_up{values.data(), 10'000});
    end.record(exec);
    auto const moved = std::move(end);
    moved.synchronize();
    CHECK(moved.is_done());
    CHECK(moved.elapsed_ms(begin) > 0);
    cuda_event const untimed(exec.device());
    CHECK_THROWS_AS(moved.elapsed_ms(untimed), tessera::error);
  });
}
