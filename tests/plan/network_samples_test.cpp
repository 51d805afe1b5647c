// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/network_samples.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace network_samples_test {

TEST_CASE("feature_statistics: features that never varied are about 0 whatever comes, once ignored") {
  std::vector<float> const rows{1, 7, 3, 7, 5, 7};  // (3, 2)
  auto statistics = tessera::feature_statistics::of({rows.data(), 3, 2});
  std::vector<float> row{5, 9};
  statistics.normalise(row);
  CHECK(row[0] == doctest::Approx(1));
  CHECK(row[1] > 1e6F);  // as published
  statistics.ignore_constants();
  row = {5, 9};
  statistics.normalise(row);
  CHECK(row[0] == doctest::Approx(1));
  CHECK(row[1] == doctest::Approx(0));
}

}  // namespace network_samples_test
