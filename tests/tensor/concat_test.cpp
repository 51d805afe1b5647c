// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "concat_suite.hpp"

#include <string>
#include <vector>

TEST_CASE_TEMPLATE("concat", Host, TESSERA_TEST_HOSTS) {
  Host host;
  concat_suite(tensor_tests::rows_on_host{host.exec()});
}

TEST_CASE("a checked build refuses offsets that decrease, and names the input") {
  using namespace tensor_tests;
  if constexpr (tessera::checked) {
    tessera_tests::serial_host host;
    auto const plain = tessera::keyed_jagged<>::from_rows(host.exec(), {{"b", {{1}}}});
    ids const values{1, 2, 3}, offsets{0, 3, 1}, first_row{0, 2};
    std::vector<tessera::keyed_jagged_view<std::int64_t const>> const inputs{plain.view(),
                                                                             {values.data(), nullptr, offsets.data(), first_row.data(), 1}};
    auto const e = error_of([&] { tessera::concat_keys(host.exec(), inputs); });
    CHECK(std::string(e.what()) == "concat_keys: inputs[1]: jagged: offsets decrease (row 1, offset 3, next offset 1)");
  }
}
