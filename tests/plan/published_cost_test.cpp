// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/published_cost_file.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/dense_network.hpp>

#include "random.hpp"
#include "random_models.hpp"
#include "temporary_folder.hpp"

namespace published_cost_test {

using tessera::dense_layer;
using tessera::dense_network;
using tessera::errc;
using tessera::matrix_view;
using tessera::published_cost;
using tessera::published_features;
using tessera::table_profile;
using tessera_tests::error_of;

namespace {

// In double, output by output.
std::vector<double> naive(dense_network const& network, std::vector<double> x) {
  for (std::size_t l = 0; l < network.layers().size(); ++l) {
    auto const& layer = network.layers()[l];
    std::vector<double> y;
    for (std::int64_t o = 0; o < layer.outputs; ++o) {
      double sum = static_cast<double>(layer.bias[static_cast<std::size_t>(o)]);
      for (std::int64_t i = 0; i < layer.inputs; ++i)
        sum += static_cast<double>(layer.weight[static_cast<std::size_t>(o * layer.inputs + i)]) * x[static_cast<std::size_t>(i)];
      y.push_back(sum < 0 && (l + 1 < network.layers().size() || network.relu_after_last()) ? 0 : sum);
    }
    x = y;
  }
  return x;
}

double scaled(tessera::feature_scaling const& by, std::size_t i, double value) { return (value - by.means[i]) / by.stds[i]; }

}  // namespace

TEST_CASE("dense_network: by hand, with and without a ReLU at the end") {
  std::vector<dense_layer> const layers{{2, 3, {1, 2, -1, 0, 3, -2}, {0.5F, 1, -1}}, {3, 2, {1, 1, 1, -2, 0, 0}, {0, 1}}};
  // (1, 2) becomes (5.5, 0, -2), ReLU (5.5, 0, 0), then (5.5, -10).
  std::array<float, 2> const in{1, 2};
  std::array<float, 2> out{};
  dense_network{layers}(in.data(), out.data());
  CHECK(out == std::array<float, 2>{5.5F, -10});
  dense_network{layers, true}(in.data(), out.data());
  CHECK(out == std::array<float, 2>{5.5F, 0});
}

TEST_CASE("dense_network: random networks agree with double") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<std::int64_t> widths;
    for (int l = 0; l < 4; ++l) widths.push_back(std::uniform_int_distribution<std::int64_t>(1, 150)(random));
    auto const network = tessera_tests::random_network(random, widths, repeat % 2 == 0);
    auto const in = tessera_tests::random_floats(random, static_cast<std::size_t>(widths.front()));
    std::vector<float> out(static_cast<std::size_t>(widths.back()));
    network(in.data(), out.data());
    auto const expected = naive(network, std::vector<double>(in.begin(), in.end()));
    for (std::size_t o = 0; o < out.size(); ++o) CHECK(static_cast<double>(out[o]) == doctest::Approx(expected[o]).epsilon(1e-3).scale(1));
  }
}

TEST_CASE("dense_network: layers that do not fit are refused by layer and number") {
  auto const refused = [](std::vector<dense_layer> const& layers, char const* value, std::string const& is) {
    auto const e = error_of([&] { dense_network{layers}; });
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(value) == is);
  };
  refused({}, "layers", "0");
  refused({{0, 1, {}, {1}}}, "found", "0");
  refused({{1, 0, {}, {}}}, "found", "0");
  refused({{2000, 1, std::vector<float>(2000), {1}}}, "most", "1024");
  refused({{2, 1, {1}, {1}}}, "found", "1");
  refused({{1, 1, {1}, {}}}, "found", "0");
  refused({{1, 1, {1}, {0}}, {2, 1, {1, 1}, {0}}}, "layer", "1");
  refused({{1, 1, {std::numeric_limits<float>::infinity()}, {0}}}, "weight", "inf");
}

TEST_CASE("published_cost: features stand in the order of their names' text") {
  std::vector<std::string> const names{"bin_0",  "bin_1",  "bin_10", "bin_11", "bin_12",         "bin_13", "bin_14",
                                       "bin_15", "bin_16", "bin_2",  "bin_3",  "bin_4",          "bin_5",  "bin_6",
                                       "bin_7",  "bin_8",  "bin_9",  "dim",    "pooling_factor", "row"};
  CHECK(published_features::names() == names);
  table_profile profile{.rows = 100, .dim = 8, .pooling_factor = 1.5};
  for (std::size_t bin = 0; bin < profile.access.size(); ++bin) profile.access[bin] = static_cast<double>(bin);
  CHECK(published_features::of(profile) == std::array<double, 20>{0, 1, 10, 11, 12, 13, 14, 15, 16, 2, 3, 4, 5, 6, 7, 8, 9, 8, 1.5, 100});
}

