// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/plan/cost_networks.hpp>
#include <tessera/plan/network_samples.hpp>

#include "hosts.hpp"
#include "random.hpp"

namespace cost_networks_test {

using tessera::cost_network_saved;
using tessera::errc;
using tessera::network_samples;
using tessera::row_network;
using tessera::set_network;
using tessera::sum_network;

namespace {

using vector = std::vector<double>;

/// How near a ReLU's input comes to 0, or the second largest of a pooled column to the largest.
struct distance_to_kink {
  double closest = 1;
  double relu(double x) {
    closest = std::min(closest, std::fabs(x));
    return std::max(x, 0.0);
  }
};

/// An MLP in double over parameters laid out as those of `tessera::mlp`; `p` moves past them.
vector naive_mlp(std::vector<std::int64_t> const& widths, bool last_relu, double const*& p, vector x, distance_to_kink& kink) {
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
    vector y;
    for (std::int64_t o = 0; o < widths[l + 1]; ++o) {
      auto sum = p[widths[l] * widths[l + 1] + o];
      for (std::int64_t i = 0; i < widths[l]; ++i) sum += x[static_cast<std::size_t>(i)] * p[o * widths[l] + i];
      y.push_back(l + 2 < widths.size() || last_relu ? kink.relu(sum) : sum);
    }
    p += (widths[l] + 1) * widths[l + 1];
    x = std::move(y);
  }
  return x;
}

std::vector<vector> rows_of(network_samples const& samples, std::int64_t s) {
  std::vector<vector> rows;
  auto const i = static_cast<std::size_t>(s);
  for (auto r = samples.first_row[i]; r < samples.first_row[i + 1]; ++r)
    rows.emplace_back(samples.features.begin() + r * samples.width, samples.features.begin() + (r + 1) * samples.width);
  return rows;
}

vector naive(sum_network const& net, vector const& parameters, network_samples const& samples, distance_to_kink& kink) {
  auto const head_of = [&](vector const& sum, double const* p) { return naive_mlp(net.head_layers().widths(), false, p, sum, kink)[0]; };
  vector out;
  auto const* const head = parameters.data() + net.row_layers().parameters().size();
  vector const zeros(static_cast<std::size_t>(net.representation_width()));
  for (std::int64_t s = 0; s < samples.samples(); ++s) {
    auto sum = zeros;
    for (auto const& row : rows_of(samples, s)) {
      auto const* p = parameters.data();
      auto const one = naive_mlp(net.row_layers().widths(), true, p, row, kink);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    }
    out.push_back(head_of(sum, head) - (net.empty_is_free() ? head_of(zeros, head) : 0.0));
  }
  return out;
}

vector naive(set_network const& net, vector const& parameters, network_samples const& samples, distance_to_kink& kink) {
  vector out;
  for (std::int64_t s = 0; s < samples.samples(); ++s) {
    auto const rows = rows_of(samples, s);
    std::vector<vector> hidden;
    for (auto const& row : rows) {
      auto const* p = parameters.data();
      hidden.push_back(naive_mlp(net.row_layers().widths(), true, p, row, kink));
    }
    vector mean, largest;
    for (std::int64_t c = 0; c < net.row_layers().output_width() && !rows.empty(); ++c) {
      vector column;
      double sum = 0;
      for (auto const& one : hidden) column.push_back(one[static_cast<std::size_t>(c)]), sum += column.back();
      std::sort(column.begin(), column.end(), std::greater<>());
      if (column.size() > 1 && column[0] > 0) kink.closest = std::min(kink.closest, column[0] - column[1]);
      mean.push_back(sum / static_cast<double>(rows.size()));
      largest.push_back(column[0]);
    }
    for (auto in : rows) {
      in.insert(in.end(), mean.begin(), mean.end());
      in.insert(in.end(), largest.begin(), largest.end());
      auto const* p = parameters.data() + net.row_layers().parameters().size();
      out.push_back(naive_mlp(net.head_layers().widths(), false, p, in, kink)[0]);
    }
  }
  return out;
}

vector naive(row_network const& net, vector const& parameters, network_samples const& samples, distance_to_kink& kink) {
  vector out;
  for (std::int64_t s = 0; s < samples.samples(); ++s)
    for (auto const& row : rows_of(samples, s)) {
      auto const* p = parameters.data();
      for (auto const y : naive_mlp(net.layers().widths(), false, p, row, kink)) out.push_back(y);
    }
  return out;
}

network_samples random_samples(std::mt19937_64& random, std::int64_t width, std::vector<int> const& rows) {
  network_samples samples(width);
  for (auto const n : rows) samples.add(tessera_tests::random_floats(random, static_cast<std::size_t>(n * width)), {});
  return samples;
}

/// Checks costs and gradients of a network against double arithmetic.
template <class Network>
void check_network(std::mt19937_64& random, Network& net, std::vector<int> const& rows_of_samples) {
  tessera_tests::serial_host host;
  for (auto& p : net.parameters()) p = std::normal_distribution<float>(0, 0.5F)(random);
  vector const parameters(net.parameters().begin(), net.parameters().end());
  // Float and double agree on which units are on.
  auto samples = random_samples(random, net.input_width(), rows_of_samples);
  for (;; samples = random_samples(random, net.input_width(), rows_of_samples)) {
    distance_to_kink kink;
    naive(net, parameters, samples, kink);
    if (kink.closest > 1e-4) break;
  }
  distance_to_kink kink;
  auto const expected = naive(net, parameters, samples, kink);
  std::vector<float> out(static_cast<std::size_t>(net.outputs(samples.rows_view())));
  REQUIRE(out.size() == expected.size());
  cost_network_saved saved;
  net.forward(host.exec(), tessera::eigen_gemm{}, samples.rows_view(), out, saved);
  for (std::size_t i = 0; i < out.size(); ++i) CHECK(static_cast<double>(out[i]) == doctest::Approx(expected[i]).epsilon(1e-4).scale(10));

  auto const weights = tessera_tests::random_floats(random, out.size());
  std::vector<float> gradient(parameters.size(), 777.0F);
  net.backward(host.exec(), tessera::eigen_gemm{}, saved, weights, gradient);
  auto const loss = [&](vector const& at) {
    double sum = 0;
    auto const costs = naive(net, at, samples, kink);
    for (std::size_t i = 0; i < costs.size(); ++i) sum += costs[i] * static_cast<double>(weights[i]);
    return sum;
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto up = parameters, down = parameters;
    up[i] += 1e-6, down[i] -= 1e-6;
    CAPTURE(i);
    CHECK(static_cast<double>(gradient[i]) == doctest::Approx((loss(up) - loss(down)) / 2e-6).epsilon(1e-3).scale(10));
  }
}

}  // namespace

