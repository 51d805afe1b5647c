// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "select_vectors_device.hpp"
#include "../support/emulated_verbs.hpp"

using namespace tessera_tests;

TEST_CASE("select_vectors on an emulated device") {
  emulated_device device;
  select_vectors_on_device(device.exec());
}

TEST_CASE("select_vectors on an emulated device: the host never waits") {
  emulated_device device;
  auto const exec = device.exec();
  vectors_device<emulated_exec> harness(exec);
  auto in = harness.place(nested_of({3, 0, 2}, 8), 8), out = harness.place(nested_of({2, 2, 0}, 8), 8);
  auto const which = harness.put(indices{2, 2, 1});
  auto offsets = harness.put(indices(4));
  tessera::select_vectors_offsets(exec, in.jagged(), which, offsets.view());
  tessera::select_vectors(exec, in.jagged(), which, out.jagged());
  tessera::select_vectors_backward(exec, out.jagged(), which, in.jagged());
  CHECK(device.waits == 0);
}

TEST_CASE("select_vectors on an emulated device: where a row's sources begin") {
  using tessera::detail::count_below;
  std::vector<std::int64_t> const sorted{0, 0, 2, 5, 5, 5};
  std::vector<std::int64_t> expected{0, 2, 2, 3, 3, 3, 6, 6};
  for (std::int64_t row = 0; row < 8; ++row) CHECK(count_below(sorted.data(), 6, row) == expected[static_cast<std::size_t>(row)]);
  CHECK(count_below<std::int64_t>(nullptr, 0, 3) == 0);
}
