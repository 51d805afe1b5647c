// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/nn/cross_net.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/tower_costs.hpp>

namespace tower_costs_test {

namespace {

template <class Call>
tessera::error costs_error(Call const& call) {
  try {
    call();
  } catch (tessera::error const& e) {
    return e;
  }
  return {tessera::errc::device_error, "nothing was thrown"};
}

double mega(tessera::net_costs const& costs) { return 1e-6 * static_cast<double>(costs.training_flops()); }

/// Of the rows with towers, whose top MLP has one layer less.
tessera::click_net_shape shape_above_towers() {
  tessera::click_net_shape shape;
  shape.top_hidden = {1024, 512, 256};
  return shape;
}

}  // namespace

TEST_CASE("tower_costs: MFLOPs of the paper's Tables 4 and 5, within 0.2 %") {
  auto const near = [](double expected) { return doctest::Approx(expected).epsilon(0.002); };
  CHECK(mega(tessera::dlrm_costs({})) == near(14.74));
  CHECK(mega(tessera::dcn_costs({})) == near(96.17));
  CHECK(mega(tessera::dcn_costs({})) == near(96.22));

  tessera::click_net_shape const shape = shape_above_towers();
  for (std::int64_t const towers : {2, 4, 8, 26}) {
    CAPTURE(towers);
    CHECK(mega(tessera::dlrm_costs(shape, tessera::even_towers(26, towers), tessera::dlrm_tower_shape{}).total()) == near(8.95));
  }
  CHECK(mega(tessera::dlrm_costs(shape, tessera::even_towers(26, 16), tessera::dlrm_tower_shape{0, 1, 128}).total()) == near(8.75));

  struct row {
    std::int64_t number;
    double mflops;
  };
  for (auto const& expected : {row{64, 8.95}, row{32, 7.93}, row{16, 7.42}, row{16, 7.41}, row{8, 7.16}}) {
    auto const costs = tessera::dlrm_costs(shape, tessera::even_towers(26, 8), tessera::dlrm_tower_shape{1, 0, expected.number});
    CAPTURE(expected.mflops);
    CHECK(mega(costs.total()) == near(expected.mflops));
    CHECK(tessera::compression_ratio(26, 128, costs.outputs) == 128.0 / static_cast<double>(expected.number));
  }
  for (auto const& expected : {row{2, 43.71}, row{4, 50.01}, row{8, 62.60}, row{16, 87.19}}) {
    auto const costs = tessera::dcn_costs({}, tessera::even_towers(26, expected.number), tessera::dcn_tower_shape{});
    CAPTURE(expected.mflops);
    CHECK(mega(costs.total()) == near(expected.mflops));
    CHECK(tessera::compression_ratio(26, 128, costs.outputs) == doctest::Approx(26.0 / static_cast<double>(expected.number)));
  }
}

TEST_CASE("tower_costs: parameters are those of the nets") {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  CHECK(tessera::mlp_costs({13, 512, 256, 128}).parameters == tessera::mlp::parameter_count({13, 512, 256, 128}));
  CHECK(tessera::cross_net_costs(48, 3, 8).parameters ==
        tessera::cross_net(exec, {.width = 48, .layers = 3, .rank = 8}).parameters().size());
  tessera::click_net_shape const shape{
      .numbers = 3, .features = 4, .dim = 8, .bottom_hidden = {5}, .top_hidden = {7, 6}, .cross_layers = 2, .cross_rank = 2};
  CHECK(tessera::dlrm_costs(shape).parameters ==
        tessera::mlp::parameter_count({3, 5, 8}) + tessera::mlp::parameter_count({8 + 10, 7, 6, 1}));
  CHECK(tessera::dcn_costs(shape).parameters ==
        tessera::mlp::parameter_count({3, 5, 8}) + 2 * (2 * 40 * 2 + 40) + tessera::mlp::parameter_count({40, 7, 6, 1}));
  // A table of 177.9 million rows makes up what Table 4 has beside.
  auto const in_all = [](tessera::net_costs const& costs) {
    return 1e-9 * static_cast<double>(std::int64_t{177'944'275} * 128 + costs.parameters);
  };
  CHECK(in_all(tessera::dlrm_costs({})) == doctest::Approx(22.78).epsilon(0.0003));
  CHECK(in_all(tessera::dcn_costs({})) == doctest::Approx(22.79).epsilon(0.0003));
}

TEST_CASE("tower_costs: small shapes by hand") {
  auto const linear = tessera::linear_costs(3, 2);
  CHECK(linear == tessera::net_costs{6, 0, 8, 15});
  auto const mlp = tessera::mlp_costs({3, 2, 1}, true);
  CHECK(mlp == tessera::net_costs{6 + 2, 6, 8 + 3, 15 + 12 + 9});
  CHECK(mlp.training_flops() == 4 * 6 + 6 * 2);
  CHECK(tessera::dot_costs(3, 4) == tessera::net_costs{36, 0, 0, 3 * (12 + 9)});
  // 10 -> 2, 2 -> 10, then two operations on elements that read two rows and write one.
  CHECK(tessera::cross_net_costs(10, 1, 2) == tessera::net_costs{40, 0, 50, 3 * (12 + 12 + 30 + 30)});
  CHECK(tessera::cross_net_costs(10, 0, 2) == tessera::net_costs{});

  tessera::click_net_shape const shape{.numbers = 2, .features = 3, .dim = 4, .bottom_hidden = {}, .top_hidden = {5}};
  auto const both = tessera::dlrm_costs(shape, {1, 2}, {.vectors_of_feature = 2, .vectors_of_tower = 1, .dim = 3});
  REQUIRE(both.towers.size() == 2);
  CHECK(both.towers[0].macs == 4 * 6 + 4 * 3);  // not left out: it has another dim
  CHECK(both.towers[1].macs == 2 * 4 * 6 + 8 * 3);
  CHECK(both.towers[1].parameters == (4 * 6 + 6) + (8 * 3 + 3));
  CHECK(both.outputs == 3 * (2 * 3 + 2));
  CHECK(both.above == tessera::mlp_costs({2, 3}, true) + tessera::dot_costs(9, 3) + tessera::mlp_costs({3 + 36, 5, 1}));
  CHECK(both.total() == both.towers[0] + both.towers[1] + both.above);
  auto const left_out = tessera::dlrm_costs(shape, {1, 2}, {.vectors_of_feature = 0, .vectors_of_tower = 1, .dim = 4});
  CHECK(left_out.towers[0] == tessera::net_costs{});
  CHECK(left_out.towers[1] == tessera::linear_costs(8, 4));
  // The module has no map either with c = 1.
  auto const each_left_out = tessera::dlrm_costs(shape, {1, 2}, {.vectors_of_feature = 1, .vectors_of_tower = 0, .dim = 4});
  CHECK(each_left_out.towers[0] == tessera::net_costs{});
  CHECK(each_left_out.towers[1].macs == 2 * 4 * 4);
  CHECK(each_left_out.outputs == 3 * 4);
  for (tessera::dlrm_tower const of :
       {tessera::dlrm_tower{.dim = 4, .p = 0, .c = 1}, {.dim = 4, .p = 1, .c = 0}, {.dim = 4, .p = 1, .c = 1}})
    for (std::vector<std::int64_t> const& widths : {std::vector<std::int64_t>{4}, {4, 4}}) {
      auto const features = static_cast<std::int64_t>(widths.size());
      auto const costs = tessera::dlrm_costs({.features = features, .dim = 4}, {features}, {of.c, of.p, of.dim}).towers[0];
      CHECK(costs.macs == of.cost(widths).multiply_adds);
      CHECK(costs.parameters == of.cost(widths).parameters);
    }
  auto const crossed = tessera::dcn_costs(shape, {1, 2}, {.layers = 1, .rank = 2, .outputs = 4});
  CHECK(crossed.towers[0] == tessera::cross_net_costs(4, 1, 2));
  CHECK(crossed.towers[1] == tessera::cross_net_costs(8, 1, 2) + tessera::linear_costs(8, 4));
  CHECK(crossed.above == tessera::mlp_costs({2, 4}, true) + tessera::cross_net_costs(12, 3, 512) + tessera::mlp_costs({12, 5, 1}));
}

TEST_CASE("tower_costs: pairs, ratios and even towers") {
  CHECK(tessera::pair_products(26, 1, 1) == 2 * 26 * 26);
  CHECK(tessera::pair_products(26, 2, 0.5) == 13 * 13 + 13 * 13);
  CHECK(tessera::pair_products(24, 8, 0.25) == 9 + 36);
  CHECK(tessera::compression_ratio(26, 128, 16 * 128) == 1.625);
  for (std::int64_t features = 1; features < 30; ++features)
    for (std::int64_t towers = 1; towers <= features; ++towers) {
      auto const even = tessera::even_towers(features, towers);
      CHECK(static_cast<std::int64_t>(even.size()) == towers);
      CHECK(std::accumulate(even.begin(), even.end(), std::int64_t{0}) == features);
      CHECK(even.front() - even.back() <= 1);
      CHECK(even.back() >= 1);
    }
}

TEST_CASE("tower_costs: refuses shapes that cannot be") {
  using tessera::errc;
  CHECK(costs_error([] { tessera::linear_costs(3, 0); }).code() == errc::invalid_argument);
  CHECK(costs_error([] { tessera::mlp_costs({3}); }).value("widths") == "1");
  CHECK(costs_error([] { tessera::mlp_costs({3, -1, 2}); }).value("size") == "-1");
  CHECK(costs_error([] { tessera::cross_net_costs(8, -1, 2); }).value("layers") == "-1");
  CHECK(costs_error([] { tessera::cross_net_costs(8, 1, 0); }).value("size") == "0");
  CHECK(costs_error([] { tessera::dlrm_costs({.features = 0}); }).value("size") == "0");
  CHECK(costs_error([] { tessera::dcn_costs({.dim = 0}); }).value("size") == "0");
  auto const sum = costs_error([] { tessera::dlrm_costs({}, {10, 10}, tessera::dlrm_tower_shape{}); });
  CHECK(sum.code() == errc::invalid_argument);
  CHECK(sum.value("features of towers") == "20");
  CHECK(sum.value("features") == "26");
  CHECK(costs_error([] { tessera::dcn_costs({}, {26, 0}, tessera::dcn_tower_shape{}); }).value("size") == "0");
  CHECK(costs_error([] { tessera::dlrm_costs({}, {26}, tessera::dlrm_tower_shape{0, 0, 8}); }).value("vectors of a tower") == "0");
  auto const more = costs_error([] { tessera::even_towers(26, 27); });
  CHECK(more.value("towers") == "27");
  CHECK(more.value("features") == "26");
  CHECK(costs_error([] { tessera::pair_products(4, 5, 0.5); }).value("towers") == "5");
  CHECK(costs_error([] { tessera::pair_products(4, 2, -1); }).value("share") == "-1");
  CHECK(costs_error([] { tessera::pair_products(4, 2, std::numeric_limits<double>::infinity()); }).value("share") == "inf");
  CHECK(costs_error([] { tessera::pair_products(4, 2, std::numeric_limits<double>::quiet_NaN()); }).code() == errc::invalid_argument);
  CHECK(costs_error([] { tessera::dlrm_costs({.features = 0}, {}, tessera::dlrm_tower_shape{}); }).value("size") == "0");
  CHECK(costs_error([] { tessera::dcn_costs({.features = 0}, {}, tessera::dcn_tower_shape{}); }).value("size") == "0");
  CHECK(costs_error([] { tessera::compression_ratio(4, 2, 0); }).value("size") == "0");
}

}  // namespace tower_costs_test