TEST_CASE("cost networks: costs and gradients are those of double arithmetic") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  for (bool const free : {false, true}) {
    CAPTURE(free);
    sum_network net(host.exec(), {.row_widths = {3, 5, 4}, .head_widths = {4, 6, 1}, .empty_is_free = free});
    check_network(random, net, {2, 0, 1, 3});
  }
  set_network set(host.exec(), {.row_widths = {3, 5, 2}, .head_widths = {7, 6, 1}});
  check_network(random, set, {2, 1, 4});
  row_network row(host.exec(), {.widths = {4, 6, 5, 3}});
  check_network(random, row, {1, 1, 1});
}

TEST_CASE("cost networks: the published shapes") {
  tessera_tests::serial_host host;
  sum_network compute(host.exec(), {});
  CHECK(compute.parameters().size() == 8993);
  CHECK(compute.blocks()[0].name == "table.0.weight");
  CHECK(compute.blocks()[0].shape == std::vector<std::int64_t>{128, 20});
  CHECK(compute.blocks()[7].name == "head.1.bias");
  row_network forward(host.exec(), {.widths = {8, 128, 64, 32, 16, 4}});
  CHECK(forward.outputs({{nullptr, 3, 8}, std::vector<std::int64_t>{0, 1, 2, 3}.data(), 3}) == 12);
}

