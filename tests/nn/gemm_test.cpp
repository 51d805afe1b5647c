// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 15
// ctest-labels: threads
// ctest-optimize: -O2, sanitizers -O0
#include "gemm_suite.hpp"

namespace {

using tessera::gemm_tiling;
using tessera_tests::naive_gemm;
using tessera_tests::strided_floats;

struct no_multiply {};
static_assert(!tessera::gemm_policy<no_multiply> && !tessera::gemm_policy<int>);

// Sizes known where the code is compiled: the tiling is arithmetic alone.
static_assert(gemm_tiling::of(0, 0, 0).rows == 1 && gemm_tiling::of(0, 0, 0).columns == 1);
static_assert(gemm_tiling::of(1, 1, 1).rows == 1 && gemm_tiling::of(1, 1, 1).columns == 1);

TEST_CASE("gemm with a triple loop") { tessera_tests::gemm_suite<tessera_tests::nn_host<naive_gemm>>(); }

TEST_CASE("gemm with a triple loop on two threads") {
  tessera_tests::gemm_suite<tessera_tests::nn_host<naive_gemm, tessera_tests::pool_host<2>>>();
}

TEST_CASE("gemm: tiles cover the product, are not empty, and are multiples of 16 where the shape allows") {
  std::int64_t const gigantic = (std::int64_t{1} << 31) + 5;
  std::vector<std::int64_t> const sizes{0, 1, 2, 15, 16, 17, 31, 100, 255, 256, 257, 367, 512, 2048, 4099, gigantic, std::int64_t{1} << 40};
  int wrong = 0;
  for (auto const m : sizes)
    for (auto const n : sizes)
      for (auto const k : sizes) {
        auto const tile = gemm_tiling::of(m, n, k);
        auto const fits = [](std::int64_t extent, std::int64_t part) {
          if (part < 1 || part > std::max<std::int64_t>(extent, 1)) return false;
          if (part != extent && extent > 0 && part % 16 != 0) return false;
          // The last tile of a row of tiles begins inside.
          return extent == 0 || (tessera::divide_up(extent, part) - 1) * part < extent;
        };
        wrong += !fits(m, tile.rows) || !fits(n, tile.columns);
        wrong += tile.columns > 256;
        // Cut no finer than worth a thread's while, unless it is for the sake of the largest tile.
        bool const is_fine = (tile.rows < std::min<std::int64_t>(m, 64) || tile.columns < std::min<std::int64_t>(n, 64));
        wrong += is_fine || tile.rows > 256;
      }
  CHECK(wrong == 0);
}

TEST_CASE("gemm: a block of a factor is the factor of a block") {
  std::vector<float> const values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  tessera::matrix_view<float const> const m(values.data(), 3, 4);
  auto const as_is = tessera::gemm_operand(m).block(1, 2, 2, 1);
  CHECK(as_is.rows() == 2);
  CHECK(as_is.columns() == 1);
  CHECK(as_is.stored(1, 0) == 10);
  auto const turned = tessera::transposed(m).block(1, 2, 3, 1);
  CHECK(turned.rows() == 3);
  CHECK(turned.columns() == 1);
  CHECK(turned.stored(0, 2) == 11);  // element (2, 0) of the block: (3, 2) of the transpose
}

TEST_CASE("gemm: the epilogue sees every finished element once, at its row and column") {
  tessera_tests::for_each_host([](tessera::host_exec const& exec, auto&) {
    for (auto const shape : {tessera_tests::gemm_shape{1, 1, 1}, {100, 600, 3}, {70, 300, 5000}, {33, 17, 0}, {0, 5, 4}, {5, 0, 4}}) {
      auto const m = shape.m, n = shape.n, k = shape.k;
      if (tessera_tests::under_sanitizer && m * n * k > 1 << 20) continue;
      CAPTURE(m);
      CAPTURE(n);
      CAPTURE(k);
      strided_floats const a(m, k, 1, 1), b(k, n, 2, 1);
      strided_floats c(m, n, 3);
      std::vector<int> seen(static_cast<std::size_t>(m * n));  // each tile writes its own part: a tile done twice is a race that tsan sees
      int const expected = static_cast<int>(k);
      tessera::gemm(exec, naive_gemm{}, a.view(), b.view(), c.view(),
                    [&](tessera::matrix_view<float> tile, std::int64_t first_row, std::int64_t first_column) {
                      for (std::int64_t r = 0; r < tile.rows(); ++r)
                        for (std::int64_t j = 0; j < tile.columns(); ++j) {
                          bool const right =
                              &tile(r, j) == &c.view()(first_row + r, first_column + j) && tile(r, j) == static_cast<float>(expected);
                          seen[static_cast<std::size_t>((first_row + r) * n + first_column + j)] += right ? 1 : 1000;
                          tile(r, j) = -1;
                        }
                    });
      CHECK(std::count(seen.begin(), seen.end(), 1) == m * n);
      CHECK(c.gaps_intact());
      int changed = 0;
      for (std::int64_t r = 0; r < m; ++r)
        for (std::int64_t j = 0; j < n; ++j) changed += c.at(r, j) == -1;
      CHECK(changed == m * n);
    }
  });
}

TEST_CASE("gemm: what a policy throws arrives") {
  struct refusing_gemm {
    static std::int64_t workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }
    static void multiply(tessera::gemm_operand, tessera::gemm_operand, tessera::matrix_view<float>, float*) {
      throw tessera::error(tessera::errc::out_of_memory, "no room");
    }
  };
  tessera_tests::for_each_host([](tessera::host_exec const& exec, auto&) {
    strided_floats const a(64, 3, 0, 1), b(3, 600, 0, 1);
    strided_floats c(64, 600, 0);
    CHECK_THROWS_AS(tessera::gemm(exec, refusing_gemm{}, a.view(), b.view(), c.view()), tessera::error);
  });
}

}  // namespace
