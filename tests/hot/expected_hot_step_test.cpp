// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/hot/expected_hot_step.hpp>

#include <doctest/doctest.h>

#include <limits>

#include <tessera/core/error.hpp>

#include "temporary_folder.hpp"

namespace expected_hot_step_test {

namespace {

// 1,024 samples of 26 ids, vectors of 16 elements in 2 bytes each, over a link of 45 MB/s.
tessera::hot_step_work usual() {
  return {.compute_seconds = 0.028, .lookups = 26 * 1024, .distinct_rows = 9000, .dim = 16, .vector_bytes = 32, .table_level = 1};
}
tessera::link_model const links{{{"host", 1e-6, 1e-9}, {"network", 0, 1 / 45e6}}};

}  // namespace

TEST_CASE("expected_step: a worker's hot batches cost what computes, cold ones their bytes, too, and swaps theirs") {
  auto work = usual();
  auto const alone = tessera::expected_step(work, links, 0.76);
  CHECK(alone.cold_bytes == 26 * 1024 * (4 + 64));
  CHECK(alone.hot_bytes == 0);
  CHECK(alone.cold_seconds == doctest::Approx(0.028 + 1'810'432 / 45e6));
  CHECK(alone.hot_seconds == doctest::Approx(0.028));
  CHECK(alone.seconds == doctest::Approx(0.24 * alone.cold_seconds + 0.76 * 0.028));
  CHECK(alone.speedup == doctest::Approx(alone.cold_seconds / alone.seconds));
  CHECK(tessera::expected_step(work, links, 0).speedup == 1);

  work.moved_bytes = 45'000'000;  // a second
  work.batches_of_run = 100;
  auto const swapped = tessera::expected_step(work, links, 0.76);
  CHECK(swapped.swap_seconds == doctest::Approx(0.01));
  CHECK(swapped.seconds == doctest::Approx(alone.seconds + 0.01));

  work.workers = 4;
  auto const joined = tessera::expected_step(work, links, 1);
  CHECK(joined.hot_bytes == (26 * 1024 * (4 + 32) + 9000 * (8 + 64)) * 3 / 4);
  CHECK(joined.hot_seconds == doctest::Approx(0.028 + 1e-6 + static_cast<double>(joined.hot_bytes) * 1e-9));
}

TEST_CASE("expected_step: what cannot be is refused by name") {
  auto const refused = [](auto const& change, double share = 0.5) {
    auto work = usual();
    change(work);
    return tessera_tests::error_of([&] { tessera::expected_step(work, links, share); });
  };
  CHECK(refused([](auto& w) { w.compute_seconds = std::numeric_limits<double>::quiet_NaN(); }).value("compute_seconds") == "nan");
  CHECK(refused([](auto& w) { w.workers = 0; }).value("workers") == "0");
  CHECK(refused([](auto& w) { w.lookups = -1; }).code() == tessera::errc::invalid_argument);
  CHECK(refused([](auto&) {}, 1.5).value("hot_share") == "1.5");
  CHECK(refused([](auto& w) { w.table_level = 2; }).code() == tessera::errc::out_of_range);
}

}  // namespace expected_hot_step_test
