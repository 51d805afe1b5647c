// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include <tessera/nn/register_tiles.hpp>

#include "nn_harness.hpp"

namespace {

using namespace tessera::detail;
using tessera_tests::strided_floats;

// In all lanes alike.
float power_at(float x) {
  float values[register_lanes], results[register_lanes];
  std::fill_n(values, register_lanes, x);
  store_register<register_lanes>(results, power_of_two<register_lanes>(load_register<register_lanes>(values)));
  for (float const result : results) REQUIRE(tessera_tests::same_bits({result}, {results[0]}));
  return results[0];
}

TEST_CASE("power_of_two is that of the library to 3 units in the last place") {
  double worst = 0;
  for (double x = -124.99; x < 126; x += 0.00917) {
    auto const at = static_cast<float>(x);
    auto const expected = std::exp2(static_cast<double>(at)), unit = std::ldexp(1.0, std::ilogb(expected) - 23);
    worst = std::max(worst, std::fabs(static_cast<double>(power_at(at)) - expected) / unit);
  }
  CAPTURE(worst);
  CHECK(worst < 3);
  for (int n = -125; n <= 126; ++n) CHECK(power_at(static_cast<float>(n)) == std::ldexp(1.0F, n));
  CHECK(power_at(-126) == 0);
  CHECK(power_at(-1e30F) == 0);
  CHECK(power_at(-std::numeric_limits<float>::infinity()) == 0);
  CHECK(std::isnan(power_at(std::nanf(""))));
}

TEST_CASE("multiply_any_columns: every shape, with strides") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int64_t const rows : {1, 2, 3, 4, 5, 7, 11, 12, 13, 31})
    for (std::int64_t const columns : {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63})
      for (std::int64_t const count : {0, 1, 6})
        for (bool const adds : {false, true}) {
          strided_floats const a(random, rows, count + 1, 2), b(random, count + 1, columns, 1), start(random, rows, columns, 3);
          auto c = start;
          multiply_any_columns(rows, columns, tile_factor<std::int64_t, std::int64_t>{a.storage.data(), a.stride, 1}, b.storage.data(),
                               b.stride, all_steps{count}, c.storage.data(), c.stride, adds);
          tessera_tests::doubles expected(rows, columns);
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t x = 0; x < columns; ++x) {
              expected.at(r, x) = adds ? static_cast<double>(start.at(r, x)) : 0.0;
              for (std::int64_t k = 0; k < count; ++k)
                expected.at(r, x) += static_cast<double>(a.at(r, k)) * static_cast<double>(b.at(k, x));
            }
          CHECK(tessera_tests::worst_difference(c, expected) < 1e-6);
          CHECK(c.gaps_intact());
        }
}

TEST_CASE("multiply_rows asks for the steps of each tile") {
  std::vector<float> const a(20, 1.0F), b(40, 1.0F);
  std::vector<float> c(20, -1.0F);
  // Tiles that end by row 4 sum two steps from the first, those behind it three from the second.
  auto const steps = [](std::int64_t, std::int64_t last) {
    return last <= 4 ? std::pair<std::int64_t, std::int64_t>{0, 2} : std::pair<std::int64_t, std::int64_t>{1, 4};
  };
  multiply_any_columns(5, 4, tile_factor<std::int64_t, std::int64_t>{a.data(), 4, 1}, b.data(), 4, steps, c.data(), 4, false);
  for (std::int64_t r = 0; r < 5; ++r) CHECK((c[static_cast<std::size_t>(4 * r)] == 2 || c[static_cast<std::size_t>(4 * r)] == 3));
  CHECK(c[16] == 3);
}

TEST_CASE("transpose_scaled: every shape, zeros up to a register") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int64_t const rows : {1, 2, 5, 8, 16, 17, 30, 64})
    for (std::int64_t const columns : {1, 2, 3, 4, 7, 8, 13, 16, 20, 32, 37}) {
      strided_floats const m(random, rows, columns, 2);
      auto const padded = (rows + register_lanes - 1) / register_lanes * register_lanes;
      strided_floats to(columns, padded, 3);
      transpose_scaled(m.view(), 2.0F, to.storage.data(), to.stride);
      CHECK(to.gaps_intact());
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t r = 0; r < padded; ++r) CHECK(to.at(c, r) == (r < rows ? 2 * m.at(r, c) : 0.0F));
    }
}

}  // namespace
