// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/check_finite.hpp>

#include "hosts.hpp"
#include "random.hpp"

namespace {

template <class T>
T as(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return tessera::round_to<T>(static_cast<float>(value));
}

template <class F>
tessera::error refusal(F const& f) {
  try {
    f();
  } catch (tessera::error const& e) {
    return e;
  }
  FAIL("nothing was refused");
  return tessera::error(tessera::errc::io_error, "");
}

}  // namespace

TEST_CASE_TEMPLATE("is_finite: infinities and NaN of either sign are not", T, float, double, tessera::float16, tessera::bfloat16) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (double const x : {0.0, -0.0, 1.0, -65504.0, 0x1p-24, -0x1p-14}) CHECK(tessera::is_finite(as<T>(x)));
  for (double const x : {infinity, -infinity, std::nan(""), -std::nan("")}) CHECK_FALSE(tessera::is_finite(as<T>(x)));
}

TEST_CASE("is_finite: the largest and the smallest are finite") {
  for (auto const x : {std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(), std::numeric_limits<float>::denorm_min()})
    CHECK(tessera::is_finite(x));
  for (auto const x :
       {std::numeric_limits<double>::max(), std::numeric_limits<double>::lowest(), std::numeric_limits<double>::denorm_min()})
    CHECK(tessera::is_finite(x));
}

TEST_CASE_TEMPLATE("check_finite names what, where and the value of the first, on any team", T, float, double, tessera::float16,
                   tessera::bfloat16) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<T> values;
  for (auto const x : tessera_tests::random_floats(random, 100'003)) values.push_back(as<T>(static_cast<double>(x)));
  auto const places = tessera_tests::random_integers<std::int64_t>(random, 3, 0, 100'002);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory& memory) {
    auto broken = values;
    tessera::check_finite(exec, "gradients", tessera::vector_view<T const>(broken));
    auto first = std::int64_t{100'003};
    for (auto const place : places) {
      broken[static_cast<std::size_t>(place)] = as<T>(std::nan(""));
      first = std::min(first, place);
      auto const e = refusal([&] { tessera::check_finite(exec, "gradients", tessera::vector_view<T>(broken)); });
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.sentence() == "gradients: a value is not finite");
      CHECK(e.value("index") == std::to_string(first));
      CHECK(e.value("value").find("nan") != std::string_view::npos);
    }
    CHECK(memory.allocations() == 0);
  });
}

TEST_CASE("check_finite of a matrix: row and column; what lies between the rows is not looked at") {
  tessera_tests::serial_host host;
  std::vector<float> storage(4 * 5, std::numeric_limits<float>::infinity());
  tessera::matrix_view<float> const matrix(storage.data(), 4, 3, 5);
  for (std::int64_t r = 0; r < 4; ++r)
    for (std::int64_t c = 0; c < 3; ++c) matrix(r, c) = 1;
  tessera::check_finite(host.exec(), "row", matrix);
  matrix(3, 1) = -std::numeric_limits<float>::infinity();
  matrix(2, 2) = std::numeric_limits<float>::quiet_NaN();
  auto e = refusal([&] { tessera::check_finite(host.exec(), "logits", matrix); });
  CHECK(e.value("row") == "2");
  CHECK(e.value("column") == "2");
  matrix(2, 2) = 0;
  e = refusal([&] { tessera::check_finite(host.exec(), "logits", tessera::matrix_view<float const>(matrix)); });
  CHECK(std::string(e.what()) == "logits: a value is not finite (row 3, column 1, value -inf)");
}

TEST_CASE("check_finite of nothing") {
  tessera_tests::serial_host host;
  tessera::check_finite(host.exec(), "none", tessera::vector_view<float>());
  tessera::check_finite(host.exec(), "none", tessera::matrix_view<double>());
  tessera::check_finite(host.exec(), "none", tessera::matrix_view<float>(nullptr, 3, 0));
}
