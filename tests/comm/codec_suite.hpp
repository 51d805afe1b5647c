// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <tessera/comm/codec.hpp>

#include "codec_bound.hpp"
#include "hosts.hpp"
#include "random.hpp"

namespace tessera_tests {

using wire_bytes = std::vector<std::byte>;

/// Rows of floats in one vector; what stands between them is 7777.
struct wire_rows {
  std::int64_t rows, width, stride;
  std::vector<float> values;

  wire_rows(std::int64_t rows, std::int64_t width, std::int64_t stride)
      : rows(rows), width(width), stride(stride), values(static_cast<std::size_t>(rows * stride), 7777.0F) {}
  /// One row.
  explicit wire_rows(std::vector<float> const& row) : rows(1), width(static_cast<std::int64_t>(row.size())), stride(width), values(row) {}

  float& at(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * stride + c)]; }
  float at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * stride + c)]; }
  tessera::matrix_view<float> view(float* data) const { return {data, rows, width, stride}; }
  std::int64_t bytes(tessera::codec with) const { return tessera::encoded_bytes(with, rows, width); }
};

/// On the caller's threads.
template <class Host>
struct codec_host {
  Host host;

  wire_bytes encode(tessera::codec with, wire_rows const& from) {
    wire_bytes out(static_cast<std::size_t>(from.bytes(with)), std::byte{0xCC});
    tessera::encode(host.exec(), with, {from.values.data(), from.rows, from.width, from.stride}, out);
    return out;
  }
  /// Into rows of this shape; `adds`: to what they are.
  wire_rows decode(tessera::codec with, wire_bytes const& in, wire_rows to, bool adds = false) {
    if (adds)
      tessera::decode_add(host.exec(), with, in, to.view(to.values.data()));
    else
      tessera::decode(host.exec(), with, in, to.view(to.values.data()));
    return to;
  }
};

enum class drawn { normal, any_magnitude, huge, tiny };

/// Rows of any finite floats: standard normal ones, magnitudes of all kinds side by side, those next to the largest, or subnormal.
inline wire_rows random_wire_rows(std::mt19937_64& random, std::int64_t rows, std::int64_t width, std::int64_t stride, drawn kind) {
  wire_rows result(rows, width, stride);
  std::normal_distribution<float> normal;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c) {
      auto const bits = static_cast<std::uint32_t>(random());
      auto const sign = bits & 0x80000000;
      auto of = std::bit_cast<std::uint32_t>(normal(random)) & 0x7FFFFFFF;
      if (kind == drawn::any_magnitude) of = bits % 0x7F800000;
      if (kind == drawn::huge) of = 0x7F7FFFFF - (bits % 8 == 0 ? 0 : bits % 0x1000000);
      if (kind == drawn::tiny) of = bits % 0x01000000 >> bits % 24;
      result.at(r, c) = std::bit_cast<float>(sign | of);
    }
  return result;
}

/// The first element that is off by more than the contract allows, as text; empty where there is none.
inline std::string out_of_bounds(tessera::codec with, wire_rows const& from, wire_rows const& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    double largest = 0;
    for (std::int64_t c = 0; c < from.width; ++c) largest = std::max(largest, std::fabs(double{from.at(r, c)}));
    for (std::int64_t c = 0; c < from.width; ++c) {
      double const x = from.at(r, c), y = to.at(r, c);
      if (!std::isfinite(y) || std::fabs(y - x) > codec_bound(with, x, largest))
        return "row " + std::to_string(r) + " of largest " + std::to_string(std::bit_cast<std::uint32_t>(static_cast<float>(largest))) +
               ": element of bits " + std::to_string(std::bit_cast<std::uint32_t>(from.at(r, c))) + " became " +
               std::to_string(std::bit_cast<std::uint32_t>(to.at(r, c)));
    }
    for (auto c = to.width; c < to.stride; ++c)
      if (to.at(r, c) != 7777.0F) return "row " + std::to_string(r) + ": something was written between the rows";
  }
  return {};
}

