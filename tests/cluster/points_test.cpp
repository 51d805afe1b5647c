// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/cluster/points.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "hosts.hpp"
#include "random.hpp"

namespace points_test {

TEST_CASE("tiled_centres: distances are the naive ones, of any number of centres and dims") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw;
  tessera_tests::serial_host host;
  for (std::int64_t const d : {0, 1, 2, 3, 17, 130})
    for (std::int64_t const count : {0, 1, 7, 8, 9, 30}) {
      CAPTURE(d);
      CAPTURE(count);
      std::vector<double> point(static_cast<std::size_t>(d)), centres(static_cast<std::size_t>(d * count));
      for (auto* const numbers : {&point, &centres})
        for (auto& x : *numbers) x = draw(random);
      tessera::detail::tiled_centres tiles(host.exec(), count, d);
      tiles.set_all(centres.data(), count);
      CHECK(tiles.room() >= count);
      std::vector<double> out(static_cast<std::size_t>(tiles.room()) + 1, -7);
      tiles.squared_distances(point.data(), out.data());
      for (std::int64_t c = 0; c < count; ++c) {
        double expected = 0;
        for (std::int64_t j = 0; j < d; ++j)
          expected += std::pow(point[static_cast<std::size_t>(j)] - centres[static_cast<std::size_t>(c * d + j)], 2);
        CHECK(out[static_cast<std::size_t>(c)] == doctest::Approx(expected).epsilon(1e-12));
      }
      CHECK(out.back() == -7);
    }
}

}  // namespace points_test
