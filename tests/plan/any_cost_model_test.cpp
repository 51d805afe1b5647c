// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/any_cost_model.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/roofline_cost.hpp>

#include "random.hpp"
#include "random_models.hpp"

namespace any_cost_model_test {

namespace {

// Both cost the same shards on the same devices the same, bit for bit.
template <class M>
void check_same(M const& model, std::vector<tessera::table_profile> const& shards, std::vector<std::int64_t> const& devices_of,
                std::int64_t devices) {
  auto const alone = tessera::costs_of_devices(model, shards, devices_of, devices);
  tessera::any_cost_model const any(model);
  auto const copy = any;  // NOLINT: a copy is what is tested
  CHECK(any.width() == model.width());
  CHECK(any.devices() == model.devices());
  CHECK(tessera::costs_of_devices(any, shards, devices_of, devices) == alone);
  CHECK(tessera::costs_of_devices(copy, shards, devices_of, devices) == alone);
}

}  // namespace

TEST_CASE("any_cost_model: costs are those of the model that it holds, of any kind") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int64_t devices = 1; devices <= 4; ++devices) {
    std::vector<tessera::table_profile> shards;
    std::vector<std::int64_t> devices_of;
    for (int s = 0; s < 12; ++s) {
      shards.push_back(tessera_tests::random_profile(random, 1'000'000, 128));
      devices_of.push_back(std::uniform_int_distribution<std::int64_t>(0, devices - 1)(random));
    }
    check_same(tessera_tests::random_published_cost(random, devices, true), shards, devices_of, devices);
    check_same(tessera::roofline_cost({.memory_bytes_per_second = 1e10, .exchange_bytes_per_second = 1e9}), shards, devices_of, devices);
  }
}

TEST_CASE("any_cost_model: a model of other devices is refused through it too") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera::any_cost_model const any(tessera_tests::random_published_cost(random, 2, true));
  std::vector<tessera::table_profile> const shards{tessera_tests::random_profile(random, 1000, 16)};
  CHECK_THROWS_WITH_AS(tessera::costs_of_devices(any, shards, std::vector<std::int64_t>{0}, 3),
                       "costs_of_devices: the model is of another number of devices (devices 3, devices of the model 2)", tessera::error);
}

}  // namespace any_cost_model_test
