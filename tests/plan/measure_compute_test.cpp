// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 2
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/plan/measure_compute.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace measure_compute_test {

using tessera::compute_bench;
using tessera::compute_times;
using tessera::errc;
using tessera::measured_table;

namespace {

/// A clock whose reads take the given steps, in turns, in seconds.
struct fake_clock {
  std::vector<double> steps{0};
  double time = 5;
  std::size_t reads = 0;

  double now() { return time += steps[reads++ % steps.size()]; }
  void wait(double) {}
};

std::vector<std::int64_t> const ids{0, 3, 3, 1, 2, 3, 0}, lengths{2, 0, 4, 1};

}  // namespace

TEST_CASE("compute_bench: medians of the counted runs, forward and backward apart") {
  tessera_tests::serial_host host;
  compute_bench bench(host.exec(), 1 << 12, 1 << 10);
  // Three warm-ups of any time, then runs of (1, 5), (2, 4) and (9, 9) ms; 1 s passes between runs.
  std::vector<double> steps;
  for (auto const& [forward, backward] : std::vector<std::pair<double, double>>{{700, 1}, {1, 700}, {50, 50}, {1, 5}, {2, 4}, {9, 9}})
    for (double const ms : {1000.0, forward, backward}) steps.push_back(ms / 1000);
  fake_clock clock{steps};
  std::vector<measured_table> const tables{{4, 8, ids, lengths}, {4, 3, ids, lengths}};
  auto const times = bench.measure(host.exec(), clock, tables, tessera::rowwise_adagrad{}, {.warm_up = 3, .runs = 3});
  CHECK(clock.reads == 18);
  CHECK(times.forward_ms == doctest::Approx(2));
  CHECK(times.backward_ms == doctest::Approx(5));
  CHECK(times.step_ms == doctest::Approx(6));
  CHECK(bench.measure(host.exec(), clock, {}, tessera::sgd{}) == compute_times{});
}

TEST_CASE("compute_bench: the steadiest round counts, and a steady one is the last") {
  tessera_tests::serial_host host;
  compute_bench bench(host.exec(), 1 << 12, 64);
  std::vector<measured_table> const tables{{4, 8, ids, lengths}};
  auto const clock_of = [](std::vector<double> const& step_ms) {
    fake_clock clock{{}};
    for (auto const ms : step_ms)
      for (double const one : {1000.0, ms / 4, ms * 3 / 4}) clock.steps.push_back(one / 1000);
    return clock;
  };
  // Two rounds that something else disturbed, a steady one, and one that is not reached.
  auto clock = clock_of({10, 90, 10, 90, 80, 90, 80, 90, 8, 8, 8, 80, 1, 1, 1, 1});
  auto times = bench.measure(host.exec(), clock, tables, tessera::sgd{}, {.warm_up = 0, .runs = 4, .most_rounds = 9, .steady = 0.01});
  CHECK(clock.reads == 3 * 12);
  CHECK(times.step_ms == doctest::Approx(8));
  CHECK(times.forward_ms == doctest::Approx(2));
  clock = clock_of({10, 90, 10, 90, 80, 90, 80, 90});
  times = bench.measure(host.exec(), clock, tables, tessera::sgd{}, {.warm_up = 0, .runs = 4, .most_rounds = 2, .steady = 0.01});
  CHECK(times.step_ms == doctest::Approx(85));
  CHECK(tessera::detail::relative_spread({1, 2, 3}) == 0);
  CHECK(tessera::detail::relative_spread({9, 1, 2, 3}) == doctest::Approx(1.0 / 3));
}

TEST_CASE("compute_bench: a flush writes each line") {
  tessera_tests::serial_host host;
  std::vector<float> floats(2 * 16 + 3, 1.0F);
  tessera::detail::back_end<tessera::detail::compute_bench_tag, tessera::host_exec>::touch_lines(host.exec(), floats);
  for (std::size_t i = 0; i < floats.size(); ++i) CHECK(floats[i] == (i % 16 == 0 ? -1.0F : 1.0F));
}

TEST_CASE("compute_bench: no weight changes") {
  tessera_tests::serial_host host;
  compute_bench bench(host.exec(), 1 << 12, 64);
  fake_clock clock;
  std::vector<measured_table> const tables{{4, 8, ids, lengths}, {4, 3, ids, lengths}};
  bench.measure(host.exec(), clock, tables, tessera::sgd{});
  for (auto const weight : bench.arena()) CHECK(weight == 1);
}

TEST_CASE("compute_bench: any tables that fit run, one after the other, and the machine's time is not negative") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  compute_bench bench(host.exec(), 1 << 16, 1 << 12);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<std::vector<std::int64_t>> drawn, cut;
    std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
    for (auto n = std::uniform_int_distribution<int>(1, 6)(random); n > 0; --n) {
      shapes.emplace_back(std::uniform_int_distribution<std::int64_t>(1, 30)(random),
                          std::uniform_int_distribution<std::int64_t>(1, 20)(random));
      cut.push_back(tessera_tests::random_lengths(random, 9, 2));
      std::int64_t total = 0;
      for (auto const length : cut.back()) total += length;
      drawn.push_back(tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(total), 0, shapes.back().first - 1));
    }
    std::vector<measured_table> tables;
    for (std::size_t t = 0; t < shapes.size(); ++t) tables.push_back({shapes[t].first, shapes[t].second, drawn[t], cut[t]});
    tessera::machine_clock clock;
    auto const check = [&](auto const& optimizer) {
      auto const times = bench.measure(host.exec(), clock, tables, optimizer, {.warm_up = 0, .runs = 2});
      CHECK(times.forward_ms >= 0);
      CHECK(times.backward_ms >= 0);
      CHECK(times.step_ms >= times.forward_ms);
      CHECK(compute_bench<>::bytes_for(tables, optimizer) <= 1 << 16);
    };
    if (repeat % 2 == 0)
      check(tessera::adam{});
    else
      check(tessera::sgd{});
  }
}

