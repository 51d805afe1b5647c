// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "hosts.hpp"
#include "temporary_folder.hpp"

using namespace tessera_tests;

namespace {

// Two keys whose first rows are further apart than 64 bits can say.
struct rows_past_64_bits {
  std::int64_t const values[3] = {1, 2, 3};
  std::int64_t const offsets[3] = {0, 1, 3};
  std::int64_t const first_row[4] = {0, 5, std::numeric_limits<std::int64_t>::min(), 2};

  tessera::keyed_jagged_view<std::int64_t const> view() const { return {values, nullptr, offsets, first_row, 3, 3}; }
};

}  // namespace

TEST_CASE("validate names the first key whose rows decrease, by however much") {
  rows_past_64_bits const batch;
  auto const e = error_of([&] { tessera::validate(batch.view(), 3); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(std::string(e.what()) == "keyed_jagged: first rows decrease (key 1, first row 5, next first row -9223372036854775808)");
}

TEST_CASE("bucketize and deduplicate of a checked build look at row counts before they use them") {
  if constexpr (tessera::checked) {
    rows_past_64_bits const batch;
    serial_host h;
    std::vector<std::int64_t> const groups{1};
    CHECK(error_of([&] { tessera::bucketize(h.exec(), batch.view(), 0, tessera::hashed_buckets{}); }).sentence() ==
          "bucketize: in: keyed_jagged: first rows decrease");
    CHECK(error_of([&] { tessera::deduplicate(h.exec(), batch.view(), groups); }).sentence() ==
          "deduplicate: batch: keyed_jagged: first rows decrease");
  }
}
