// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "select_vectors_suite.hpp"

using namespace tessera_tests;

TEST_CASE_TEMPLATE("select_vectors", Host, TESSERA_TEST_HOSTS) { select_vectors_suite<vectors_host<Host>>(); }

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

TEST_CASE("select_vectors: a result that is written past the caches") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t const rows = 500, selected = 20'000, dim = 33;
  std::vector<std::int64_t> offsets{0}, positions{0};
  for (std::int64_t r = 0; r < rows; ++r) offsets.push_back(offsets.back() + static_cast<std::int64_t>(random() % 41));
  auto const values = random_floats(random, static_cast<std::size_t>(offsets.back() * dim));
  auto const which = random_integers<std::int64_t>(random, static_cast<std::size_t>(selected), 0, rows - 1);
  tessera::jagged_vectors_view<float const> const in{{values.data(), offsets.back(), dim}, offsets.data(), rows};
  for (auto const row : which) positions.push_back(positions.back() + in.length(row));
  std::int64_t const size = positions.back();
  for_each_host([&](tessera::host_exec const& exec, counting_memory&) {
    // One float more, so that no vector starts a line, and one behind that nobody may touch.
    std::vector<float> out(static_cast<std::size_t>(size * dim + 2), -7.0F);
    tessera::jagged_vectors_view<float> const to{{out.data() + 1, size, dim}, positions.data(), selected};
    REQUIRE(tessera::detail::are_streamed(to.values, to.size()));
    tessera::select_vectors(exec, in, which, to);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < selected; ++i) {
      auto const expected = in.row(which[static_cast<std::size_t>(i)]);
      wrong += !std::equal(expected.data(), expected.data() + expected.rows() * dim, to.row(i).data());
    }
    CHECK(wrong == 0);
    CHECK(out.front() == -7.0F);
    CHECK(out.back() == -7.0F);
  });
}
