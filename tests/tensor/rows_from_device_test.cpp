// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/rows_from.cuh>

#include "../support/emulated_verbs.hpp"
#include "rows_from_suite.hpp"

TEST_CASE("rows_from on an emulated device") {
  tessera_tests::emulated_device device;
  rows_from_suite(tensor_tests::rows_on_device(device.exec()));
}

TEST_CASE("rows_from on an emulated device: ranges of an array, past what the offsets count") {
  using namespace rows_from_tests;
  tessera_tests::emulated_device device;
  rows_on_device harness(device.exec());
  auto const values = harness.numbers(ids{1, 2, 3, 4, 5});
  auto const ranges = harness.numbers(std::vector<range>{{3, 2}, {}, {0, 1}});
  listed_ranges const source{ranges.data(), nullptr};
  tessera::vector_view<std::int64_t const> const all(values.data(), 5);
  auto const result = harness.get(tessera::rows_from<std::int32_t>(harness.exec, all, 3, source));
  CHECK(text(result.view()) == "[[4, 5], [], [1]]");
  CHECK(refusal_of(harness, [&] { return tessera::rows_from<std::int32_t>(harness.exec, all.slice(0, 4), 3, source); }) ==
        "rows_from: a range past the values (row 0, begin 3, length 2, first value 0, values 4)");
}
