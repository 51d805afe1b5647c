// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "batch_counts_device.hpp"

#include <emulated_device.hpp>

TEST_CASE("count_batch on an emulated device: the host's counts, and what is wrong with a batch") {
  tessera_tests::emulated_device device;
  shard_tests::batch_counts_suite(device.exec());
}
TEST_CASE("count_batch on an emulated device: a batch that says its room is waited for once") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  std::mt19937_64 random(3);
  shard_tests::arrays_of_batch<tessera_tests::emulated_exec> const batch(exec, random, 4);
  std::vector<std::int64_t> const bounds(4, 100);
  for (bool const says_room : {true, false}) {
    auto const before = device.waits;
    tessera::count_batch(exec, "test", batch.view(says_room), bounds);
    CHECK(device.waits - before == (says_room ? 1 : 2));
  }
}
