// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/expand.hpp>

#include "inverse_support.hpp"

using namespace tensor_tests;

TEST_CASE("what was made distinct comes back bit for bit") {
  for_each_session_batch([](tessera::host_exec const& exec, model const& content, ids const& keys_per_group, auto&) {
    auto const batch = batch_of<std::int32_t>(exec, content);
    auto const made = tessera::deduplicate(exec, batch.view(), keys_per_group);
    auto const back = tessera::expand(exec, made.view());
    check_batch(back, content);
    auto const a = batch.view().flat(), b = back.view().flat();
    REQUIRE(a.rows == b.rows);
    CHECK(std::equal(a.offsets, a.offsets + a.rows + 1, b.offsets));
  });
}

TEST_CASE("names come back, and an inverse that names no row is refused") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {1}}}, {"b", {{}, {3}}}});
  auto const made = tessera::deduplicate(host.exec(), batch, ids{1});
  CHECK(tessera::expand(host.exec(), made).keys() == names{"a", "b"});
  ids inverse{0, 1};
  std::vector<tessera::row_group> const groups{{0, 1, inverse.data()}};
  auto view = made.view();
  view.groups = groups;
  CHECK(refusal_of([&] { tessera::expand(host.exec(), view); }) == "expand: no such row (key 0, sample 1, row 1, rows 1)");
  CHECK(refusal_of([&] { tessera::validate(view, view.distinct.size()); }) ==
        "inverse_keyed_jagged: no such row (group 0, sample 1, row 1, rows 1)");
}
