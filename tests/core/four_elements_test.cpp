// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/core/four_elements.hpp>
#include <tessera/core/row_formats.hpp>

using tessera::detail::four_elements;
using tessera::detail::lanes_for;
using tessera::detail::moves_by_four;
using tessera::detail::read_four;
using tessera::detail::write_four;

namespace {

/// Elements without pattern or zeros, in memory of exactly their size.
template <class T>
std::vector<T> elements(std::int64_t count, int first) {
  std::vector<T> values(static_cast<std::size_t>(count));
  auto* const bytes = reinterpret_cast<unsigned char*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(T); ++i) bytes[i] = static_cast<unsigned char>((first + static_cast<int>(i)) % 61 + 1);
  return values;
}

constexpr bool lanes_are_right(std::int64_t columns) {
  auto const lanes = lanes_for(columns);
  bool const power_of_two = lanes >= 1 && lanes <= 32 && (lanes & (lanes - 1)) == 0;
  bool const enough = lanes == 32 || 4 * lanes >= columns;
  bool const no_more = lanes == 1 || 2 * lanes < columns;
  return power_of_two && enough && no_more;
}

}  // namespace

static_assert(sizeof(four_elements<float>) == 16 && alignof(four_elements<float>) == 16);
static_assert(sizeof(four_elements<tessera::float16>) == 8 && alignof(four_elements<tessera::float16>) == 8);
static_assert(sizeof(four_elements<std::uint8_t>) == 4 && alignof(four_elements<std::uint8_t>) == 4);

TEST_CASE("lanes that share a row: a power of two, as few as cover it, at most 32") {
  static_assert(lanes_for(1) == 1 && lanes_for(4) == 1 && lanes_for(5) == 2 && lanes_for(64) == 16 && lanes_for(65) == 32);
  for (std::int64_t columns = 0; columns <= 300; ++columns) {
    CAPTURE(columns);
    CHECK(lanes_are_right(columns));
  }
  CHECK(lanes_for(std::int64_t{1} << 40) == 32);
}

TEST_CASE_TEMPLATE("rows move by four where columns, stride and memory allow it", T, float, tessera::float16, std::uint8_t) {
  alignas(4 * sizeof(T)) T const rows[8] = {};
  CHECK(moves_by_four(rows, 8, 8));
  CHECK(moves_by_four(rows, 8, 12));
  CHECK(moves_by_four(rows + 4, 4, 8));
  for (std::int64_t const odd : {1, 2, 3}) {
    CAPTURE(odd);
    CHECK_FALSE(moves_by_four(rows, 4 + odd, 12));
    CHECK_FALSE(moves_by_four(rows, 8, 8 + odd));
    CHECK_FALSE(moves_by_four(rows + odd, 8, 8));
  }
}

TEST_CASE_TEMPLATE("four elements are read, or as many as there are and zeros", T, float, tessera::float16, std::uint8_t) {
  T const zero{};
  for (std::int64_t const offset : {0, 1})
    for (std::int64_t const count : {0, 1, 2, 3, 4, 9}) {
      CAPTURE(offset);
      CAPTURE(count);
      auto const row = elements<T>(offset + count, 3);
      for (bool const at_once : {false, true}) {
        if (at_once && (offset != 0 || count < 4)) continue;
        auto const four = read_four(row.data() + offset, count, at_once);
        for (int i = 0; i < 4; ++i)
          CHECK(std::memcmp(&four[i], i < count ? &row[static_cast<std::size_t>(offset + i)] : &zero, sizeof(T)) == 0);
      }
    }
}

TEST_CASE_TEMPLATE("four elements are written, or as many as there is room for", T, float, tessera::float16, std::uint8_t) {
  auto const values = elements<T>(4, 40);
  four_elements<T> const four{{values[0], values[1], values[2], values[3]}};
  for (std::int64_t const offset : {4, 5})
    for (std::int64_t const count : {0, 1, 2, 3, 4, 9})
      for (bool const at_once : {false, true}) {
        if (at_once && (offset != 4 || count < 4)) continue;
        CAPTURE(offset);
        CAPTURE(count);
        CAPTURE(at_once);
        auto row = elements<T>(16, 3), expected = row;
        for (std::int64_t i = 0; i < 4 && i < count; ++i)
          expected[static_cast<std::size_t>(offset + i)] = values[static_cast<std::size_t>(i)];
        write_four(row.data() + offset, four, count, at_once);
        CHECK(std::memcmp(row.data(), expected.data(), row.size() * sizeof(T)) == 0);
        auto exactly = elements<T>(offset + (count < 4 ? count : 4), 3);  // nothing behind it to write to
        write_four(exactly.data() + offset, four, count, at_once);
        CHECK(std::memcmp(exactly.data(), expected.data(), exactly.size() * sizeof(T)) == 0);
      }
}