TEST_CASE("published_cost: computation and exchanges agree with double") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int64_t const devices : {1, 4, 8}) {
    auto const model = tessera_tests::random_published_cost(random, devices);
    CHECK(model.width() == 32);
    CHECK(model.devices() == devices);
    std::vector<table_profile> shards;
    std::vector<std::int64_t> places;
    for (int s = 0; s < 12; ++s) {
      shards.push_back(tessera_tests::random_profile(random, 10'000'000, 128));
      places.push_back(std::uniform_int_distribution<std::int64_t>(0, devices - 1)(random));
    }
    auto const costs = tessera::costs_of_devices(model, shards, places, devices);
    std::vector<double> columns(static_cast<std::size_t>(devices)), starts;
    for (std::int64_t d = 0; d < devices; ++d) {
      std::vector<double> sum(32);
      for (std::size_t s = 0; s < shards.size(); ++s) {
        if (places[s] != d) continue;
        columns[static_cast<std::size_t>(d)] += static_cast<double>(shards[s].dim);
        auto const values = published_features::of(shards[s]);
        std::vector<double> inputs;
        for (std::size_t i = 0; i < values.size(); ++i) inputs.push_back(scaled(model.computation().scaling, i, values[i]));
        auto const of = naive(model.computation().table_network, inputs);
        for (std::size_t i = 0; i < of.size(); ++i) sum[i] += of[i];
      }
      CHECK(static_cast<double>(costs.compute[static_cast<std::size_t>(d)]) ==
            doctest::Approx(naive(model.computation().sum_network, sum)[0]).epsilon(1e-4).scale(1));
    }
    std::vector<double> inputs;
    for (std::size_t d = 0; d < columns.size(); ++d) inputs.push_back(scaled(model.backward().scaling, d, columns[d]));
    auto const backward = naive(model.backward().network, inputs);
    auto first = std::numeric_limits<double>::infinity();
    for (std::size_t d = 0; d < columns.size(); ++d) {
      CHECK(static_cast<double>(costs.backward[d]) == doctest::Approx(backward[d]).epsilon(1e-4).scale(1));
      starts.push_back(static_cast<double>(costs.compute[d]) + backward[d]);
      first = std::min(first, starts.back());
    }
    inputs.clear();
    for (std::size_t d = 0; d < columns.size(); ++d) inputs.push_back(scaled(model.forward().scaling, d, columns[d]));
    for (std::size_t d = 0; d < columns.size(); ++d)
      inputs.push_back(scaled(model.forward().scaling, columns.size() + d, starts[d] - first));
    auto const forward = naive(model.forward().network, inputs);
    for (std::size_t d = 0; d < columns.size(); ++d)
      CHECK(static_cast<double>(costs.forward[d]) == doctest::Approx(forward[d]).epsilon(1e-3).scale(1));
  }
}

TEST_CASE("published_cost_file: models are read as they were written") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const model = tessera_tests::random_published_cost(random, 4);
  tessera_tests::temporary_folder folder;
  auto const compute = folder.file("c.json"), backward = folder.file("b.json"), forward = folder.file("f.json");
  tessera::write_published_cost(model, compute, backward, forward);
  auto const read = tessera::read_published_cost(compute, backward, forward);
  CHECK(read.computation().scaling == model.computation().scaling);
  CHECK(read.computation().table_network.layers() == model.computation().table_network.layers());
  CHECK(read.computation().sum_network.layers() == model.computation().sum_network.layers());
  CHECK(read.backward().network.layers() == model.backward().network.layers());
  CHECK(read.forward().network.layers() == model.forward().network.layers());
  CHECK(read.forward().scaling == model.forward().scaling);
  // The directions' files are not mistaken for each other.
  auto const swapped = error_of([&] { tessera::read_published_cost(compute, forward, backward); });
  CHECK(swapped.value("network") == "backward");
  CHECK(swapped.value("found") == "8");
}

TEST_CASE("published_cost_file: other files are refused by file, field and value") {
  std::string const layer = R"([{"weight": [[1, 1]], "bias": [1]}])";
  auto const exchange = [](std::string const& text, errc code, char const* value, std::string const& is) {
    auto const e = error_of([&] { tessera::exchange_network_of_json(tessera::parse_json(text, "T"), "T"); });
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == code);
    CHECK(e.value("file") == "T");
    CHECK(e.value(value) == is);
  };
  auto const with = [&](std::string const& devices, std::string const& layers) {
    return R"({"ndevices": )" + devices + R"(, "means": [0], "stds": [1], "layers": )" + layers + "}";
  };
  exchange(with("2", layer), errc::invalid_argument, "value", "2");
  exchange(with("1", "[]"), errc::invalid_argument, "field", "layers");
  exchange(with("1", R"([{"weight": [[1, 1], [1]], "bias": [1, 1]}])"), errc::parse_error, "found", "1");
  exchange(with("1", R"([{"weight": [[1, "1"]], "bias": [1]}])"), errc::parse_error, "field", "weight");
  exchange(with("1", R"([{"weight": [[1, 1]], "bias": [1, 2]}])"), errc::invalid_argument, "found", "2");
  exchange(R"({"ndevices": 1, "stds": [1], "layers": []})", errc::parse_error, "field", "means");
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const model = tessera_tests::random_published_cost(random, 2);
  auto json = tessera::computation_network_json(model.computation());
  std::swap(json["feature_order"][2], json["feature_order"][9]);
  auto const order = error_of([&] { tessera::computation_network_of_json(json, "T"); });
  CHECK(order.code() == errc::incompatible);
  CHECK(order.value("index") == "2");
  CHECK(order.value("found") == "bin_2");
  auto bad = model.computation();
  bad.scaling.stds[3] = 0;
  CHECK(error_of([&] { published_cost(bad, model.backward(), model.forward()); }).value("index") == "3");
  bad = model.computation();
  bad.scaling.means.pop_back();
  CHECK(error_of([&] { published_cost(bad, model.backward(), model.forward()); }).value("found") == "19");
}

}  // namespace published_cost_test
