// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/plan/measure_compute.cuh>

#include "slowing_clock.hpp"

namespace measure_compute_device {

template <class Exec>
std::vector<float> arena_of(Exec const& exec, tessera::compute_bench<Exec> const& bench) {
  std::vector<float> floats(static_cast<std::size_t>(bench.arena().size()));
  exec.copy_out(floats.data(), bench.arena().data(), floats.size() * sizeof(float));
  return floats;
}

/// Steps run in the device's memory, change no weight, and are timed apart; states begin anew.
template <class Exec>
void measures_steps(Exec const& exec) {
  std::vector<std::int64_t> const ids{0, 3, 3, 1, 2, 3, 0}, lengths{2, 0, 4, 1};
  std::vector<tessera::measured_table> const tables{{4, 8, ids, lengths}, {4, 3, ids, lengths}, {5, 4, {}, {}}};
  tessera::compute_bench bench(exec, 1 << 12, 1 << 10);
  tessera_tests::slowing_clock clock;
  auto const times = bench.measure(exec, clock, tables, tessera::sgd{}, {.warm_up = 1, .runs = 3});
  // Three reads a run: of the three that count, the second's forward ends with read 8, its backward with read 9.
  CHECK(clock.reads == 12);
  CHECK(times.forward_ms == doctest::Approx(8));
  CHECK(times.backward_ms == doctest::Approx(9));
  CHECK(times.step_ms == doctest::Approx(17));
  for (auto const weight : arena_of(exec, bench)) CHECK(weight == 1);
  auto const optimizer = tessera::adagrad{.learning_rate = 0.1F, .initial_state = 0.25F};
  bench.measure(exec, clock, tables, optimizer, {.warm_up = 0, .runs = 1});
  std::int64_t states = 0;
  for (auto const found : arena_of(exec, bench)) {
    CHECK((found == 1 || found == 0.25F));
    states += found == 0.25F;
  }
  CHECK(states == 4 * 8 + 4 * 3 + 5 * 4);
  CHECK(bench.measure(exec, clock, {}, optimizer) == tessera::compute_times{});
}

/// A flush writes the first float of each line, and no other.
template <class Exec>
void touches_each_line(Exec const& exec) {
  std::vector<float> floats(2 * 16 + 3, 1.0F);
  auto there = tessera::to_device(exec, floats);
  tessera::detail::back_end<tessera::detail::compute_bench_tag, Exec>::touch_lines(exec, there.view());
  exec.copy_out(floats.data(), there.data(), floats.size() * sizeof(float));
  for (std::size_t i = 0; i < floats.size(); ++i) CHECK(floats[i] == (i % 16 == 0 ? -1.0F : 1.0F));
}

/// What cannot be is refused before or when the device is awaited; then the bench measures on.
template <class Exec>
void names_bad_input(Exec const& exec) {
  std::vector<std::int64_t> const ids{0, 3, 7, 1}, lengths{2, 2}, one{3};
  tessera::compute_bench bench(exec, 1 << 10, 1 << 10);
  tessera_tests::slowing_clock clock;
  auto const refused = [&](tessera::measured_table const& table, tessera::errc code, char const* what, std::string const& value) {
    try {
      bench.measure(exec, clock, std::vector{table}, tessera::sgd{}, {.warm_up = 0, .runs = 1});
      FAIL_CHECK("accepted");
    } catch (tessera::error const& e) {
      CHECK(e.code() == code);
      CHECK(e.value(what) == value);
    }
  };
  refused({7, 4, ids, lengths}, tessera::errc::out_of_range, "id", "7");
  refused({8, 4, ids, one}, tessera::errc::shape_mismatch, "lengths", "3");
  refused({8, 64, ids, lengths}, tessera::errc::out_of_memory, "bytes", "2048");
  CHECK(bench.measure(exec, clock, std::vector<tessera::measured_table>{{8, 4, ids, lengths}}, tessera::sgd{}).step_ms > 0);
}

}  // namespace measure_compute_device
