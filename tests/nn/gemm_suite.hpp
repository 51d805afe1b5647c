// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn_harness.hpp"

namespace tessera_tests {

/// c = a b in double, and how far off a float product may be: the sum of |a b| times the roundings of k terms in any order.
struct gemm_reference {
  doubles c, bound;

  gemm_reference(strided_floats const& a, strided_floats const& b) : c(a.rows, b.columns), bound(a.rows, b.columns) {
    for (std::int64_t i = 0; i < a.rows; ++i) {
      for (std::int64_t k = 0; k < a.columns; ++k) {
        auto const left = static_cast<double>(a.at(i, k));
        for (std::int64_t j = 0; j < b.columns; ++j) {
          auto const term = left * static_cast<double>(b.at(k, j));
          c.at(i, j) += term;
          bound.at(i, j) += std::fabs(term);
        }
      }
    }
    for (auto& x : bound.values) x *= static_cast<double>(a.columns + 1) * 0x1p-24;
  }

  bool met_by(strided_floats const& result) const {
    for (std::int64_t i = 0; i < c.rows; ++i)
      for (std::int64_t j = 0; j < c.columns; ++j)
        if (!(std::fabs(static_cast<double>(result.at(i, j)) - c.at(i, j)) <= bound.at(i, j))) return false;
    return true;
  }
};

/// What every gemm policy must show. The harness is an `nn_host` or the like.
template <class Harness>
void gemm_suite() {
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const gap = [&] { return static_cast<std::int64_t>(random() % 4); };

  // The product by way of the four ways to store the factors.
  auto const check = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool every_way) {
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    strided_floats const a(random, m, k, gap()), b(random, k, n, gap());
    gemm_reference const expected(a, b);
    auto const one_way = random() % 4;
    for (unsigned way = 0; way < 4; ++way) {
      if (!every_way && way != one_way) continue;
      CAPTURE(way);
      bool const a_transposed = (way & 1) != 0, b_transposed = (way & 2) != 0;
      auto const stored_a = a_transposed ? a.transposed(gap()) : a;
      auto const stored_b = b_transposed ? b.transposed(gap()) : b;
      strided_floats c(m, n, gap());
      auto const there_a = harness.put(stored_a.storage);
      auto const there_b = harness.put(stored_b.storage);
      auto there_c = harness.put(c.storage);
      tessera::gemm(harness.exec(), harness.policy(), tessera::gemm_operand(stored_a.in(there_a.data()), a_transposed),
                    tessera::gemm_operand(stored_b.in(there_b.data()), b_transposed), c.in(there_c.data()));
      c.storage = harness.get(there_c);
      REQUIRE(c.gaps_intact());
      REQUIRE(expected.met_by(c));
    }
  };

  SUBCASE("products match a double reference, gaps between rows stay untouched") {
    std::vector<std::int64_t> const sizes{0, 1, 2, 15, 16, 17, 100, 257, 513};
    for (auto const m : sizes)
      for (auto const n : sizes)
        for (auto const k : sizes) {
          auto const work = m * n * k;
          if (work <= 1 << 15)
            check(m, n, k, true);
          else if (work <= 1 << 19 && !under_sanitizer)
            check(m, n, k, false);
        }
    if (under_tsan) return;
    check(513, 257, 100, !under_asan);
    check(257, 100, 513, false);
    check(1, 513, 513, false);
    check(513, 1, 513, false);
    check(513, 513, 17, false);
    check(2, 3, 70000, false);
    check(1000, 128, 128, false);  // an edge tile needs more workspace than a full one
    check(481, 1, 200, false);
  }

  SUBCASE("a product of nothing is zero") {
    for (bool const a_transposed : {false, true})
      for (bool const b_transposed : {false, true}) {
        strided_floats c(300, 300, 1);
        auto there = harness.put(c.storage);
        tessera::matrix_view<float const> const a{nullptr, a_transposed ? 0 : 300, a_transposed ? 300 : 0};
        tessera::matrix_view<float const> const b{nullptr, b_transposed ? 300 : 0, b_transposed ? 0 : 300};
        tessera::gemm(harness.exec(), harness.policy(), tessera::gemm_operand(a, a_transposed), tessera::gemm_operand(b, b_transposed),
                      c.in(there.data()));
        c.storage = harness.get(there);
        CHECK(c.gaps_intact());
        CHECK(worst_difference(c, doubles(300, 300)) == 0);
      }
  }

