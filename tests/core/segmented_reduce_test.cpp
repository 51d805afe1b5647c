// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include "segmented_reduce_suite.hpp"

#include <tessera/core/error.hpp>

#include "../support/hosts.hpp"

using tessera::vector_view;

namespace {

struct host_segmented_reduce {
  tessera::host_exec exec;

  template <class T, class Offset, class Result, class Op>
  std::vector<Result> reduce(std::vector<T> const& values, std::vector<Offset> const& offsets, Result initial, Op op) const {
    std::vector<Result> out(offsets.size() - 1);
    tessera::segmented_reduce(exec, values.data(), vector_view<Offset const>(offsets), vector_view<Result>(out), initial, op);
    return out;
  }
};

}  // namespace

TEST_CASE("segmented_reduce on one thread") {
  tessera_tests::serial_host host;
  segmented_reduce_suite(host_segmented_reduce{host.exec()});
  CHECK(host.memory().allocations() == 0);
}
TEST_CASE("segmented_reduce on 2 threads") {
  tessera_tests::pool_host<2> host;
  segmented_reduce_suite(host_segmented_reduce{host.exec()});
}
TEST_CASE("segmented_reduce on 4 threads") {
  tessera_tests::pool_host<4> host;
  segmented_reduce_suite(host_segmented_reduce{host.exec()});
}

TEST_CASE("a user's operator, and an initial value that converts") {
  tessera_tests::serial_host host;
  std::vector<float> const values{1, 2, 3};
  std::vector<int> const offsets{0, 1, 3};
  std::vector<double> out(2);
  auto const times = [](double a, double b) noexcept { return a * b; };
  tessera::segmented_reduce(host.exec(), values.data(), vector_view<int const>(offsets), vector_view<double>(out), 2, times);
  CHECK(out == std::vector<double>{2, 12});
}

TEST_CASE("one offset more than segments") {
  tessera_tests::serial_host host;
  std::vector<int> const values{1}, offsets{0, 1};
  std::vector<int> out(2);
  CHECK_THROWS_WITH_AS(tessera::segmented_reduce(host.exec(), values.data(), vector_view<int const>(offsets), vector_view<int>(out)),
                       "segmented_reduce: one offset more than segments (offsets 2, segments 2)", tessera::error);
}

TEST_CASE("segmented_reduce refuses offsets of another size, and in a checked build those that decrease") {
  tessera_tests::serial_host host;
  std::vector<float> const values(5, 1.0F);
  std::vector<float> out(3);
  auto const reduce = [&](std::vector<std::int64_t> offsets) {
    tessera::segmented_reduce(host.exec(), values.data(), tessera::vector_view<std::int64_t>(offsets), tessera::vector_view<float>(out));
  };
  CHECK_THROWS_WITH_AS(reduce({0, 1, 2}), "segmented_reduce: one offset more than segments (offsets 3, segments 3)", tessera::error);
  reduce({0, 2, 2, 5});
  CHECK(out == std::vector<float>{2, 0, 3});
  if constexpr (tessera::checked) {
    CHECK_THROWS_WITH_AS(reduce({0, 2, 1, 5}), "segmented_reduce: offsets are negative or decrease (segment 1, offset 2, next offset 1)",
                         tessera::error);
    CHECK_THROWS_AS(reduce({-1, 2, 3, 5}), tessera::error);
  }
}
