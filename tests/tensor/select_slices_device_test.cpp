// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "select_slices_device.hpp"
#include "../support/emulated_verbs.hpp"

TEST_CASE("select_slices on an emulated device") {
  tessera_tests::emulated_device device;
  // As large as it takes for many blocks, rows longer than the 2,048 packs of a block, and sums of more vectors than are read ahead.
  tensor_tests::select_slices_on_device(device.exec(), {{0, 3, 0, 1},
                                                        {0, 3, 4, 1},
                                                        {1, 1, 3, 1},
                                                        {7, 5, 0, 3},
                                                        {50, 3, 40, 9},
                                                        {300, 64, 60, 200},
                                                        {6000, 1, 60, 5000},
                                                        {70, 1027, 20, 30},
                                                        {40, 1028, 10, 12},
                                                        {500, 17, 900, 40},
                                                        {5, 0, 4, 5}});
}

TEST_CASE("select_slices on an emulated device: the host never waits") {
  using tessera_tests::put;
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto const slices = put(exec, std::vector<tensor_tests::slice>{{0, 2}, {1, 3}});
  auto in = put(exec, std::vector<float>(8)), out = put(exec, std::vector<float>(10));
  tessera::buffer<std::int64_t, tessera_tests::emulated_exec> offsets(exec, 3);
  tessera::jagged_vectors_view<float> const rows{{out.data(), 5, 2}, offsets.data(), 2};
  device.waits = 0;
  tessera::select_slices_offsets(exec, slices, offsets.view());
  tessera::select_slices(exec, {in.data(), 4, 2}, slices, rows);
  tessera::select_slices_backward(exec, rows, slices, {in.data(), 4, 2});
  CHECK(device.waits == 0);
}
