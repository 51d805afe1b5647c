// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "bucket_lookup_device.hpp"

#include "../support/type_lists.hpp"
#include "cuda_device.cuh"

using namespace embed_tests;
using tessera::cuda_exec;
using tessera_tests::on_cuda;

TEST_CASE_TEMPLATE("bucket_table on a GPU: pooled lookups forward and backward", Element, TESSERA_TEST_SOME_ELEMENTS) {
  on_cuda([](cuda_exec const& exec) {
    SUBCASE("rowwise_adagrad") { bucket_lookup_suite<Element>(exec, tessera::rowwise_adagrad{.learning_rate = 0.1F}); }
    SUBCASE("adam") { bucket_lookup_suite<Element>(exec, tessera::adam{.learning_rate = 0.1F}); }
  });
}

TEST_CASE("bucket_table on a GPU: lookups at the edges") {
  on_cuda([](cuda_exec const& exec) { bucket_lookup_edges(exec); });
}
