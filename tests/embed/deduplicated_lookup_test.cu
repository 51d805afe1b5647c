// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "deduplicated_lookup_device.hpp"

#include "cuda_device.cuh"

TEST_CASE_TEMPLATE("deduplicated_lookup on a GPU: dense tables", Element, float, tessera::bfloat16) {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) {
    using store = tessera::dense_table<Element, tessera::cuda_exec>;
    embed_tests::deduplicated_lookup_device_suite<tessera::dense_table<Element>, store>(exec);
  });
}
TEST_CASE("deduplicated_lookup on a GPU: hashed tables") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) {
    using store = tessera::bucket_table<float, tessera::cuda_exec>;
    embed_tests::deduplicated_lookup_device_suite<tessera::hash_table<>, store>(exec);
  });
}
TEST_CASE("deduplicated_lookup on a GPU: edges") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { embed_tests::deduplicated_lookup_device_edges(exec); });
}
