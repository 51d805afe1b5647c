// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 4
#include "pooled_lookup_backward_device.hpp"

#include "../support/type_lists.hpp"
#include "emulated_verbs.hpp"

using namespace embed_tests;

TEST_CASE_TEMPLATE("pooled_lookup_backward on an emulated device: row-wise Adagrad", Element, TESSERA_TEST_SOME_ELEMENTS) {
  tessera_tests::emulated_device device;
  pooled_backward_device_suite<Element>(device.exec(), tessera::rowwise_adagrad{.learning_rate = 0.1F, .initial_state = 0.5F});
}
TEST_CASE_TEMPLATE("pooled_lookup_backward on an emulated device: every optimizer", Optimizer, TESSERA_TEST_OPTIMIZERS) {
  tessera_tests::emulated_device device;
  pooled_backward_device_suite<float>(device.exec(), Optimizer{});
}
TEST_CASE("pooled_lookup_backward on an emulated device: adaptors") {
  tessera_tests::emulated_device device;
  using decaying = tessera::with_weight_decay<tessera::rowwise_adagrad>;
  pooled_backward_device_suite<float>(device.exec(), tessera::with_value_clipping<decaying>{{{}, 0.01F}, 0.5F});
  pooled_backward_device_suite<tessera::float16>(device.exec(), tessera::with_row_clipping<tessera::adam>{{}, 0.5F});
  pooled_backward_device_suite<float>(device.exec(), tessera::with_decoupled_weight_decay<tessera::adam>{{}, 0.1F});
}
TEST_CASE("pooled_lookup_backward on an emulated device: edges") {
  tessera_tests::emulated_device device;
  pooled_backward_device_edges(device.exec());
}
