// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <tessera/nn/calibration.hpp>

#include "random.hpp"

using tessera::calibration_curve;
using tessera::errc;

TEST_CASE("calibration_curve: bins of equal width, by hand") {
  calibration_curve curve(4);
  // Probabilities 0.5, 0.75 on the border upwards, about 0.047, and both ends.
  std::vector<float> const logits{0, std::log(3.0F) + 1e-6F, -3, -std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::infinity()};
  std::vector<float> const labels{1, 0, 0, 0.5F, 1};
  curve.add(logits, labels);
  auto const& bins = curve.bins();
  REQUIRE(bins.size() == 4);
  CHECK(bins[0].samples == 2);
  CHECK(bins[1].samples == 0);
  CHECK(std::isnan(bins[1].mean_clicks()));
  CHECK_FALSE(std::signbit(bins[1].mean_clicks()));
  CHECK(bins[2].samples == 1);
  CHECK(bins[3].samples == 2);
  CHECK(bins[0].mean_clicks() == 0.25);
  CHECK(bins[0].mean_predicted() == doctest::Approx(0.5 / (1 + std::exp(3.0))));
  CHECK(bins[3].mean_predicted() == doctest::Approx(0.875));
  CHECK(bins[3].mean_clicks() == 0.5);
  CHECK(curve.samples() == 5);
  auto const expected = (std::abs(0.5 - 1 / (1 + std::exp(3.0))) + 0.5 + std::abs(1.75 - 1)) / 5;
  CHECK(curve.expected_error() == doctest::Approx(expected));
}

TEST_CASE("calibration_curve: parts merged are the whole; labels drawn from the predictions are calibrated") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const logits = tessera_tests::random_floats(random, 40000);
  std::vector<float> labels;
  for (auto const x : logits)
    labels.push_back(std::bernoulli_distribution(1.0 / (1.0 + std::exp(-static_cast<double>(x))))(random) ? 1.0F : 0.0F);
  tessera::vector_view<float const> const all(logits), of(labels);
  calibration_curve whole, part, rest;
  whole.add(all, of);
  part.add(all.slice(0, 1234), of.slice(0, 1234));
  rest.add(all.slice(1234, 40000 - 1234), of.slice(1234, 40000 - 1234));
  part.merge(rest);
  CHECK(part.samples() == whole.samples());
  for (std::size_t b = 0; b < 20; ++b) {
    CHECK(part.bins()[b].samples == whole.bins()[b].samples);
    CHECK(part.bins()[b].clicks == whole.bins()[b].clicks);
    CHECK(part.bins()[b].predicted == doctest::Approx(whole.bins()[b].predicted).epsilon(1e-12));
  }
  CHECK(whole.expected_error() < 0.02);
  part.clear();
  CHECK(part.samples() == 0);
  CHECK(std::isnan(part.expected_error()));
  CHECK_FALSE(std::signbit(part.expected_error()));
  CHECK(part.bins().size() == 20);
}

TEST_CASE("calibration_curve: what it refuses, without a trace") {
  calibration_curve curve;
  auto const code = [&](std::vector<float> const& logits, std::vector<float> const& labels) {
    try {
      curve.add(logits, labels);
    } catch (tessera::error const& e) {
      CHECK(e.value("position") == (e.code() == errc::invalid_argument ? "1" : ""));
      return e.code();
    }
    return errc::io_error;
  };
  CHECK(code({1, 2}, {0}) == errc::shape_mismatch);
  CHECK(code({1, std::nanf("")}, {0, 1}) == errc::invalid_argument);
  CHECK(code({1, 2}, {0, 1.5F}) == errc::invalid_argument);
  CHECK(curve.samples() == 0);
  CHECK(curve.bins()[14].samples == 0);
  CHECK_THROWS_AS(calibration_curve(0), tessera::error);
  CHECK_THROWS_AS(curve.merge(calibration_curve(3)), tessera::error);
}
