// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "error_feedback_device.hpp"
#include "../support/emulated_device.hpp"

using namespace tessera_tests;

TEST_CASE("error_feedback on an emulated device") {
  emulated_device device;
  device.seed(draw_seed());
  error_feedback_on_device(device.exec());
}
