// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "local_tables_device.hpp"

#include "cuda_device.cuh"

namespace embed_tests {

template <>
struct with_execution<tessera::cuda_exec> {
  template <class F>
  static void run(std::mt19937_64&, F const& f) {
    tessera_tests::on_cuda(f);
  }
};

}  // namespace embed_tests

using namespace embed_tests;
using tessera::cuda_exec;
using tessera_tests::on_cuda;

TESSERA_EMBEDDING_SOURCE_TESTS("device_tables of dense tables, on a GPU", dense_device_maker<cuda_exec>)
TESSERA_EMBEDDING_SOURCE_TESTS("device_tables of three kinds, on a GPU", mixed_device_maker<cuda_exec>)
TESSERA_EMBEDDING_SOURCE_TESTS("device_tables over caches, on a GPU", cached_device_maker<cuda_exec>)

TEST_CASE("device_tables on a GPU: tables of every kind have the bits of the host's") {
  on_cuda([](cuda_exec const& exec) { device_tables_against_host(exec); });
}
TEST_CASE_TEMPLATE("device_tables on a GPU: files keep what evicts", Eviction, tessera::evict_lru, tessera::evict_lfu) {
  on_cuda([](cuda_exec const& exec) { device_tables_keep_use<Eviction>(exec); });
}
TEST_CASE("device_tables on a GPU: small caches change nothing") {
  on_cuda([](cuda_exec const& exec) { device_tables_over_caches(exec); });
}
TEST_CASE("device_tables on a GPU: what does not fit is refused by name") {
  on_cuda([](cuda_exec const& exec) { device_tables_names(exec); });
}