TEST_CASE("sum_network: no rows cost nothing where empty is free, whatever the parameters") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::serial_host host;
  sum_network net(host.exec(), {.row_widths = {2, 3}, .head_widths = {3, 4, 1}, .empty_is_free = true, .seed = tessera::random_seed(seed)});
  std::vector<std::int64_t> const offsets{0, 0, 0};
  std::vector<float> out{7, 7};
  cost_network_saved saved;
  net.forward(host.exec(), tessera::eigen_gemm{}, {{nullptr, 0, 2}, offsets.data(), 2}, out, saved);
  CHECK(out == std::vector<float>{0, 0});
}

TEST_CASE("set_network: rows in another order have the same costs in that order, for any number of rows") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  set_network net(host.exec(), {.row_widths = {3, 8, 4}, .head_widths = {11, 8, 1}, .seed = tessera::random_seed(seed)});
  for (int const rows : {1, 2, 7, 40}) {
    auto const samples = random_samples(random, 3, {rows});
    std::vector<std::size_t> order(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    network_samples shuffled(3);
    std::vector<float> moved;
    for (auto const r : order)
      moved.insert(moved.end(), samples.features.begin() + 3 * static_cast<std::ptrdiff_t>(r),
                   samples.features.begin() + 3 * static_cast<std::ptrdiff_t>(r) + 3);
    shuffled.add(moved, {});
    std::vector<float> out(order.size()), of_shuffled(order.size());
    cost_network_saved saved;
    net.forward(host.exec(), tessera::eigen_gemm{}, samples.rows_view(), out, saved);
    net.forward(host.exec(), tessera::eigen_gemm{}, shuffled.rows_view(), of_shuffled, saved);
    for (std::size_t i = 0; i < order.size(); ++i) CHECK(of_shuffled[i] == doctest::Approx(out[order[i]]).epsilon(1e-5).scale(1));
  }
}

TEST_CASE("cost networks: shapes that do not fit, and samples that are not numbers, are refused by name") {
  tessera_tests::serial_host host;
  auto const refused = [](char const* what, std::string const& value, auto const& call) {
    try {
      call();
      FAIL_CHECK("accepted");
    } catch (tessera::error const& e) {
      CHECK(e.value(what) == value);
    }
  };
  refused("width", "5", [&] { sum_network(host.exec(), {.row_widths = {3, 4}, .head_widths = {5, 1}}); });
  refused("output width", "2", [&] { sum_network(host.exec(), {.row_widths = {3, 4}, .head_widths = {4, 2}}); });
  refused("widths", "1", [&] { sum_network(host.exec(), {.row_widths = {3}, .head_widths = {3, 1}}); });
  refused("width", "10", [&] { set_network(host.exec(), {.row_widths = {3, 4}, .head_widths = {10, 1}}); });
  network_samples samples(2);
  samples.add(std::vector<float>{1, 2}, std::vector<float>{3});
  refused("values", "3", [&] { samples.add(std::vector<float>{1, 2, 3}, {}); });
  refused("feature", "1", [&] { samples.add(std::vector<float>{1, NAN}, {}); });
  refused("target", "0", [&] { samples.add(std::vector<float>{1, 2}, std::vector<float>{INFINITY}); });
  CHECK(samples.samples() == 1);
  CHECK(samples.targets.size() == 1);
}

TEST_CASE("feature_statistics: mean and unbiased deviation; a constant stays finite") {
  std::vector<float> const rows{1, 5, 3, 5, 5, 5};
  auto const statistics = tessera::feature_statistics::of({rows.data(), 3, 2});
  CHECK(statistics.means == std::vector<float>{3, 5});
  CHECK(statistics.deviations[0] == doctest::Approx(2.000001));
  CHECK(statistics.deviations[1] == doctest::Approx(1e-6));
  std::vector<float> row{5, 5};
  statistics.normalise(row);
  CHECK(row[0] == doctest::Approx(1));
  CHECK(row[1] == 0);
}

}  // namespace cost_networks_test
