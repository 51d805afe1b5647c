// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2, sanitizers -O0
#include <tessera/nn/batch_norm.hpp>

#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "nn_harness.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::batch_norm;
using tessera::batch_norm_saved;
using tessera_tests::copy_of;
using tessera_tests::doubles;
using tessera_tests::error_of;
using tessera_tests::same_bits;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;
using tessera_tests::worst_difference;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
std::vector<double> in_double(tessera::vector_view<float const> values) { return {values.begin(), values.end()}; }

// Columns with means and deviations of their own.
strided_floats draw(std::mt19937_64& random, std::int64_t samples, std::int64_t width, std::int64_t gap) {
  strided_floats x(random, samples, width, gap);
  for (std::int64_t r = 0; r < samples; ++r)
    for (std::int64_t c = 0; c < width; ++c) x.at(r, c) = x.at(r, c) * (0.5F + static_cast<float>(c % 3)) + static_cast<float>(c % 7) - 3;
  return x;
}

batch_norm make(serial_host& host, std::mt19937_64& random, std::int64_t width, float momentum = 0.1F) {
  batch_norm norm(host.exec(), {.width = width, .momentum = momentum});
  for (auto& value : norm.parameters()) value += 0.5F * tessera_tests::random_floats(random, 1)[0];
  return norm;
}

/// The definition, in double.
struct reference {
  std::vector<double> scale, shift, mean, variance;

  explicit reference(batch_norm const& norm)
      : scale(in_double(norm.parts(norm.parameters()).scale)), shift(in_double(norm.parts(norm.parameters()).shift)) {}

  void measure(doubles const& x) {
    auto const n = static_cast<double>(x.rows);
    mean.assign(at(x.columns), 0);
    variance = mean;
    for (std::int64_t c = 0; c < x.columns; ++c) {
      for (std::int64_t r = 0; r < x.rows; ++r) mean[at(c)] += x.at(r, c) / n;
      for (std::int64_t r = 0; r < x.rows; ++r) variance[at(c)] += (x.at(r, c) - mean[at(c)]) * (x.at(r, c) - mean[at(c)]) / n;
    }
  }
  doubles apply(doubles const& x, double epsilon = 1e-5F) const {
    doubles y(x.rows, x.columns);
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < x.columns; ++c)
        y.at(r, c) = scale[at(c)] * (x.at(r, c) - mean[at(c)]) / std::sqrt(variance[at(c)] + epsilon) + shift[at(c)];
    return y;
  }
};

struct gradients {
  strided_floats y, x;
  std::vector<float> parameters;
};

// Forward and backward, x's gradient once aside and once in place, to the same bits.
gradients run(tessera::host_exec const& exec, batch_norm& norm, strided_floats const& x, strided_floats const& gradient) {
  gradients result{{x.rows, x.columns, 2}, {x.rows, x.columns, 1}, std::vector<float>(at(2 * x.columns), std::nanf(""))};
  batch_norm_saved saved;
  norm.forward(exec, x.view(), result.y.view(), saved);
  norm.backward(exec, saved, gradient.view(), result.parameters, result.x.view());
  CHECK(result.y.gaps_intact());
  CHECK(result.x.gaps_intact());
  auto in_place = gradient;
  std::vector<float> again(result.parameters.size(), 7), alone = again;
  norm.backward(exec, saved, in_place.view(), again, in_place.view());
  norm.backward(exec, saved, gradient.view(), alone);
  CHECK(worst_difference(in_place, doubles(result.x)) == 0);
  CHECK(in_place.gaps_intact());
  CHECK(same_bits(again, result.parameters));
  CHECK(same_bits(alone, result.parameters));
  return result;
}

