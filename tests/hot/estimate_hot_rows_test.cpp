// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
// ctest-cost: 10
#include <tessera/hot/estimate_hot_rows.hpp>
#include <tessera/hot/student_t.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

using tessera_tests::error_of;

namespace estimate_hot_rows_test {

namespace {

// The first `hot` rows have count 5, the others 1: neighbours are as alike as they can be.
tessera::table_accesses accesses(tessera::host_exec const& exec, std::int64_t rows, std::int64_t hot) {
  tessera::buffer<std::uint32_t> counts(exec, rows);
  for (std::int64_t i = 0; i < rows; ++i) counts[i] = i < hot ? 5 : 1;
  return {{.dim = 16, .rows = rows}, std::move(counts)};
}

}  // namespace

// Values of tables in print.
TEST_CASE("student_t_bound: what tables have, and the normal distribution's in the limit") {
  auto const close = [](double confidence, double degrees, double expected) {
    CHECK(tessera::detail::student_t_bound(confidence, degrees) == doctest::Approx(expected).epsilon(2e-4));
  };
  close(0.999, 34, 3.601);
  close(0.95, 1, 12.706);
  close(0.95, 10, 2.228);
  close(0.99, 5, 4.032);
  close(0.5, 3, 0.7649);
  close(0.99, 1e9, 2.5758);
}

TEST_CASE("estimate_hot_rows: within a tenth of the true number, and at most 15 % of the rows read") {
  constexpr std::int64_t rows = 8'350'000;  // of Criteo Kaggle's third largest table
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  int const seeds = tessera_tests::under_sanitizer ? 10 : 200;
  for (double const percent : {0.1, 1.0, 3.6, 10.0}) {
    CAPTURE(percent);
    auto const hot = static_cast<std::int64_t>(percent / 100 * rows);
    auto const table = accesses(exec, rows, hot);
    int far = 0, outside = 0, long_ones = 0;
    for (int s = 0; s < seeds; ++s) {
      auto const found = tessera::estimate_hot_rows(table, 5, {.seed = tessera::random_seed{seed + static_cast<std::uint64_t>(s)}});
      far += std::abs(found.rows - static_cast<double>(hot)) > 0.1 * static_cast<double>(hot);
      outside += static_cast<double>(hot) < found.least() || static_cast<double>(hot) > found.most();
      CHECK(found.half_width <= 0.1 * found.rows);
      long_ones += found.read > 15 * rows / 100;
    }
    CHECK(long_ones <= 2);  // where the sample varies more than the table by chance
    CHECK(far <= 2);
    CHECK(outside <= 4);  // a thousandth of them is expected
  }
}

TEST_CASE("estimate_hot_rows: all rows where chunks do not suffice, whatever their number; what it says of itself") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (std::int64_t const rows : {0, 1, 2, 3, 1023, 1024, 5000, 40'000}) {
    CAPTURE(rows);
    auto const hot = rows == 0 ? 0 : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows + 1));
    auto const table = accesses(exec, rows, hot);
    for (double const half_width : {1e-9, 0.5}) {
      auto const found = tessera::estimate_hot_rows(
          table, 5, {.chunks = 3, .chunk_entries = 16, .half_width = half_width, .seed = tessera::random_seed{seed}});
      CHECK(found.is_exact == (found.read == rows));
      if (found.is_exact) CHECK(found.rows == static_cast<double>(hot));
      if (half_width < 0.1) CHECK(found.is_exact);
      CHECK(found.half_width <= half_width * std::max(found.rows, 1.0));
    }
  }
  // One round of chunks, each row at most once: the share of all of them is exact.
  auto const table = accesses(exec, 4096, 1000);
  auto const once = tessera::estimate_hot_rows(table, 5, {.chunks = 4, .half_width = std::numeric_limits<double>::infinity()});
  CHECK(once.is_exact);
  CHECK(once.rows == doctest::Approx(1000));
  CHECK(once.half_width == doctest::Approx(0));

  auto const refused = [&](tessera::hot_row_sampling const& sampling, char const* option) {
    auto const e = error_of([&] { tessera::estimate_hot_rows(table, 5, sampling); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(!e.value(option).empty());
  };
  refused({.chunks = 1}, "chunks");
  refused({.chunk_entries = 0}, "chunk_entries");
  refused({.confidence = 1}, "confidence");
  refused({.confidence = 0}, "confidence");
  refused({.half_width = 0}, "half_width");
  refused({.half_width = std::nan("")}, "half_width");
}

}  // namespace estimate_hot_rows_test
