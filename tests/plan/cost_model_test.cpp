// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
#include <tessera/plan/cost_model.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <tessera/plan/plan_objective.hpp>

#include "temporary_folder.hpp"

namespace cost_model_test {

using tessera::errc;
using tessera::matrix_view;
using tessera::table_profile;
using tessera::vector_view;
using tessera_tests::error_of;

namespace {

// Compute is dim + 10 rows of each shard; gradients take as long as columns, vectors so too, and wait for the last that starts.
struct counted {
  std::int64_t of = 0;
  static constexpr std::int64_t width() { return 2; }
  std::int64_t devices() const { return of; }
  static void represent(vector_view<table_profile const> shards, matrix_view<float> to) {
    for (std::int64_t s = 0; s < shards.size(); ++s) {
      to(s, 0) = static_cast<float>(shards[s].dim);
      to(s, 1) = static_cast<float>(shards[s].rows);
    }
  }
  static void compute_ms(matrix_view<float const> sums, vector_view<float> ms) {
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = sums(d, 0) + 10 * sums(d, 1);
  }
  static void backward_ms(vector_view<float const> columns, vector_view<float> ms) {
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = columns[d] / 2;
  }
  static void forward_ms(vector_view<float const>, vector_view<float const> starts, vector_view<float> ms) {
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = 100 - starts[d];
  }
};
static_assert(tessera::cost_model<counted>);

table_profile table(std::int64_t rows, std::int64_t dim) { return {.rows = rows, .dim = dim}; }

}  // namespace

TEST_CASE("cost_model: the costs of a plan, by hand") {
  std::vector<table_profile> const shards{table(1, 4), table(2, 8), table(3, 16)};
  auto const costs = tessera::costs_of_devices(counted{}, shards, std::vector<std::int64_t>{1, 0, 1}, 3);
  CHECK(costs.compute == std::vector<float>{28, 60, 0});
  CHECK(costs.backward == std::vector<float>{4, 10, 0});
  CHECK(costs.starts == std::vector<float>{32, 70, 0});
  CHECK(costs.forward == std::vector<float>{68, 30, 100});
  CHECK(costs.total(1) == 100);
  CHECK(tessera::cost_of(costs) == 100);
}

TEST_CASE("plan_objective: what it makes of a plan's costs, by hand") {
  tessera::device_costs costs(2);
  costs.compute = {4, 1};
  costs.backward = {2, 3};
  costs.forward = {1, 6};
  CHECK(tessera::objective_of(costs, tessera::plan_objective::cost) == 10);
  CHECK(tessera::objective_of(costs, tessera::plan_objective::slowest_stage) == 6);
  CHECK(tessera::objective_of(costs, tessera::plan_objective::compute_balance) == 0.75F);
  costs.compute = {0, 0};
  CHECK(tessera::objective_of(costs, tessera::plan_objective::compute_balance) == 0);
}

TEST_CASE("cost_model: devices and shards that do not fit are refused") {
  std::vector<table_profile> const shards{table(1, 4)};
  auto const of = [&](std::vector<std::int64_t> const& places, std::int64_t devices, std::int64_t model) {
    return error_of([&] { tessera::costs_of_devices(counted{model}, shards, places, devices); });
  };
  CHECK(of({0}, 0, 0).value("devices") == "0");
  CHECK(of({0}, 2, 4).value("devices of the model") == "4");
  CHECK(of({0, 1}, 2, 0).code() == errc::shape_mismatch);
  CHECK(of({2}, 2, 0).value("device") == "2");
  CHECK(of({-2}, 2, 2).code() == errc::out_of_range);
}

}  // namespace cost_model_test
