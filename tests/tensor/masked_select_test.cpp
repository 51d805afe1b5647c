// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "keyed_support.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/tensor/masked_select.hpp>

using namespace tensor_tests;

TEST_CASE("values whose mask is not 0, in their rows") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    auto const size = static_cast<std::size_t>(view.size());
    for (int const percent : {0, 50, 97, 100}) {
      std::vector<std::uint8_t> mask(size);
      for (auto& keep : mask)
        keep = static_cast<int>(random() % 100) < percent ? static_cast<std::uint8_t>(1 + random() % 255) : std::uint8_t{0};
      auto expected = keys;
      model_rows flat;
      std::size_t next = 0;
      for (auto& rows : expected)
        for (auto& row : rows) {
          model_row kept;
          for (std::size_t i = 0; i < row.values.size(); ++i) {
            if (mask[next++] == 0) continue;
            kept.values.push_back(row.values[i]);
            if (view.weighted()) kept.weights.push_back(row.weights[i]);
          }
          row = kept;
          flat.push_back({kept.values, {}});
        }
      check_batch(tessera::masked_select(exec, view, mask), expected);
      CHECK(model_of(tessera::masked_select(exec, view.flat(), mask).view()) == flat);
      if (percent == 100) CHECK(expected == keys);
      check_any_type(view, [&](auto in) { return tessera::masked_select(exec, in, mask); });
    }
  });
}

TEST_CASE("names stay, and another number of bytes is refused") {
  tessera_tests::serial_host host;
  auto const batch = named_batch(host.exec());
  CHECK(text(tessera::masked_select(host.exec(), batch, std::vector<std::uint8_t>{0, 1, 1, 0, 0, 1, 2})) ==
        "{user: [[2, 3], [], []] weights [[2, 3], [], []], item: [[6], [7]] weights [[6], [7]]}");
  for (std::size_t const bytes : {0U, 6U, 8U}) {
    auto const e = error_of([&] { tessera::masked_select(host.exec(), batch, std::vector<std::uint8_t>(bytes)); });
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(e.value("values") == "7");
    CHECK(e.value("mask") == std::to_string(bytes));
  }
}
