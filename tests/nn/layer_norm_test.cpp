// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include <tessera/nn/layer_norm.hpp>

#include <tessera/core/memory.hpp>

#include "nn_harness.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera_tests::doubles;
using tessera_tests::error_of;
using tessera_tests::same_bits;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;
using tessera_tests::worst_difference;

struct case_of_rows {
  strided_floats x, gradient;
  std::vector<float> gain, bias;

  case_of_rows(std::mt19937_64& random, std::int64_t rows, std::int64_t dim)
      : x(random, rows, dim, 3),
        gradient(random, rows, dim, 1),
        gain(tessera_tests::random_floats(random, static_cast<std::size_t>(dim))),
        bias(tessera_tests::random_floats(random, static_cast<std::size_t>(dim))) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < dim; ++c) x.at(r, c) += static_cast<float>(r % 7 + 8 * (c % 2));  // never nearly equal
  }
  tessera::layer_norm_view<float const> parameters() const { return {gain, bias}; }

  struct result {
    strided_floats y, x_gradient;
    std::vector<float> gain, bias, mean, reciprocal;
  };
  result run(tessera::host_exec const& exec) const {
    auto const dim = static_cast<std::size_t>(x.columns), rows = static_cast<std::size_t>(x.rows);
    auto const nan = std::nanf("");
    result r{{x.rows, x.columns, 2},       {x.rows, x.columns, 0},        std::vector<float>(dim, nan),
             std::vector<float>(dim, nan), std::vector<float>(rows, nan), std::vector<float>(rows, nan)};
    tessera::layer_norm(exec, x.view(), parameters(), r.y.view(), {r.mean, r.reciprocal});
    tessera::row_statistics<float const> const statistics{r.mean, r.reciprocal};
    tessera::layer_norm_backward(exec, x.view(), parameters(), statistics, gradient.view(), {r.gain, r.bias}, r.x_gradient.view());
    CHECK(r.y.gaps_intact());
    // Once more from the statistics, without any, and in place: the same bits.
    strided_floats again(x.rows, x.columns, 2), alone(x.rows, x.columns, 2);
    tessera::layer_norm_again(exec, x.view(), parameters(), statistics, again.view());
    tessera::layer_norm(exec, x.view(), parameters(), alone.view());
    CHECK(same_bits(again.storage, r.y.storage));
    CHECK(same_bits(alone.storage, r.y.storage));
    auto in_place = gradient;
    std::vector<float> gain_again(dim), bias_again(dim);
    tessera::layer_norm_backward(exec, x.view(), parameters(), statistics, in_place.view(), {gain_again, bias_again}, in_place.view());
    CHECK(worst_difference(in_place, doubles(r.x_gradient)) == 0);
    CHECK(in_place.gaps_intact());
    CHECK(same_bits(gain_again, r.gain));
    auto y_in_place = x;
    tessera::layer_norm(exec, y_in_place.view(), parameters(), y_in_place.view());
    CHECK(worst_difference(y_in_place, doubles(r.y)) == 0);
    return r;
  }
};

doubles reference(doubles const& x, std::vector<double> const& gain, std::vector<double> const& bias) {
  doubles y(x.rows, x.columns);
  auto const n = static_cast<double>(x.columns);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < x.columns; ++c) mean += x.at(r, c) / n;
    for (std::int64_t c = 0; c < x.columns; ++c) variance += (x.at(r, c) - mean) * (x.at(r, c) - mean) / n;
    for (std::int64_t c = 0; c < x.columns; ++c) {
      auto const at = static_cast<std::size_t>(c);
      y.at(r, c) = gain[at] * (x.at(r, c) - mean) / std::sqrt(variance + 1e-5) + bias[at];
    }
  }
  return y;
}

TEST_CASE("layer_norm: forward matches a double reference, backward its central differences") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (std::int64_t const rows : {1, 3})
    for (std::int64_t const dim : {2, 3, 5, 16, 17, 33}) {
      CAPTURE(rows);
      CAPTURE(dim);
      case_of_rows const batch(random, rows, dim);
      auto const result = batch.run(host.exec());
      doubles x(batch.x), gradient(batch.gradient);
      std::vector<double> gain(batch.gain.begin(), batch.gain.end()), bias(batch.bias.begin(), batch.bias.end());
      CHECK(worst_difference(result.y, reference(x, gain, bias)) < 1e-5);
      auto const objective = [&] {
        auto const y = reference(x, gain, bias);
        double sum = 0;
        for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * gradient.values[i];
        return sum;
      };
      auto const check = [&](std::vector<double>& input, std::vector<double> const& analytic) {
        std::vector<double> numeric;
        for (auto& value : input) numeric.push_back(tessera_tests::numeric_derivative(value, objective));
        CHECK(worst_difference(analytic, numeric) < 1e-5);
      };
      check(x.values, doubles(result.x_gradient).values);
      check(gain, {result.gain.begin(), result.gain.end()});
      check(bias, {result.bias.begin(), result.bias.end()});
    }
}

TEST_CASE("layer_norm: many wide rows") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  case_of_rows const batch(random, 300, tessera_tests::under_tsan ? 60 : 1030);
  auto const result = batch.run(host.exec());
  CHECK(worst_difference(
            result.y, reference(doubles(batch.x), {batch.gain.begin(), batch.gain.end()}, {batch.bias.begin(), batch.bias.end()})) < 1e-5);
  std::vector<double> gain(batch.gain.size()), bias(batch.gain.size());
  auto const normal = reference(doubles(batch.x), std::vector<double>(batch.gain.size(), 1), std::vector<double>(batch.gain.size(), 0));
  for (std::int64_t r = 0; r < batch.x.rows; ++r)
    for (std::size_t c = 0; c < gain.size(); ++c) {
      auto const slope = static_cast<double>(batch.gradient.at(r, static_cast<std::int64_t>(c)));
      gain[c] += slope * normal.at(r, static_cast<std::int64_t>(c));
      bias[c] += slope;
    }
  CHECK(worst_difference(result.gain, gain) < 1e-5);
  CHECK(worst_difference(result.bias, bias) < 1e-5);
}