TEST_CASE("batch_norm: forward matches a double reference, backward its central differences") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (std::int64_t const samples : {2, 3, 7, 129})
    for (std::int64_t const width : {1, 2, 5, 17}) {
      if (samples * width > 300) continue;
      CAPTURE(samples);
      CAPTURE(width);
      auto norm = make(host, random, width);
      auto input = draw(random, samples, width, 3);
      for (std::int64_t r = 0; r < samples; ++r)
        for (std::int64_t c = 0; c < width; ++c)
          input.at(r, c) = 0.05F * input.at(r, c) + static_cast<float>(2 * (r % 2));  // never nearly equal
      strided_floats const slope(random, samples, width, 1);
      auto const result = run(host.exec(), norm, input, slope);
      doubles x(input);
      doubles const gradient(slope);
      reference expected(norm);
      expected.measure(x);
      CHECK(worst_difference(result.y, expected.apply(x)) < 1e-5);
      auto const objective = [&] {
        expected.measure(x);
        auto const y = expected.apply(x);
        double sum = 0;
        for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * gradient.values[i];
        return sum;
      };
      auto const numeric = [&](std::vector<double>& of) {
        std::vector<double> derivatives;
        for (auto& value : of) derivatives.push_back(tessera_tests::numeric_derivative(value, objective));
        return derivatives;
      };
      auto const parts = norm.parts(tessera::vector_view<float const>(result.parameters));
      CHECK(worst_difference(doubles(result.x).values, numeric(x.values)) < 2e-5);
      CHECK(worst_difference(parts.scale, numeric(expected.scale)) < 2e-5);
      CHECK(worst_difference(parts.shift, numeric(expected.shift)) < 2e-5);
    }
}

TEST_CASE("batch_norm: many wide samples, means far from 0") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  std::int64_t const samples = 700, width = tessera_tests::under_tsan ? 60 : 1030;
  auto norm = make(host, random, width);
  auto input = draw(random, samples, width, 1);
  for (std::int64_t r = 0; r < samples; ++r)
    for (std::int64_t c = 0; c < width; ++c) input.at(r, c) += 100;
  strided_floats const slope(random, samples, width, 0);
  auto const result = run(host.exec(), norm, input, slope);
  doubles const x(input);
  reference expected(norm);
  expected.measure(x);
  CHECK(worst_difference(result.y, expected.apply(x)) < 1e-4);  // of 100 a float holds 8e-6

  auto const parts = norm.parts(tessera::vector_view<float const>(result.parameters));
  auto const n = static_cast<double>(samples);
  std::vector<double> of_scale(at(width)), of_shift = of_scale;
  doubles of_x(samples, width);
  for (std::int64_t c = 0; c < width; ++c) {
    auto const deviation = std::sqrt(expected.variance[at(c)] + 1e-5);
    auto const normal = [&](std::int64_t r) { return (x.at(r, c) - expected.mean[at(c)]) / deviation; };
    auto const g = [&](std::int64_t r) { return static_cast<double>(slope.at(r, c)); };
    for (std::int64_t r = 0; r < samples; ++r) {
      of_scale[at(c)] += g(r) * normal(r);
      of_shift[at(c)] += g(r);
    }
    for (std::int64_t r = 0; r < samples; ++r)
      of_x.at(r, c) = expected.scale[at(c)] / deviation * (g(r) - of_shift[at(c)] / n - normal(r) * of_scale[at(c)] / n);
  }
  CHECK(worst_difference(parts.scale, of_scale) < 1e-4);
  CHECK(worst_difference(parts.shift, of_shift) < 1e-5);
  CHECK(worst_difference(result.x, of_x) < 1e-4);
}

