// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "padded_vectors_suite.hpp"

using namespace tessera_tests;

TEST_CASE_TEMPLATE("padded_vectors", Host, TESSERA_TEST_HOSTS) { padded_vectors_suite<vectors_host<Host>>(); }

TEST_CASE("padded_vectors: every team gives the same bits") {
  same_on_every_team([](auto& harness) {
    auto const lengths = harness.lengths(2000, 10);
    auto const rows = harness.random(lengths, 17), dense = harness.random(2000, 8, 17);
    return std::vector{padded(harness, rows, 8, 17, {}), unpadded(harness, dense, lengths, 17, {})};
  });
}

TEST_CASE("padded_vectors: results that are written past the caches") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t const rows = 27'000, width = 11, dim = 31;
  auto const lengths = random_integers<std::int64_t>(random, static_cast<std::size_t>(rows), 0, 24);
  std::vector<std::int64_t> offsets{0};
  for (auto const length : lengths) offsets.push_back(offsets.back() + length);
  auto const values = random_floats(random, static_cast<std::size_t>(offsets.back() * dim));
  tessera::jagged_vectors_view<float const> const in{{values.data(), offsets.back(), dim}, offsets.data(), rows};
  for (auto const keep : {tessera::kept_values::first, tessera::kept_values::last})
    for_each_host([&](tessera::host_exec const& exec, counting_memory&) {
      std::vector<float> dense(static_cast<std::size_t>(rows * width * dim + 1), -7.0F), back(values.size() + 1, -7.0F);
      tessera::matrix_view<float> const matrix{dense.data() + 1, rows * width, dim};
      tessera::jagged_vectors_view<float> const to{{back.data() + 1, offsets.back(), dim}, offsets.data(), rows};
      REQUIRE(tessera::detail::are_streamed(matrix, matrix.rows()));
      REQUIRE(tessera::detail::are_streamed(to.values, to.size()));
      tessera::to_padded_vectors(exec, in, matrix, {.padding = 5, .keep = keep});
      tessera::from_padded_vectors(exec, matrix, to, {.keep = keep});
      std::int64_t wrong = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        auto const kept = std::min(width, in.length(row));
        auto const first = keep == tessera::kept_values::last ? in.length(row) - kept : 0;
        for (std::int64_t j = 0; j < width; ++j)
          for (std::int64_t c = 0; c < dim; ++c) wrong += matrix(row * width + j, c) != (j < kept ? in.row(row)(first + j, c) : 5.0F);
        for (std::int64_t j = 0; j < in.length(row); ++j)
          for (std::int64_t c = 0; c < dim; ++c) wrong += to.row(row)(j, c) != (j >= first && j < first + kept ? in.row(row)(j, c) : 0.0F);
      }
      CHECK(wrong == 0);
      CHECK(dense.front() == -7.0F);
      CHECK(back.front() == -7.0F);
    });
}