TEST_CASE("layer_norm: 1, 2 and 4 threads give the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  case_of_rows const batch(random, 1000, 40);
  std::vector<case_of_rows::result> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    auto const r = batch.run(exec);
    if (first.empty()) first.push_back(r);
    CHECK(same_bits(r.y.storage, first[0].y.storage));
    CHECK(same_bits(r.x_gradient.storage, first[0].x_gradient.storage));
    CHECK(same_bits(r.gain, first[0].gain));
    CHECK(same_bits(r.bias, first[0].bias));
  });
}

TEST_CASE("layer_norm: rows of one value, of one column, no rows") {
  serial_host host;
  std::vector<float> const gain{2, 3}, bias{0.5F, -1};
  std::vector<float> x{4, 4, 1e-3F, -1e-3F}, y(4);
  tessera::layer_norm(host.exec(), {x.data(), 2, 2}, {gain, bias}, {y.data(), 2, 2});
  CHECK(y[0] == 0.5F);
  CHECK(y[1] == -1);
  CHECK(y[2] == doctest::Approx(0.5 + 2 * 1e-3 / std::sqrt(1e-6 + 1e-5)));
  tessera::layer_norm(host.exec(), {x.data(), 4, 1}, {tessera::vector_view<float const>(gain).slice(0, 1), {bias.data(), 1}},
                      {y.data(), 4, 1});
  CHECK(y == std::vector<float>(4, 0.5F));

  std::vector<float> gain_gradient(2, 7.0F), bias_gradient(2, 7.0F);
  tessera::layer_norm_backward(host.exec(), {x.data(), 0, 2}, {gain, bias}, {}, {x.data(), 0, 2}, {gain_gradient, bias_gradient},
                               {y.data(), 0, 2});
  CHECK(gain_gradient == std::vector<float>{0, 0});
  CHECK(bias_gradient == std::vector<float>{0, 0});
}

TEST_CASE("layer_norm: what does not fit is refused") {
  serial_host host;
  std::vector<float> memory(100, 1.0F), some(10, 1.0F);
  auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(memory.data(), rows, columns); };
  auto const n = [&](std::int64_t size) { return tessera::vector_view<float>(some.data(), size); };
  auto const mismatch = [](auto const& call, char const* value) {
    auto const e = error_of(call);
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(e.value(value) != "");
  };
  auto const exec = host.exec();
  mismatch([&] { tessera::layer_norm(exec, matrix(3, 4), {n(4), n(3)}, matrix(3, 4)); }, "size");
  mismatch([&] { tessera::layer_norm(exec, matrix(3, 4), {n(5), n(4)}, matrix(3, 4)); }, "size");
  mismatch([&] { tessera::layer_norm(exec, matrix(3, 4), {n(4), n(4)}, matrix(2, 4)); }, "rows");
  mismatch([&] { tessera::layer_norm(exec, matrix(3, 4), {n(4), n(4)}, matrix(3, 5)); }, "columns");
  mismatch([&] { tessera::layer_norm(exec, matrix(3, 4), {n(4), n(4)}, matrix(3, 4), {n(3), n(2)}); }, "size");
  mismatch([&] { tessera::layer_norm_again(exec, matrix(3, 4), {n(4), n(4)}, {n(3), n(4)}, matrix(3, 4)); }, "size");
  mismatch([&] { tessera::layer_norm_again(exec, matrix(3, 4), {n(4), n(4)}, {n(3), n(3)}, matrix(4, 4)); }, "rows");
  mismatch(
      [&] {
        tessera::layer_norm_backward(exec, matrix(3, 4), {n(4), n(4)}, {n(3), n(3)}, matrix(3, 3), {n(4), n(4)}, matrix(3, 4));
      },
      "columns");
  mismatch(
      [&] {
        tessera::layer_norm_backward(exec, matrix(3, 4), {n(4), n(4)}, {n(3), n(3)}, matrix(3, 4), {n(4), n(5)}, matrix(3, 4));
      },
      "size");
  mismatch(
      [&] {
        tessera::layer_norm_backward(exec, matrix(3, 4), {n(4), n(4)}, {n(3), n(3)}, matrix(3, 4), {n(4), n(4)}, matrix(0, 4));
      },
      "rows");
  // Rows that overlap; of a single row any stride does.
  tessera::matrix_view<float> const overlapping(memory.data(), 3, 4, 3);
  mismatch([&] { tessera::layer_norm(exec, matrix(3, 4), {n(4), n(4)}, overlapping); }, "stride");
  mismatch([&] { tessera::layer_norm_again(exec, matrix(3, 4), {n(4), n(4)}, {n(3), n(3)}, overlapping); }, "stride");
  mismatch(
      [&] {
        tessera::layer_norm_backward(exec, matrix(3, 4), {n(4), n(4)}, {n(3), n(3)}, matrix(3, 4), {n(4), n(4)}, overlapping);
      },
      "stride");
  CHECK(memory == std::vector<float>(100, 1.0F));
  tessera::layer_norm(exec, matrix(1, 4), {n(4), n(4)}, {memory.data(), 1, 4, 0});
}

}  // namespace
