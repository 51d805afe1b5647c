// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "sharded_tables_device.hpp"

#include "stream_ranks.cuh"

namespace sharded_tables_cuda_test {

using shard_tests::stream_ranks;

static_assert(tessera::embedding_source<tessera::device_sharded_tables<stream_ranks::communicator>>);

}  // namespace sharded_tables_cuda_test

using sharded_tables_cuda_test::stream_ranks;

TEST_CASE("sharded tables on streams of a GPU: outputs and rows have the bits of the host's") {
  shard_tests::sharded_on_devices<stream_ranks>({1, 2, 4});
}
TEST_CASE("sharded tables on streams of a GPU: with codecs they have the bits of the host's") {
  shard_tests::sharded_on_devices_with_codecs<stream_ranks>(3);
}
TEST_CASE("sharded tables on streams of a GPU: partial sums of tables that are cut by rows have the bits of the host's") {
  shard_tests::sharded_on_devices_by_rows<stream_ranks>({1, 2, 4});
  shard_tests::sharded_on_devices_by_rows<stream_ranks>({3}, {tessera::codec::int8, tessera::codec::bf16});
}
TEST_CASE("sharded tables on streams of a GPU: batches of several sources") { shard_tests::sharded_on_devices_of_sources<stream_ranks>(2); }
TEST_CASE("sharded tables on streams of a GPU: what one rank's data cannot have is thrown on all, and changes nothing") {
  shard_tests::sharded_on_devices_refuses<stream_ranks>();
}