TEST_CASE("batch_norm: running statistics move by the momentum, and predict reads them alone") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (float const momentum : {0.1F, 0.75F, 1.0F}) {
    CAPTURE(momentum);
    auto norm = make(host, random, 6, momentum);
    CHECK(copy_of(norm.running_mean()) == std::vector<float>(6, 0));
    CHECK(copy_of(norm.running_variance()) == std::vector<float>(6, 1));
    std::vector<double> mean(6, 0), variance(6, 1);
    reference expected(norm);
    for (std::int64_t const samples : {40, 2, 300, 129}) {
      auto const x = draw(random, samples, 6, 1);
      strided_floats y(samples, 6, 0);
      batch_norm_saved saved;
      norm.forward(host.exec(), x.view(), y.view(), saved);
      expected.measure(doubles(x));
      auto const share = static_cast<double>(momentum), n = static_cast<double>(samples);
      for (std::size_t c = 0; c < 6; ++c) {
        mean[c] = (1 - share) * mean[c] + share * expected.mean[c];
        variance[c] = (1 - share) * variance[c] + share * expected.variance[c] * n / (n - 1);
      }
      CHECK(worst_difference(norm.running_mean(), mean) < 1e-5);
      CHECK(worst_difference(norm.running_variance(), variance) < 1e-5);
    }
    expected.mean = in_double(norm.running_mean());
    expected.variance = in_double(norm.running_variance());
    auto const before = expected;
    for (std::int64_t const samples : {0, 1, 200}) {
      auto x = draw(random, samples, 6, 2);
      strided_floats y(samples, 6, 3);
      std::as_const(norm).predict(host.exec(), x.view(), y.view());
      CHECK(worst_difference(y, expected.apply(doubles(x))) < 1e-5);
      CHECK(y.gaps_intact());
      norm.predict(host.exec(), x.view(), x.view());
      CHECK(worst_difference(x, doubles(y)) == 0);
      CHECK(x.gaps_intact());
    }
    CHECK(in_double(norm.running_mean()) == before.mean);
    CHECK(in_double(norm.running_variance()) == before.variance);
  }
}

TEST_CASE("batch_norm: epsilon is the option's, and keeps a column of one value finite") {
  serial_host host;
  batch_norm norm(host.exec(), {.width = 2, .epsilon = 0.25F});
  std::vector<float> const x{4, -1, 4, 1};
  std::vector<float> y(4), gradient(4);
  batch_norm_saved saved;
  norm.forward(host.exec(), {x.data(), 2, 2}, {y.data(), 2, 2}, saved);
  CHECK(y[0] == 0);
  CHECK(y[2] == 0);
  CHECK(y[3] == doctest::Approx(1 / std::sqrt(1.25)));
  norm.backward(host.exec(), saved, {y.data(), 2, 2}, gradient, {y.data(), 2, 2});
  CHECK(std::all_of(y.begin(), y.end(), [](float f) { return std::isfinite(f); }));
}

TEST_CASE("batch_norm: 1, 2, 3 and 4 threads give the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const x = draw(random, 1000, 131, 1);
  strided_floats const slope(random, 1000, 131, 0);
  std::vector<std::vector<float>> first;
  auto const check = [&](tessera::host_exec const& exec) {
    batch_norm norm(exec, {.width = 131});
    auto const r = run(exec, norm, x, slope);
    strided_floats predicted(1000, 131, 0);
    norm.predict(exec, x.view(), predicted.view());
    std::vector<std::vector<float>> const results{
        r.y.storage, r.x.storage, r.parameters, copy_of(norm.running_mean()), copy_of(norm.running_variance()), predicted.storage};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i) CHECK(same_bits(results[i], first[i]));
  };
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) { check(exec); });
  tessera_tests::pool_host<3> three;
  check(three.exec());
}

TEST_CASE("batch_norm: no samples, and one") {
  std::mt19937_64 random(3);
  serial_host host;
  auto norm = make(host, random, 5);
  auto const slope = draw(random, 1, 5, 0);
  auto const none = run(host.exec(), norm, strided_floats(0, 5, 0), strided_floats(0, 5, 0));
  CHECK(none.parameters == std::vector<float>(10, 0));
  CHECK(copy_of(norm.running_mean()) == std::vector<float>(5, 0));
  CHECK(copy_of(norm.running_variance()) == std::vector<float>(5, 1));

  auto const x = draw(random, 1, 5, 0);
  auto const one = run(host.exec(), norm, x, slope);
  auto const parts = norm.parts(std::as_const(norm).parameters());
  CHECK(one.y.view().rows() == 1);
  for (std::int64_t c = 0; c < 5; ++c) {
    CHECK(one.y.at(0, c) == parts.shift[c]);
    CHECK(one.x.at(0, c) == 0);
    CHECK(one.parameters[at(c)] == 0);
    CHECK(one.parameters[at(5 + c)] == slope.at(0, c));
    CHECK(norm.running_mean()[c] == doctest::Approx(0.1 * static_cast<double>(x.at(0, c))));
  }
  CHECK(copy_of(norm.running_variance()) == std::vector<float>(5, 1));
}