/// The bits of all floats, which compare where floats are NaN.
inline std::vector<std::uint32_t> bits_of(wire_rows const& rows) {
  std::vector<std::uint32_t> bits;
  for (float const value : rows.values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

/// What every execution must show. `widths`: those of random rows.
template <class Harness>
void codec_suite(Harness& harness, std::vector<std::int64_t> const& widths) {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const of_row = [&](tessera::codec with, std::vector<float> const& row) {
    wire_rows const from(row);
    return harness.decode(with, harness.encode(with, from), from).values;
  };
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN(),
                  most = std::numeric_limits<float>::max(), least = std::numeric_limits<float>::denorm_min();

  SUBCASE("by hand: rows of known bytes") {
    auto const encoded = [&](tessera::codec with, std::vector<float> const& row) {
      auto const bytes = harness.encode(with, wire_rows(row));
      std::vector<int> numbers;
      for (auto const b : bytes) numbers.push_back(std::to_integer<int>(b));
      return numbers;
    };
    CHECK(encoded(tessera::codec::fp32, {1.0F, -2.0F}) == std::vector{0, 0, 128, 63, 0, 0, 0, 192});
    CHECK(encoded(tessera::codec::fp16, {1.0F, -2.0F, 0.5F}) == std::vector{0, 60, 0, 192, 0, 56, 0, 0});
    CHECK(encoded(tessera::codec::bf16, {1.0F, -2.0F, 0.5F}) == std::vector{128, 63, 0, 192, 0, 63, 0, 0});
    // 448 is the largest e4m3, 57344 the largest e5m2: a scale of 1, and one of 2 for a bit more.
    CHECK(encoded(tessera::codec::fp8_e4m3, {448.0F, -1.0F, 0.0F}) == std::vector{0, 0, 128, 63, 0x7E, 0xB8, 0, 0});
    CHECK(encoded(tessera::codec::fp8_e4m3, {449.0F, -2.0F}) == std::vector{0, 0, 0, 64, 0x76, 0xB8, 0, 0});
    CHECK(encoded(tessera::codec::fp8_e5m2, {57344.0F, -1.0F}) == std::vector{0, 0, 128, 63, 0x7B, 0xBC, 0, 0});
    auto const steps = encoded(tessera::codec::int8, {127.0F, -1.0F, 63.6F, 0.4F, -127.0F});
    CHECK(std::vector(steps.begin() + 4, steps.end()) == std::vector{127, 255, 64, 0, 129, 0, 0, 0});
  }
  SUBCASE("random rows of every width stay within the bounds, whatever the stride") {
    for (auto const with : tessera::all_codecs)
      for (auto const kind : {drawn::normal, drawn::any_magnitude, drawn::huge, drawn::tiny})
        for (auto const width : widths) {
          auto const codec = tessera::name(with);
          auto const rows = std::int64_t{width > 300 ? 3 : 40}, stride = width + static_cast<std::int64_t>(random() % 3);
          CAPTURE(codec);
          CAPTURE(static_cast<int>(kind));
          CAPTURE(width);
          CAPTURE(stride);
          auto const from = random_wire_rows(random, rows, width, stride, kind);
          auto const bytes = harness.encode(with, from);
          auto const to = harness.decode(with, bytes, wire_rows(rows, width, width + 5));
          REQUIRE(out_of_bounds(with, from, to) == "");

          // Each row stands for itself, wherever it was.
          auto const each = tessera::encoded_bytes(with, 1, width);
          auto const r = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows));
          wire_rows one(1, width, width);
          for (std::int64_t c = 0; c < width; ++c) one.at(0, c) = from.at(r, c);
          REQUIRE(harness.encode(with, one) == wire_bytes(bytes.begin() + r * each, bytes.begin() + (r + 1) * each));

          // What goes on to a third process loses nothing more.
          if (with != tessera::codec::int8) REQUIRE(harness.decode(with, harness.encode(with, to), to).values == to.values);

          auto sums = random_wire_rows(random, rows, width, stride, drawn::normal), expected = sums;
          for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t c = 0; c < width; ++c) expected.at(i, c) += to.at(i, c);
          REQUIRE(harness.decode(with, bytes, sums, true).values == expected.values);
        }
  }
  SUBCASE("no float is too large, too small or too near to a bound of a format") {
    std::vector<float> const edges{
        0.0F,      -0.0F,      least,      -least,     0x1p-149F,  0x1.FFFFFCp-127F, 0x1p-126F,   0x1p-125F,   0x1p-118F,
        0x1p-117F, 0x1p-25F,   0x1p-24F,   0x1p-14F,   1.0F,       1 + 0x1p-23F,     448.0F,      464.0F,      480.0F,
        57344.0F,  61440.0F,   65504.0F,   65519.0F,   65520.0F,   65536.0F,         0x1p119F,    0x1p120F,    0x1p121F,
        0x1p127F,  0x1.Cp127F, 0x1.Dp127F, 0x1.Ep127F, 0x1.Fp127F, 0x1.FCp127F,      0x1.FEp127F, 0x1.FFp127F, most};
    std::vector<float> all;
    for (float const a : edges)
      for (float const b : edges)
        for (float const x : {a, std::nextafter(a, most), std::nextafter(a, -most)})
          if (std::isfinite(x)) all.insert(all.end(), {x, b, -x, 1.0F});
    wire_rows from(static_cast<std::int64_t>(all.size()) / 4, 4, 4);
    from.values = all;
    for (auto const with : tessera::all_codecs)
      CHECK(out_of_bounds(with, from, harness.decode(with, harness.encode(with, from), from)) == "");
  }
  SUBCASE("zeros are exact") {
    for (auto const with : tessera::all_codecs) {
      auto const zeros = of_row(with, {0.0F, -0.0F, 0.0F});
      CHECK(zeros == std::vector<float>(3, 0.0F));
      CHECK(std::signbit(zeros[1]) == (with != tessera::codec::int8));
    }
  }
  SUBCASE("infinities and NaN stay visible") {
    for (auto const with : {tessera::codec::fp32, tessera::codec::fp16, tessera::codec::bf16, tessera::codec::fp8_e5m2}) {
      auto const row = of_row(with, {1.0F, inf, nan, -inf, -0.5F});
      CHECK(std::vector{row[0], row[1], row[3], row[4]} == std::vector{1.0F, inf, -inf, -0.5F});
      CHECK(std::isnan(row[2]));
    }
    auto const row = of_row(tessera::codec::fp8_e4m3, {1.0F, inf, nan, -inf, -0.5F});
    CHECK(std::vector{row[0], row[4]} == std::vector{1.0F, -0.5F});
    CHECK((std::isnan(row[1]) && std::isnan(row[2]) && std::isnan(row[3])));
    for (float const bad : {inf, -inf, nan}) {
      wire_rows from(3, 4, 4);
      std::fill(from.values.begin(), from.values.end(), 2.0F);
      from.at(1, 2) = bad;
      auto const to = harness.decode(tessera::codec::int8, harness.encode(tessera::codec::int8, from), from);
      for (std::int64_t c = 0; c < 4; ++c) {
        CHECK(std::isnan(to.at(1, c)));
        CHECK(to.at(0, c) == doctest::Approx(2.0F).epsilon(1e-4));
        CHECK(to.at(2, c) == doctest::Approx(2.0F).epsilon(1e-4));
      }
    }
    // A payload is that of any NaN.
    std::vector<float> const nans{std::bit_cast<float>(0x7FC12345), std::bit_cast<float>(0xFFC00001)};
    CHECK(bits_of(wire_rows(of_row(tessera::codec::fp32, nans))) == bits_of(wire_rows(nans)));
  }
  SUBCASE("nothing to send") {
    for (auto const with : tessera::all_codecs)
      for (auto const& none : {wire_rows(0, 5, 5), wire_rows(4, 0, 0), wire_rows(4, 0, 3)}) {
        CHECK(harness.encode(with, none).empty());
        CHECK(harness.decode(with, {}, none).values == none.values);
      }
  }
}

}  // namespace tessera_tests
