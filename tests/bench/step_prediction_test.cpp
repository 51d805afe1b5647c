// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../bench/tower/step_prediction.hpp"

namespace step_prediction_test {

namespace {

using tessera_bench::job;
using tessera_bench::net_kind;
using tessera_bench::predict;
using tessera_bench::step_kind;

tessera_bench::calibration const& fitted() {
  static auto const c = tessera_bench::fit_fall([](double fall) { return tessera_bench::with_share(fall); });
  return c;
}

}  // namespace

TEST_CASE("step_prediction: what is fitted and read off a figure is met") {
  auto const& c = fitted();
  CHECK(tessera_bench::largest_speedup(c, net_kind::dlrm, step_kind::flat, step_kind::dmt).ratio == doctest::Approx(1.9).epsilon(1e-6));
  auto const s = predict(tessera_bench::h100, c, {net_kind::dcn, step_kind::flat, 8});
  CHECK((s.embedding + s.dense) / s.all() == doctest::Approx(0.3).epsilon(1e-3));
  CHECK(c.share > 0);
  CHECK(c.share < 1);
}

TEST_CASE("step_prediction: what the paper reports beside comes out within a fifth") {
  auto const& c = fitted();
  auto const near = [](double expected) { return doctest::Approx(expected).epsilon(0.2); };
  CHECK(tessera_bench::largest_speedup(c, net_kind::dcn, step_kind::flat, step_kind::dmt).ratio == near(1.8));
  CHECK(tessera_bench::largest_speedup(c, net_kind::dlrm, step_kind::sptt, step_kind::dmt).ratio == near(1.4));
  for (auto const* on : tessera_bench::all_gpus)
    CHECK(tessera_bench::ratio_of(*on, c, {.how = step_kind::sptt}, {.how = step_kind::dmt, .module_dim = 8}) == near(2));
  auto const flat = predict(tessera_bench::h100, c, {net_kind::dcn, step_kind::flat}),
             dmt = predict(tessera_bench::h100, c, {net_kind::dcn, step_kind::dmt});
  CHECK(flat.embedding / dmt.embedding == near(4.6));
  CHECK(flat.compute / dmt.compute == near(1.4));
}

TEST_CASE("step_prediction: columns are dealt out evenly") {
  for (std::int64_t const ranks : {1, 8, 26, 64, 512, 1024}) {
    auto const all = tessera_bench::dealt_columns(26 * 128, 128, ranks);
    std::vector<std::int64_t> columns(static_cast<std::size_t>(ranks), 0);
    for (auto const& feature : all) {
      CHECK(feature.dim % 4 == 0);
      CHECK(feature.dim <= 128);
      columns[static_cast<std::size_t>(feature.rank)] += feature.dim;
    }
    std::int64_t sum = 0;
    for (auto const of_rank : columns) {
      sum += of_rank;
      CHECK(of_rank >= 26 * 128 / ranks / 4 * 4);
      CHECK(of_rank <= 26 * 128 / ranks + 4);
    }
    CHECK(sum == 26 * 128);
  }
}

TEST_CASE("step_prediction: one host has no towers, and more ranks never exchange faster") {
  auto const& c = fitted();
  for (auto const* on : tessera_bench::all_gpus) {
    CHECK(predict(*on, c, {net_kind::dlrm, step_kind::flat, 1}).embedding ==
          predict(*on, c, {net_kind::dlrm, step_kind::sptt, 1}).embedding);
    for (auto const how : {step_kind::flat, step_kind::sptt}) {
      double before = 0;
      for (std::int64_t hosts = 1; hosts <= 32; hosts *= 2) {
        auto const s = predict(*on, c, {net_kind::dcn, how, hosts});
        CHECK(s.embedding > before);
        CHECK(s.dense > 0);
        before = s.embedding;
      }
    }
  }
}

}  // namespace step_prediction_test
