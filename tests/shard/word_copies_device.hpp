// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <device_arrays.hpp>
#include <random.hpp>

#include <tessera/shard/word_copies.cuh>

/// Many pieces in one launch are what a loop over each makes of them, and nothing else is touched.
namespace shard_tests {

template <class Exec>
void word_copies_suite(Exec const& exec) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const up_to = [&](std::uint64_t most) { return static_cast<std::int64_t>(random() % (most + 1)); };
  for (int round = 0; round < 20; ++round) {
    std::vector<float> from(4000), to(9000, -1);
    for (auto& x : from) x = static_cast<float>(random() % 1000);
    auto const there = tessera_tests::put(exec, from);
    auto result = tessera_tests::put(exec, to);
    tessera::detail::word_copies copies;
    std::int64_t at = 0;
    auto const number = round == 0 ? 0 : 1 + up_to(6);
    for (std::int64_t i = 0; i < number; ++i) {
      auto const rows = up_to(12), columns = 1 + up_to(20), from_stride = columns + up_to(5), to_stride = columns + up_to(5);
      auto const first = up_to(3000);
      at += up_to(7);
      if (i % 3 == 2) {  // no rows: values, some of them ones
        bool const ones = i % 2 == 0;
        copies.add<float>(ones ? nullptr : there.data() + first, result.data() + at, rows * columns);
        for (std::int64_t k = 0; k < rows * columns; ++k)
          to[static_cast<std::size_t>(at + k)] = ones ? 1.0F : from[static_cast<std::size_t>(first + k)];
        at += rows * columns;
        continue;
      }
      copies.add({there.data() + first, rows, columns, from_stride}, {result.data() + at, rows, columns, to_stride});
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c)
          to[static_cast<std::size_t>(at + r * to_stride + c)] = from[static_cast<std::size_t>(first + r * from_stride + c)];
      at += rows * to_stride;
    }
    copies.launch(exec);
    CHECK(tessera_tests::get(exec, result) == to);
  }
  // A piece of many tiles.
  std::vector<std::int64_t> ids(30'000);
  for (auto& id : ids) id = static_cast<std::int64_t>(random() >> 1);
  auto const there = tessera_tests::put(exec, ids);
  tessera::buffer<std::int64_t, Exec> copied(exec, static_cast<std::int64_t>(ids.size()));
  tessera::detail::word_copies copies;
  copies.add(there.data(), copied.data(), 1);
  copies.add(there.data() + 1, copied.data() + 1, copied.size() - 1);
  copies.launch(exec);
  CHECK(tessera_tests::get(exec, copied) == ids);
}

/// Offsets become ends of rows and offsets again.
template <class Exec>
void ends_of_rows_suite(Exec const& exec) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> offsets{13};
  for (int row = 0; row < 5000; ++row) offsets.push_back(offsets.back() + static_cast<std::int64_t>(random() % 4));
  auto const there = tessera_tests::put(exec, offsets);
  // Blocks of rows that follow each other, to places that do.
  tessera::buffer<std::uint32_t, Exec> ends(exec, 5000);
  tessera::buffer<std::int64_t, Exec> again(exec, 5000);
  tessera::detail::ends_to_write write;
  tessera::detail::ends_to_read read;
  std::vector<std::uint32_t> expected_ends;
  for (std::int64_t first = 0; first < 5000;) {
    auto const rows = std::min<std::int64_t>(5000 - first, static_cast<std::int64_t>(random() % 900));
    write.add(rows, {there.data() + first, ends.data() + first});
    auto const base = offsets[static_cast<std::size_t>(first)];
    read.add(rows, {ends.data() + first, base, again.data() + first});
    for (auto row = first; row < first + rows; ++row)
      expected_ends.push_back(static_cast<std::uint32_t>(offsets[static_cast<std::size_t>(row) + 1] - base));
    first += rows;
  }
  write.launch(exec);
  read.launch(exec);
  CHECK(tessera_tests::get(exec, ends) == expected_ends);
  CHECK(tessera_tests::get(exec, again) == std::vector<std::int64_t>(offsets.begin() + 1, offsets.end()));
}

}  // namespace shard_tests
