// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <tessera/comm/link_model.hpp>

#include "random.hpp"

namespace link_model_test {

namespace {

using tessera::link_model;
using tessera::link_sample;
using tessera::topology;

template <class Call>
tessera::error link_error(Call const& call) {
  try {
    call();
  } catch (tessera::error const& e) {
    return e;
  }
  return {tessera::errc::device_error, "nothing was thrown"};
}

/// The sum that the fit minimises.
double link_squares(double alpha, double beta, std::vector<link_sample> const& samples) {
  double sum = 0;
  for (auto const& s : samples) {
    double const off = (alpha + beta * static_cast<double>(s.bytes) - s.seconds) / s.seconds;
    sum += off * off;
  }
  return sum;
}

}  // namespace

TEST_CASE("link_model: predicts") {
  link_model const model{{{"host", 2e-6, 1e-10}, {"network", 1e-5, 1e-9}}};
  CHECK(model.predict(0, 0) == 2e-6);
  CHECK(model.predict(1000, 1) == doctest::Approx(1.1e-5));
  CHECK(model.predict(std::int64_t{1} << 40, 0) == doctest::Approx(2e-6 + 109.9511627776));
  for (std::int64_t const level : {-1, 2}) {
    auto const e = link_error([&] { (void)model.predict(1, level); });
    CHECK(e.code() == tessera::errc::out_of_range);
    CHECK(e.value("level") == std::to_string(level));
  }
  CHECK(link_error([&] { (void)model.predict(-5, 0); }).value("bytes") == "-5");
}

TEST_CASE("link_model: what was measured exactly is found again") {
  std::vector<link_sample> samples;
  for (std::int64_t const bytes : {0, 100, 10'000, 1'000'000, 100'000'000}) {
    samples.push_back({1, bytes, 1e-5 + 1e-9 * static_cast<double>(bytes)});
    samples.push_back({0, bytes, 2e-6 + 1e-10 * static_cast<double>(bytes)});
  }
  auto const model = tessera::fit_link_model({"host", "network"}, samples);
  REQUIRE(model.links.size() == 2);
  CHECK(model.links[0].level == "host");
  CHECK(model.links[0].seconds_per_message == doctest::Approx(2e-6).epsilon(1e-9));
  CHECK(model.links[0].seconds_per_byte == doctest::Approx(1e-10).epsilon(1e-9));
  CHECK(model.links[1].seconds_per_message == doctest::Approx(1e-5).epsilon(1e-9));
  CHECK(model.links[1].seconds_per_byte == doctest::Approx(1e-9).epsilon(1e-9));
  CHECK(model.links[0].relative_error < 1e-9);
}

TEST_CASE("link_model: no other costs have smaller relative errors") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> noise(0.3, 3);
  for (int round = 0; round < 200; ++round) {
    std::vector<link_sample> samples;
    auto const count = 2 + random() % 20;
    // In some rounds larger messages are faster, or small ones too fast for any time a message: bounds at 0 hold then.
    auto const kind = round % 3;
    for (std::size_t i = 0; i < count; ++i) {
      auto const bytes = static_cast<std::int64_t>(i == 0 ? 17 : 18 + random() % 1'000'000);
      double const of = static_cast<double>(bytes);
      double const seconds = kind == 0 ? 1e-5 + 1e-10 * of : kind == 1 ? 1.0 / of : 1e-16 * of * of;
      samples.push_back({0, bytes, seconds * noise(random)});
    }
    auto const fitted = tessera::fit_link_model({"host"}, samples).links[0];
    double const alpha = fitted.seconds_per_message, beta = fitted.seconds_per_byte;
    REQUIRE(alpha >= 0);
    REQUIRE(beta >= 0);
    double const best = link_squares(alpha, beta, samples);
    REQUIRE(fitted.relative_error == doctest::Approx(std::sqrt(best / static_cast<double>(count))).epsilon(1e-9));
    // The sum is convex: a minimum among neighbours is one among all.
    double const a = 1e-4 * (alpha + 1e-7), b = 1e-4 * (beta + 1e-12);
    for (double const da : {-a, 0.0, a})
      for (double const db : {-b, 0.0, b})
        if (alpha + da >= 0 && beta + db >= 0) REQUIRE(link_squares(alpha + da, beta + db, samples) >= best * (1 - 1e-9));
  }
}

TEST_CASE("link_model: samples that are too few or cannot be") {
  using tessera::fit_link_model;
  std::vector<link_sample> const good{{0, 10, 1e-6}, {0, 20, 2e-6}, {1, 10, 1e-6}, {1, 10, 2e-6}};
  auto const few = link_error([&] { fit_link_model({"host", "network"}, good); });
  CHECK(few.code() == tessera::errc::invalid_argument);
  CHECK(few.value("level") == "network");
  CHECK(few.value("samples") == "2");
  CHECK(link_error([&] {
          fit_link_model({"host", "network", "far"}, std::vector<link_sample>(good.begin(), good.begin() + 2));
        }).value("level") == "network");
  CHECK(fit_link_model({}, {}).links.empty());
  auto const refused = [&](link_sample bad) {
    auto samples = good;
    samples.push_back(bad);
    auto const e = link_error([&] { fit_link_model({"host", "network"}, samples); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value("sample") == "4");
  };
  refused({2, 10, 1e-6});
  refused({-1, 10, 1e-6});
  refused({0, -1, 1e-6});
  refused({0, 10, 0});
  refused({0, 10, -1});
  refused({0, 10, std::numeric_limits<double>::infinity()});
  refused({0, 10, std::numeric_limits<double>::quiet_NaN()});
  std::vector<link_sample> const two{{0, 10, 1e-6}, {0, 20, 2e-6}, {1, 10, 1e-6}, {1, 20, 2e-6}};
  CHECK(link_error([&] { fit_link_model({"host", "host"}, two); }).value("level") == "host");
  CHECK(link_error([&] { fit_link_model({"host", ""}, two); }).value("link") == "1");
}

TEST_CASE("link_model: of a topology or not") {
  auto const hosts = topology::of_hosts(2, 2), flat = topology::flat(4);
  link_model const model{{{"host", 1e-6, 1e-10}, {"network", 1e-5, 1e-9}}}, inside{{{"host", 1e-6, 1e-10}}};
  tessera::check_link_model(model, hosts);
  tessera::check_link_model(model, flat);
  tessera::check_link_model(inside, flat);
  tessera::check_link_model(link_model{}, topology(1, {}));
  tessera::check_link_model(inside, topology(2, {}));  // of no level: that between the ranks
  CHECK(link_error([&] { tessera::check_link_model(link_model{}, topology(2, {})); }).value("outermost domains") == "2");
  auto const none = link_error([&] { tessera::check_link_model(inside, hosts); });
  CHECK(none.value("links") == "1");
  CHECK(none.value("outermost domains") == "2");
  auto const other = link_error([&] { tessera::check_link_model(model, hosts.with_groups("rack", 2)); });
  CHECK(other.value("link") == "1");
  CHECK(other.value("level") == "rack");
  CHECK(other.value("found") == "network");
  CHECK(link_error([&] { tessera::check_link_model({{{"host"}, {"network"}, {"far"}}}, hosts); }).value("links") == "3");
  CHECK(link_error([&] { tessera::check_link_model({{{"host", -1e-6, 0}}}); }).value("level") == "host");
  CHECK(link_error([&] { tessera::check_link_model({{{"host", 0, std::nan("")}}}); }).value("level") == "host");
}

}  // namespace link_model_test
