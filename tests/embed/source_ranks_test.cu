// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "source_ranks_device.hpp"

#include "cuda_device.cuh"

using namespace embed_tests;
using tessera::cuda_exec;

TEST_CASE("source ranks on a GPU: lookups in dense tables have the bits of one batch on the host") {
  tessera_tests::on_cuda(
      [](cuda_exec const& exec) { source_ranks_device_suite<tessera::dense_table<>, tessera::dense_table<float, cuda_exec>>(exec); });
}
TEST_CASE("source ranks on a GPU: lookups in bucket tables have the bits of one batch on the host") {
  tessera_tests::on_cuda(
      [](cuda_exec const& exec) { source_ranks_device_suite<tessera::hash_table<>, tessera::bucket_table<float, cuda_exec>>(exec); });
}
TEST_CASE("source ranks on a GPU: device_tables of three kinds have the bits of one batch on the host") {
  tessera_tests::on_cuda([](cuda_exec const& exec) { source_ranks_device_tables(exec); });
}
