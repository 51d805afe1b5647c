// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "word_copies_device.hpp"

TEST_CASE("word_copies on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { shard_tests::word_copies_suite(exec); });
}
TEST_CASE("ends of rows on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { shard_tests::ends_of_rows_suite(exec); });
}
