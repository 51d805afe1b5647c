// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "segmented_reduce_device.hpp"

#include <cstdint>
#include <vector>

#include <tessera/core/error.hpp>

#include "../support/emulated_device.hpp"
#include "segmented_reduce_suite.hpp"

using tessera_tests::emulated_exec;

namespace {

struct times {
  TESSERA_HOST_DEVICE double operator()(double a, double b) const noexcept { return a * b; }
};

}  // namespace

TEST_CASE("segmented_reduce on an emulated device") {
  tessera_tests::emulated_device device;
  device.seed(tessera_tests::draw_seed());
  segmented_reduce_suite(device_segmented_reduce<emulated_exec>{device.exec()});
}

TEST_CASE("segments of a block: a block each while there are few, at most as many as threads") {
  using tessera::detail::segments_per_block;
  CHECK(segments_per_block(0, 256) == 1);
  CHECK(segments_per_block(1, 256) == 1);
  CHECK(segments_per_block(2047, 256) == 1);
  CHECK(segments_per_block(2048, 256) == 2);
  CHECK(segments_per_block(std::int64_t{1} << 33, 256) == 256);
}

TEST_CASE("segmented_reduce on a device: a user's operator; nothing waits but a checked build") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto const values = tessera_tests::put(exec, std::vector<float>{1, 2, 3});
  auto const offsets = tessera_tests::put(exec, std::vector<int>{0, 1, 3});
  tessera::buffer<double, emulated_exec> out(exec, 2);
  auto const waits = device.waits;
  tessera::segmented_reduce(exec, values.data(), offsets.view(), out.view(), 2, times{});
  CHECK(device.waits == waits + (tessera::checked ? 1 : 0));
  CHECK(tessera_tests::get(exec, out) == std::vector<double>{2, 12});
}

TEST_CASE("segmented_reduce on a device refuses, in a checked build, offsets that decrease") {
  if constexpr (tessera::checked) {
    tessera_tests::emulated_device device;
    device_segmented_reduce<emulated_exec> const harness{device.exec()};
    std::vector<float> const values(5, 1.0F);
    CHECK_THROWS_WITH_AS(harness.reduce(values, std::vector<std::int64_t>{0, 2, 1, 5}, 0.0F, tessera::plus{}),
                         "segmented_reduce: offsets are negative or decrease (segment 1, offset 2, next offset 1)", tessera::error);
    CHECK_THROWS_AS(harness.reduce(values, std::vector<std::int64_t>{-1, 2, 3, 5}, 0.0F, tessera::plus{}), tessera::error);
  }
}
