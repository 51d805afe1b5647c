// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <tessera/comm/error_feedback.hpp>

#include "codec_suite.hpp"

namespace tessera_tests {

/// One sender on the caller's threads.
template <class Host>
struct feedback_host : codec_host<Host> {
  wire_bytes send(tessera::codec with, wire_rows const& values, wire_rows& residual) {
    wire_bytes out(static_cast<std::size_t>(values.bytes(with)), std::byte{0xCC});
    tessera::encode_with_feedback(this->host.exec(), with, {values.values.data(), values.rows, values.width, values.stride},
                                  residual.view(residual.values.data()), out);
    return out;
  }
};

inline wire_rows wire_zeros(std::int64_t rows, std::int64_t width, std::int64_t stride) {
  wire_rows result(rows, width, stride);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c) result.at(r, c) = 0;
  return result;
}

/// What every execution must show.
template <class Harness>
void error_feedback_suite(Harness& harness, int steps) {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN(),
                  most = std::numeric_limits<float>::max();

  SUBCASE("over many steps all that came in goes out, but for the error of one step") {
    for (auto const with : tessera::all_codecs)
      for (auto const& shape : {std::array<std::int64_t, 3>{5, 12, 12}, {3, 33, 40}, {1, 130, 130}}) {
        auto const rows = shape[0], width = shape[1], stride = shape[2];
        auto const codec = tessera::name(with);
        CAPTURE(codec);
        CAPTURE(width);
        auto residual = wire_zeros(rows, width, stride + width % 2);
        auto const size = static_cast<std::size_t>(rows * width);
        std::vector<double> came(size), sent(size), rounding(size);
        for (int step = 0; step < steps; ++step) {
          auto const values = random_wire_rows(random, rows, width, stride, drawn::normal);
          auto sums = values;
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < width; ++c) sums.at(r, c) += residual.at(r, c);
          auto const bytes = harness.send(with, values, residual);
          REQUIRE(bytes == harness.encode(with, sums));
          auto const read = harness.decode(with, bytes, wire_rows(rows, width, width));
          for (std::int64_t r = 0; r < rows; ++r) {
            double largest = 0;
            for (std::int64_t c = 0; c < width; ++c) largest = std::max(largest, std::fabs(double{sums.at(r, c)}));
            for (std::int64_t c = 0; c < width; ++c) {
              auto const i = static_cast<std::size_t>(r * width + c);
              came[i] += values.at(r, c);
              sent[i] += read.at(r, c);
              rounding[i] += 0x1p-23 * std::fabs(double{sums.at(r, c)});
              REQUIRE(residual.at(r, c) == sums.at(r, c) - read.at(r, c));
              REQUIRE(std::fabs(came[i] - sent[i]) <= codec_bound(with, sums.at(r, c), largest) + rounding[i]);
            }
          }
        }
        for (std::int64_t r = 0; r < rows; ++r)
          for (auto c = width; c < residual.stride; ++c) REQUIRE(residual.at(r, c) == 7777.0F);
      }
  }
  SUBCASE("a value that the codec alone loses each time arrives") {
    for (auto const with : {tessera::codec::int8, tessera::codec::fp8_e4m3}) {
      float const small = with == tessera::codec::int8 ? 0.001F : 0x1p-19F;
      wire_rows const values(std::vector<float>{1.0F, small});
      REQUIRE(harness.decode(with, harness.encode(with, values), values).at(0, 1) == 0);
      auto residual = wire_zeros(1, 2, 2);
      double sent = 0;
      for (int step = 0; step < steps; ++step) sent += harness.decode(with, harness.send(with, values, residual), values).at(0, 1);
      CHECK(sent > 0.5 * steps * double{small});
      CHECK(sent + double{residual.at(0, 1)} == doctest::Approx(steps * double{small}).epsilon(1e-4));
    }
  }
  SUBCASE("infinities and NaN are sent, and leave nothing behind") {
    for (auto const with : tessera::all_codecs)
      for (float const bad : {inf, -inf, nan}) {
        auto const codec = tessera::name(with);
        CAPTURE(codec);
        wire_rows values(2, 3, 3), residual(2, 3, 3);
        values.values = {1.0F, bad, 0.3F, 0.1F, 0.2F, 0.7F};
        std::fill(residual.values.begin(), residual.values.end(), 0.001F);
        auto const read = harness.decode(with, harness.send(with, values, residual), values);
        CHECK(!std::isfinite(read.at(0, 1)));
        CHECK(residual.at(0, 1) == 0);
        for (float const left : residual.values) CHECK(std::isfinite(left));
        for (std::int64_t const c : {0, 2}) {
          bool const is_lost = with == tessera::codec::int8;
          CHECK(std::isnan(read.at(0, c)) == is_lost);
          if (is_lost) CHECK(residual.at(0, c) == 0);
        }
        for (std::int64_t c = 0; c < 3; ++c) CHECK(std::isfinite(read.at(1, c)));
        values.values = {1.0F, 0.5F, 0.3F, 0.1F, 0.2F, 0.7F};
        for (float const value : harness.decode(with, harness.send(with, values, residual), values).values) CHECK(std::isfinite(value));

        residual.values = {inf, nan, -inf, 0, 0, 0};
        CHECK(harness.send(with, values, residual) == harness.encode(with, values));
        for (float const left : residual.values) CHECK(std::isfinite(left));
      }
  }
  SUBCASE("finite stays finite, whatever is left") {
    for (auto const with : tessera::all_codecs) {
      wire_rows const values(std::vector<float>{most, -most, 0x1.8p127F, 1.0F});
      auto residual = wire_zeros(1, 4, 4);
      for (int step = 0; step < 5; ++step) {
        for (float const value : harness.decode(with, harness.send(with, values, residual), values).values) CHECK(std::isfinite(value));
        for (float const left : residual.values) CHECK(std::isfinite(left));
      }
    }
    // What fp16 cannot send stays.
    wire_rows const large(std::vector<float>{100'000.0F});
    auto residual = wire_zeros(1, 1, 1);
    harness.send(tessera::codec::fp16, large, residual);
    CHECK(residual.at(0, 0) == 100'000.0F - 65'504.0F);
  }
  SUBCASE("nothing to send") {
    for (auto const with : tessera::all_codecs) {
      auto residual = wire_zeros(4, 0, 2);
      CHECK(harness.send(with, wire_rows(4, 0, 3), residual).empty());
    }
  }
}

}  // namespace tessera_tests
