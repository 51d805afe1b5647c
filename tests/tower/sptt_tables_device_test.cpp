// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 10
// ctest-cost: 5
#include "sptt_tables_device.hpp"

#include "../shard/emulated_ranks.hpp"

namespace sptt_tables_device_test {

using shard_tests::nccl_ranks;
using shard_tests::thread_ranks;
using tower_tests::towers_on_devices;

static_assert(tessera::embedding_source<tessera::device_sptt_tables<thread_ranks::communicator>>);

TEST_CASE("towers on emulated devices: outputs and rows have the bits of the host's") {
  towers_on_devices<thread_ranks>({{1, 1, 1}, {1, 2, 2}, {2, 1, 2}, {2, 2, 2}, {3, 1, 3}, {4, 1, 2}, {2, 1, 4}});
}
TEST_CASE("towers on emulated devices: with codecs they have the bits of the host's") {
  towers_on_devices<thread_ranks>({{2, 2, 2}}, {tessera::codec::fp16, tessera::codec::bf16});
}
TEST_CASE("towers on emulated devices: what one rank's data cannot have is thrown on all, and changes nothing") {
  tower_tests::towers_on_devices_refuse<thread_ranks>();
}
TEST_CASE("towers on emulated devices, over NCCL's stand-in: outputs and rows have the bits of the host's") {
  towers_on_devices<nccl_ranks>({{2, 2, 2}});
}

}  // namespace sptt_tables_device_test