  SUBCASE("NaN and infinity of a factor reach the products they enter and no other") {
    strided_floats a(40, 20, 0, 1), b(20, 30, 0, 1), c(40, 30, 0);
    a.at(33, 7) = std::nanf("");
    b.at(4, 29) = HUGE_VALF;
    auto const there_a = harness.put(a.storage), there_b = harness.put(b.storage);
    auto there_c = harness.put(c.storage);
    tessera::gemm(harness.exec(), harness.policy(), a.in(there_a.data()), b.in(there_b.data()), c.in(there_c.data()));
    c.storage = harness.get(there_c);
    int wrong = 0;
    for (std::int64_t i = 0; i < 40; ++i)
      for (std::int64_t j = 0; j < 30; ++j)
        wrong += !(i == 33 ? std::isnan(c.at(i, j)) : j == 29 ? c.at(i, j) == HUGE_VALF : c.at(i, j) == 20.0F);
    CHECK(wrong == 0);
  }

  SUBCASE("the bits do not depend on where the matrices lie") {
    for (auto const shape : {gemm_shape{65, 33, 47}, {1, 200, 77}, {200, 1, 77}, {1, 1, 1000}, {4, 3, 2}}) {
      auto const m = shape.m, n = shape.n, k = shape.k;
      CAPTURE(m);
      CAPTURE(n);
      CAPTURE(k);
      strided_floats const a(random, m, k, 0), b(random, k, n, 0);
      std::vector<float> first;
      for (std::size_t offset = 0; offset < 17; ++offset) {
        auto const displaced = [&](std::vector<float> values, std::size_t by) {
          values.insert(values.begin(), by, strided_floats::canary);
          return harness.put(values);
        };
        auto const there_a = displaced(a.storage, offset), there_b = displaced(b.storage, 3 * offset % 17);
        auto there_c = displaced(strided_floats(m, n, 0).storage, 5 * offset % 17);
        tessera::gemm(harness.exec(), harness.policy(), a.in(there_a.data() + offset), b.in(there_b.data() + 3 * offset % 17),
                      tessera::matrix_view<float>(there_c.data() + 5 * offset % 17, m, n));
        auto result = harness.get(there_c);
        result.erase(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(5 * offset % 17));
        if (offset == 0) first = result;
        REQUIRE(same_bits(result, first));
      }
    }
  }

  SUBCASE("shapes that do not fit are refused, and nothing is written") {
    auto const there = harness.put(std::vector<float>(64, 1));
    auto out = harness.put(std::vector<float>(64, 7));
    auto const refused = [&](tessera::gemm_operand a, tessera::gemm_operand b, std::int64_t rows, std::int64_t columns) {
      try {
        tessera::gemm(harness.exec(), harness.policy(), a, b, tessera::matrix_view<float>(out.data(), rows, columns));
      } catch (tessera::error const& e) {
        return e.code() == tessera::errc::shape_mismatch && e.value("c rows") == std::to_string(rows);
      }
      return false;
    };
    tessera::matrix_view<float const> const m23(there.data(), 2, 3), m34(there.data(), 3, 4), m43(there.data(), 4, 3);
    CHECK(refused(m23, m43, 2, 4));
    CHECK(refused(m23, m34, 3, 4));
    CHECK(refused(m23, m34, 2, 3));
    CHECK(refused(tessera::transposed(m23), m34, 3, 4));
    CHECK(refused(m23, tessera::transposed(m34), 2, 4));
    CHECK(refused(m23, m34, 0, 4));
    tessera::matrix_view<float> const c24(out.data(), 2, 4);
    CHECK_THROWS_WITH_AS(tessera::gemm(harness.exec(), harness.policy(), m23, m34, tessera::matrix_view<float>(out.data(), 2, 4, 3)),
                         "gemm: rows overlap (matrix c, columns 4, stride 3)", tessera::error);
    CHECK_THROWS_WITH_AS(
        tessera::gemm(harness.exec(), harness.policy(), tessera::matrix_view<float const>(there.data(), 2, 3, 2), m34, c24),
        "gemm: rows overlap (matrix a, columns 3, stride 2)", tessera::error);
    CHECK_THROWS_WITH_AS(tessera::gemm(harness.exec(), harness.policy(), m23,
                                       tessera::transposed(tessera::matrix_view<float const>(there.data(), 4, 3, 0)), c24),
                         "gemm: rows overlap (matrix b, columns 3, stride 0)", tessera::error);
    CHECK(harness.get(out) == std::vector<float>(64, 7));
    CHECK_FALSE(refused(m23, tessera::transposed(m43), 2, 4));
  }
}

}  // namespace tessera_tests
