// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "select_vectors_suite.hpp"

using namespace tessera_tests;

TEST_CASE_TEMPLATE("select_vectors", Host, serial_host, pool_host<2>) { select_vectors_suite<vectors_host<Host>>(); }

TEST_CASE("select_vectors: every team gives the same bits") {
  same_on_every_team([](auto& harness) {
    auto const rows = harness.random(harness.lengths(500, 10), 17);
    auto const which = random_integers<std::int64_t>(harness.engine(), 3000, 0, 499);
    auto const gradient = harness.random(lengths_of(reference_select(rows, which)), 17);
    return std::vector{selected(harness, rows, which, 17), added(harness, rows, gradient, which, 17)};
  });
}

TEST_CASE("select_vectors: narrow offsets that the selection outgrows") {
  serial_host host;
  std::vector<std::int32_t> const offsets{0, 1 << 30};
  float value = 0;
  tessera::jagged_vectors_view<float, std::int32_t> const rows{{&value, 1 << 30, 1}, offsets.data(), 1};
  std::vector<std::int32_t> selected(3);
  auto const e = thrown_by([&] { tessera::select_vectors_offsets(host.exec(), rows, indices{0, 0}, selected); });
  CHECK(e.code() == tessera::errc::out_of_range);
  CHECK(e.value("row") == "1");
  tessera::select_vectors_offsets(host.exec(), rows, indices{0}, tessera::vector_view<std::int32_t>(selected.data(), 2));
  CHECK(selected[1] == 1 << 30);
}