TEST_CASE("compute_bench: an arena that is exactly large enough, and one that is a float too small") {
  tessera_tests::serial_host host;
  std::vector<measured_table> const tables{{4, 16, ids, lengths}, {4, 32, ids, lengths}};
  auto const bytes = compute_bench<>::bytes_for(tables, tessera::rowwise_adagrad{});
  CHECK(bytes == 4 * (4 * 16 + 16 + 4 * 32 + 16));  // states fill a line of the cache
  fake_clock clock;
  compute_bench enough(host.exec(), bytes, 64);
  enough.measure(host.exec(), clock, tables, tessera::rowwise_adagrad{});
  compute_bench small(host.exec(), bytes - 4, 64);
  try {
    small.measure(host.exec(), clock, tables, tessera::rowwise_adagrad{});
    FAIL_CHECK("accepted");
  } catch (tessera::error const& e) {
    CHECK(e.code() == errc::out_of_memory);
    CHECK(std::string(e.what()) == "compute_bench: the arena has no room for a table (table 1, rows 4, dim 32, bytes 576, free 572)");
  }
}

TEST_CASE("compute_bench: bad input is named") {
  tessera_tests::serial_host host;
  compute_bench bench(host.exec(), 1 << 12, 64);
  fake_clock clock;
  auto const refused = [&](measured_table const& table, tessera::repetition const& repeat, char const* what, std::string const& value) {
    try {
      bench.measure(host.exec(), clock, std::vector<measured_table>{table}, tessera::sgd{}, repeat);
      FAIL_CHECK("accepted");
    } catch (tessera::error const& e) {
      CHECK(e.value(what) == value);
    }
  };
  refused({3, 4, ids, lengths}, {}, "id", "3");
  refused({4, 0, ids, lengths}, {}, "dim", "0");
  refused({-1, 4, ids, lengths}, {}, "rows", "-1");
  std::vector<std::int64_t> const short_lengths{2, 3};
  refused({4, 4, ids, short_lengths}, {}, "lengths", "5");
  refused({4, 4, ids, lengths}, {.warm_up = -1}, "warm_up", "-1");
  refused({4, 4, ids, lengths}, {.most_rounds = 0}, "most_rounds", "0");
  refused({4, 4, ids, lengths}, {.steady = -1}, "steady", "-1");
  CHECK_THROWS_AS(compute_bench(host.exec(), -1), tessera::error);
}

TEST_CASE("largest_cache: of those that Linux lists for a processor") {
  tessera_tests::temporary_folder folder;
  auto const largest = [&] { return tessera::detail::largest_cache(folder.path()); };
  CHECK(largest() == 0);
  std::int64_t index = 0;
  for (auto const* size : {"48K", "2M", "32768K", "512K"}) {
    auto const cache = folder.file("index" + std::to_string(index++));
    std::filesystem::create_directory(cache);
    tessera_tests::write_file(cache + "/size", size + std::string("\n"));
  }
  CHECK(largest() == std::int64_t{32} << 20);
}

TEST_CASE("cache_flush: larger than the caches, and each line is written") {
  tessera_tests::serial_host host;
  CHECK(tessera::last_cache_bytes() > 0);
  CHECK(tessera::detail::flush_bytes(host.exec()) == 2 * tessera::last_cache_bytes());
  tessera::thread_pool threads(2);
  tessera::system_memory memory;
  auto const of_all = tessera::detail::flush_bytes(tessera::host_exec(threads, memory));
  CHECK(of_all == 2 * std::max(tessera::last_cache_bytes(), tessera::detail::system_cache_bytes()));
  tessera::cache_flush flush(host.exec(), 1 << 12);
  CHECK(flush.bytes() >= 1 << 12);
  flush(host.exec());
}

}  // namespace measure_compute_test