TEST_CASE("batch_norm: a NaN reaches its column, its running statistics, and no other") {
  std::mt19937_64 random(4);
  serial_host host;
  auto norm = make(host, random, 3);
  auto x = draw(random, 200, 3, 0);
  x.at(150, 1) = std::nanf("");
  strided_floats y(200, 3, 0);
  batch_norm_saved saved;
  norm.forward(host.exec(), x.view(), y.view(), saved);
  for (std::int64_t c = 0; c < 3; ++c) {
    CHECK(std::isnan(y.at(0, c)) == (c == 1));
    CHECK(std::isnan(norm.running_mean()[c]) == (c == 1));
    CHECK(std::isnan(norm.running_variance()[c]) == (c == 1));
  }
}

TEST_CASE("batch_norm: scale and shift lie in one block, and blocks name the running statistics too") {
  serial_host host;
  batch_norm norm(host.exec(), {.width = 3});
  CHECK(norm.width() == 3);
  CHECK(copy_of(norm.parameters()) == std::vector<float>{1, 1, 1, 0, 0, 0});
  CHECK(norm.bytes() == 12 * sizeof(float));
  CHECK(norm.parts(norm.parameters()).shift.data() == norm.parameters().data() + 3);
  auto const blocks = norm.blocks("top.norm");
  REQUIRE(blocks.size() == 4);
  std::vector<std::string> const names{"scale", "shift", "running_mean", "running_variance"};
  std::vector<float const*> const places{norm.parameters().data(), norm.parameters().data() + 3, norm.running_mean().data(),
                                         norm.running_variance().data()};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(blocks[i].name == "top.norm." + names[i]);
    CHECK(blocks[i].shape == std::vector<std::int64_t>{3});
    CHECK(blocks[i].values.size() == 3);
    CHECK(blocks[i].values.data() == places[i]);
    CHECK(blocks[i].group == tessera::replication::everywhere);
  }

  // What the blocks hold is all that another one needs to predict alike.
  std::mt19937_64 random(5);
  auto trained = make(host, random, 3);
  auto const x = draw(random, 50, 3, 0);
  strided_floats y(50, 3, 0), copied(50, 3, 0);
  batch_norm_saved saved;
  trained.forward(host.exec(), x.view(), y.view(), saved);
  auto const from = trained.blocks("");
  for (std::size_t i = 0; i < 4; ++i) std::copy(from[i].values.begin(), from[i].values.end(), blocks[i].values.begin());
  trained.predict(host.exec(), x.view(), y.view());
  norm.predict(host.exec(), x.view(), copied.view());
  CHECK(same_bits(copied.storage, y.storage));
  CHECK_FALSE(std::is_copy_constructible_v<batch_norm>);
}

