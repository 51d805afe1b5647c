// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "scan_suite.hpp"

#include "../support/hosts.hpp"

using tessera::vector_view;

namespace {

struct host_scan {
  tessera::host_exec exec;

  template <class T, class Sum>
  std::pair<std::vector<Sum>, Sum> exclusive_scan(std::vector<T> const& in, Sum initial) const {
    std::vector<Sum> out(in.size());
    auto const sum = tessera::exclusive_scan(exec, vector_view<T const>(in), vector_view<Sum>(out), initial);
    return {std::move(out), sum};
  }
  template <class T>
  std::pair<std::vector<T>, T> exclusive_scan_in_place(std::vector<T> values) const {
    auto const sum = tessera::exclusive_scan(exec, vector_view<T>(values), vector_view<T>(values));
    return {std::move(values), sum};
  }
  template <class T, class Offset>
  std::vector<Offset> lengths_to_offsets(std::vector<T> const& lengths, std::size_t count, Offset) const {
    std::vector<Offset> offsets(count);
    tessera::lengths_to_offsets(exec, vector_view<T const>(lengths), vector_view<Offset>(offsets));
    return offsets;
  }
};

}  // namespace

TEST_CASE("scan on one thread") {
  tessera_tests::serial_host host;
  scan_suite(host_scan{host.exec()});
}
TEST_CASE("scan on 2 threads") {
  tessera_tests::pool_host<2> host;
  scan_suite(host_scan{host.exec()});
}
TEST_CASE("scan on 4 threads") {
  tessera_tests::pool_host<4> host;
  scan_suite(host_scan{host.exec()});
}

TEST_CASE("float sums have the same bits on any number of threads: pieces of 32,768 joined in order") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const values = tessera_tests::random_floats(random, 150'001);
  std::vector<float> expected;
  float start = 0.25F;
  for (std::size_t first = 0; first < values.size(); first += 32'768) {
    auto const last = std::min(values.size(), first + 32'768);
    float running = start, piece = 0;
    for (auto i = first; i < last; ++i) {
      expected.push_back(running);
      running += values[i];
      piece += values[i];
    }
    start += piece;
  }
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    auto const [out, sum] = host_scan{exec}.exclusive_scan(values, 0.25F);
    CHECK(out == expected);
    CHECK(sum == start);
  });
}

TEST_CASE("exclusive_scan refuses an output of another size") {
  tessera_tests::serial_host host;
  std::vector<int> const in(3);
  std::vector<int> out(4);
  CHECK_THROWS_WITH_AS(tessera::exclusive_scan(host.exec(), vector_view<int const>(in), vector_view<int>(out)),
                       "exclusive_scan: output and input differ in size (input 3, output 4)", tessera::error);
}

TEST_CASE("the initial value converts to the output's type") {
  tessera_tests::serial_host host;
  std::vector<std::int32_t> const in{1, 2};
  std::vector<std::int64_t> out(2);
  CHECK(tessera::exclusive_scan(host.exec(), vector_view<std::int32_t const>(in), vector_view<std::int64_t>(out), 10) == 13);
  CHECK(out == std::vector<std::int64_t>{10, 11});
}
