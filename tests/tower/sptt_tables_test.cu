// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../shard/stream_ranks.cuh"
#include "sptt_tables_device.hpp"

namespace sptt_tables_cuda_test {

using shard_tests::stream_ranks;

static_assert(tessera::embedding_source<tessera::device_sptt_tables<stream_ranks::communicator>>);

TEST_CASE("towers on streams of a GPU: outputs and rows have the bits of the host's") {
  tower_tests::towers_on_devices<stream_ranks>({{1, 2, 2}, {2, 1, 2}, {2, 2, 2}});
}
TEST_CASE("towers on streams of a GPU: with codecs they have the bits of the host's") {
  tower_tests::towers_on_devices<stream_ranks>({{2, 2, 2}}, {tessera::codec::fp16, tessera::codec::bf16});
}
TEST_CASE("towers on streams of a GPU: what one rank's data cannot have is thrown on all, and changes nothing") {
  tower_tests::towers_on_devices_refuse<stream_ranks>();
}

}  // namespace sptt_tables_cuda_test