TEST_CASE("batch_norm: what makes none is refused by name") {
  serial_host host;
  auto const refused = [&](tessera::batch_norm_options const& options, char const* name, std::string const& value) {
    auto const e = error_of([&] { batch_norm(host.exec(), options); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value(name) == value);
  };
  refused({}, "width", "0");
  refused({.width = -1}, "width", "-1");
  refused({.width = std::int64_t{1} << 31}, "width", "2147483648");
  refused({.width = 2, .momentum = 0}, "momentum", "0");
  refused({.width = 2, .momentum = 1.5F}, "momentum", "1.5");
  refused({.width = 2, .momentum = std::nanf("")}, "momentum", "nan");
  refused({.width = 2, .epsilon = 0}, "epsilon", "0");
  refused({.width = 2, .epsilon = HUGE_VALF}, "epsilon", "inf");
  CHECK(host.memory().balanced());
}

TEST_CASE("batch_norm: shapes that do not fit are refused by name, and nothing is written") {
  std::mt19937_64 random(6);
  serial_host host;
  auto const exec = host.exec();
  auto norm = make(host, random, 4);
  std::vector<float> const untouched(40, 7);
  auto memory = untouched, sums = untouched;
  auto const x = draw(random, 3, 4, 0);
  auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(memory.data(), rows, columns); };
  auto const block = [&](std::int64_t size) { return tessera::vector_view<float>(sums.data(), size); };
  tessera::matrix_view<float> const overlapping(memory.data(), 3, 4, 3);
  auto const mismatch = [&](auto const& call, std::string const& message, char const* name, std::string const& value) {
    auto const e = error_of(call);
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(std::string(e.what()).find("batch_norm: " + message) == 0);
    CHECK(e.value(name) == value);
    CHECK(memory == untouched);
    CHECK(sums == untouched);
  };
  batch_norm_saved saved;
  mismatch([&] { norm.forward(exec, matrix(3, 5), matrix(3, 5), saved); }, "shape of the input", "columns", "5");
  mismatch([&] { norm.forward(exec, x.view(), matrix(2, 4), saved); }, "shape of the output", "rows", "2");
  mismatch([&] { norm.forward(exec, x.view(), matrix(3, 3), saved); }, "shape of the output", "columns", "3");
  mismatch([&] { norm.forward(exec, x.view(), overlapping, saved); }, "shape of the output", "stride", "3");
  mismatch([&] { norm.predict(exec, matrix(3, 0), matrix(3, 4)); }, "shape of the input", "columns", "0");
  mismatch([&] { norm.predict(exec, x.view(), matrix(4, 4)); }, "shape of the output", "rows", "4");
  CHECK(copy_of(norm.running_mean()) == std::vector<float>(4, 0));
  CHECK(copy_of(norm.running_variance()) == std::vector<float>(4, 1));
  mismatch([&] { norm.backward(exec, saved, matrix(0, 4), block(8)); }, "saved by no forward", "columns", "0");

  strided_floats y(3, 4, 0);
  norm.forward(exec, x.view(), y.view(), saved);
  mismatch([&] { norm.backward(exec, saved, matrix(3, 4), block(7), matrix(3, 4)); }, "gradient block", "size", "7");
  mismatch([&] { norm.backward(exec, saved, matrix(2, 4), block(8), matrix(3, 4)); }, "shape of the gradient", "rows", "2");
  mismatch([&] { norm.backward(exec, saved, matrix(3, 5), block(8), matrix(3, 4)); }, "shape of the gradient", "columns", "5");
  mismatch([&] { norm.backward(exec, saved, matrix(3, 4), block(8), matrix(4, 4)); }, "shape of the input's gradient", "rows", "4");
  mismatch([&] { norm.backward(exec, saved, matrix(3, 4), block(8), overlapping); }, "shape of the input's gradient", "stride", "3");
  batch_norm const wider(exec, {.width = 5});
  mismatch([&] { wider.backward(exec, saved, matrix(3, 5), block(10)); }, "saved by no forward, or by that of another width", "width", "5");
}

TEST_CASE("batch_norm: of a forward that throws, no backward takes what it saved, and no running statistic has moved") {
  std::mt19937_64 random(7);
  serial_host host;
  auto norm = make(host, random, 4);
  auto const x = draw(random, 10, 4, 0);
  strided_floats y(10, 4, 0);
  std::vector<float> const untouched(8, 7);
  auto parameter_gradient = untouched;
  bool failed = true;
  for (int allowed = 0; failed; ++allowed) {
    batch_norm_saved saved;
    norm.forward(host.exec(), draw(random, 2, 4, 0).view(), strided_floats(2, 4, 0).view(), saved);
    auto const mean = copy_of(norm.running_mean()), variance = copy_of(norm.running_variance());
    host.memory().fail_after(allowed);
    try {
      norm.forward(host.exec(), x.view(), y.view(), saved);
      failed = false;
    } catch (std::bad_alloc const&) {
    }
    host.memory().never_fail();
    if (!failed) break;
    CHECK(copy_of(norm.running_mean()) == mean);
    CHECK(copy_of(norm.running_variance()) == variance);
    CHECK_THROWS_AS(norm.backward(host.exec(), saved, y.view(), parameter_gradient), tessera::error);
    CHECK(parameter_gradient == untouched);
    CHECK(allowed == 0);  // the memory of the statistics was there
  }
}

}  // namespace
