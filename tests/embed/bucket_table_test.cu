// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "bucket_table_device.hpp"

#include "cuda_device.cuh"

using namespace embed_tests;
using tessera::bucket_table;
using tessera::cuda_exec;
using tessera::evict_lfu;
using tessera::evict_lru;
using tessera::keep_all;
using tessera_tests::on_cuda;

TEST_CASE_TEMPLATE("bucket_table on a GPU", Store, bucket_table<float, cuda_exec>, bucket_table<tessera::float16, cuda_exec>,
                   bucket_table<tessera::bfloat16, cuda_exec, evict_lru>, bucket_table<float, cuda_exec, evict_lfu>,
                   bucket_table<tessera::scaled_int8, cuda_exec, evict_lru>) {
  on_cuda([](cuda_exec const& exec) { bucket_table_suite<Store>(exec); });
}

TEST_CASE_TEMPLATE("bucket_table on a GPU against a model", Eviction, keep_all, evict_lru, evict_lfu) {
  on_cuda([](cuda_exec const& exec) {
    SUBCASE("one bucket, more ids a call than it has slots") { bucket_table_against_model<Eviction>(exec, 32, 60, 50, 1); }
    SUBCASE("one bucket, all of whose rows are in flight now and then") { bucket_table_against_model<Eviction>(exec, 20, 90, 25, 3); }
    SUBCASE("several buckets") { bucket_table_against_model<Eviction>(exec, 200, 400, 150, 2); }
    SUBCASE("too many ids for buckets of many groups, or for many buckets") {
      bucket_table_against_model<Eviction>(exec, Eviction::evicts ? 500 : 2100, 6000, Eviction::evicts ? 300 : 900, 1);
    }
  });
}
