// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "pooled_lookup_backward_device.hpp"

#include "../support/type_lists.hpp"
#include "cuda_device.cuh"

namespace {
template <class Element, class Optimizer>
void check(Optimizer const& optimizer) {
  tessera_tests::on_cuda([&](tessera::cuda_exec const& exec) { embed_tests::pooled_backward_device_suite<Element>(exec, optimizer); });
}
}  // namespace

TEST_CASE_TEMPLATE("pooled_lookup_backward on a GPU: row-wise Adagrad", Element, TESSERA_TEST_SOME_ELEMENTS) {
  check<Element>(tessera::rowwise_adagrad{.learning_rate = 0.1F, .initial_state = 0.5F});
}
TEST_CASE_TEMPLATE("pooled_lookup_backward on a GPU: every optimizer", Optimizer, TESSERA_TEST_OPTIMIZERS) { check<float>(Optimizer{}); }
TEST_CASE("pooled_lookup_backward on a GPU: adaptors") {
  using decaying = tessera::with_weight_decay<tessera::rowwise_adagrad>;
  check<float>(tessera::with_value_clipping<decaying>{{{}, 0.01F}, 0.5F});
  check<tessera::float16>(tessera::with_row_clipping<tessera::adam>{{}, 0.5F});
  check<float>(tessera::with_decoupled_weight_decay<tessera::adam>{{}, 0.1F});
}
TEST_CASE("pooled_lookup_backward on a GPU: edges") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { embed_tests::pooled_backward_device_edges(exec); });
}
