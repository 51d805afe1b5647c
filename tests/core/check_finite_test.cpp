// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "check_finite_suite.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "../support/hosts.hpp"
#include "../support/type_lists.hpp"

using check_finite_tests::as;

namespace {

struct host_check_finite {
  tessera::host_exec exec;

  template <class T>
  void check(char const* what, std::vector<T> const& values) const {
    tessera::check_finite(exec, what, tessera::vector_view<T const>(values));
  }
  template <class T>
  void check(char const* what, std::vector<T> values, std::int64_t rows, std::int64_t columns, std::int64_t stride) const {
    tessera::check_finite(exec, what, tessera::matrix_view<T>(values.data(), rows, columns, stride));
  }
};

}  // namespace

TEST_CASE_TEMPLATE("is_finite: infinities and NaN of either sign are not", T, float,
                   tessera::bfloat16 TESSERA_TEST_MORE_TYPES(, double, tessera::float16, tessera::float8_e4m3, tessera::float8_e5m2)) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (double const x : {0.0, -0.0, 1.0, -448.0, 0x1p-24, -0x1p-14}) CHECK(tessera::is_finite(as<T>(x)));
  for (double const x : {infinity, -infinity, std::nan(""), -std::nan("")}) CHECK_FALSE(tessera::is_finite(as<T>(x)));
}

TEST_CASE("is_finite: the largest and the smallest are finite") {
  for (auto const x : {std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(), std::numeric_limits<float>::denorm_min()})
    CHECK(tessera::is_finite(x));
  for (auto const x :
       {std::numeric_limits<double>::max(), std::numeric_limits<double>::lowest(), std::numeric_limits<double>::denorm_min()})
    CHECK(tessera::is_finite(x));
  CHECK(tessera::is_finite(tessera::float16{0x7BFF}));
  CHECK(tessera::is_finite(tessera::bfloat16{0x7F7F}));
  CHECK(tessera::is_finite(tessera::float8_e4m3{0xFE}));
  CHECK(tessera::is_finite(tessera::float8_e5m2{0x7B}));
}

TEST_CASE_TEMPLATE("check_finite on one thread", T, float,
                   tessera::bfloat16 TESSERA_TEST_MORE_TYPES(, double, tessera::float16, tessera::float8_e4m3, tessera::float8_e5m2)) {
  tessera_tests::serial_host host;
  check_finite_suite<T>(host_check_finite{host.exec()});
  CHECK(host.memory().allocations() == 0);
}
TEST_CASE_TEMPLATE("check_finite on 2 threads", T, float,
                   tessera::bfloat16 TESSERA_TEST_MORE_TYPES(, double, tessera::float16, tessera::float8_e4m3, tessera::float8_e5m2)) {
  tessera_tests::pool_host<2> host;
  check_finite_suite<T>(host_check_finite{host.exec()});
}
TEST_CASE_TEMPLATE("check_finite on 4 threads", T, float,
                   tessera::bfloat16 TESSERA_TEST_MORE_TYPES(, double, tessera::float16, tessera::float8_e4m3, tessera::float8_e5m2)) {
  tessera_tests::pool_host<4> host;
  check_finite_suite<T>(host_check_finite{host.exec()});
}
