// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../../bench/memory_ceilings.hpp"
#include "../../bench/row_ceilings.hpp"

// A loop that leaves something out is faster than the machine.

namespace {

namespace loops = tessera_bench::detail;

struct count_visits {
  void operator()(float* row, std::int64_t) { *row += 1; }
  void finish() {}
};

TEST_CASE("every loop over rows visits each row once") {
  for (std::int64_t const count : {1, 3, 64, 101}) {
    std::vector<float> visits(static_cast<std::size_t>(count));
    std::vector<float*> rows;
    for (auto& v : visits) rows.push_back(&v);
    float expected = 0;
    for (auto const& [loop, distance] : loops::row_loops<count_visits>()) {
      loop(rows.data(), 1, 0, count, distance);
      ++expected;
      for (auto const v : visits) CHECK(v == expected);
    }
    CHECK(expected > 30);
  }
}

TEST_CASE("one float of each line of a row is changed and read, and the last of a row that is no whole number of lines") {
  for (std::int64_t const dim : {1, 16, 17, 100, 128}) {
    std::vector<float> row(static_cast<std::size_t>(dim));
    loops::change_lines{}(row.data(), dim);
    for (std::int64_t c = 0; c < dim; ++c) {
      bool const starts_line = c % 16 == 0, ends_row = dim % 16 != 0 && c == dim - 1;
      CHECK((row[static_cast<std::size_t>(c)] > 0) == (starts_line || ends_row));
    }
    loops::read_lines read;
    read(row.data(), dim);
    float sum = 0;
    for (auto const r : row) sum += r;
    CHECK((read.sums[0] + read.sums[1]) + (read.sums[2] + read.sums[3]) >= doctest::Approx(sum));
  }
}

TEST_CASE("streams and pieces cover a range once") {
  tessera::thread_pool threads(2);
  tessera::system_memory memory;
  tessera::host_exec const exec(threads, memory);
  for (std::int64_t const count : {0, 5, 64, 1003}) {
    std::vector<std::atomic<int>> lines(static_cast<std::size_t>(count));
    auto const visit = [&](std::int64_t l) { ++lines[static_cast<std::size_t>(l)]; };
    loops::in_streams<1>(0, count, visit);
    loops::in_streams<8>(0, count, visit);
    for (int const team : {1, 2})
      loops::in_pieces(exec, team, 0, count, [&](std::int64_t first, std::int64_t last) {
        for (auto l = first; l < last; ++l) visit(l);
      });
    for (auto const& visits : lines) CHECK(visits == 4);
  }
}

TEST_CASE("a loop by quarters has done all after four trials, and tells its rate") {
  tessera::serial_team alone;
  tessera::system_memory memory;
  tessera::host_exec const exec(alone, memory);
  std::vector<int> visits(103);
  auto loop = loops::by_quarters(exec, 103, 1e6, [&](std::int64_t first, std::int64_t last) {
    for (auto i = first; i < last; ++i) ++visits[static_cast<std::size_t>(i)];
  });
  for (int trial = 0; trial < 4; ++trial) CHECK(loop(1) > 0);
  for (auto const v : visits) CHECK(v == 1);
}

TEST_CASE("lines arrive as they were, by plain and by streaming stores") {
  alignas(64) char from[64], to[64] = {};
  for (int i = 0; i < 64; ++i) from[i] = static_cast<char>(i);
  loops::move_line<loops::stores::streaming>(to, from);
  loops::finish_stores();
  CHECK(std::memcmp(from, to, sizeof to) == 0);
  std::memset(to, 0, sizeof to);
  loops::move_line<loops::stores::plain>(to, from);
  CHECK(std::memcmp(from, to, sizeof to) == 0);
}

}  // namespace
