// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/shard_memory.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/execution.hpp>

#include "temporary_folder.hpp"

namespace shard_memory_test {

using tessera::counted_memory;
using tessera::errc;
using tessera::table_profile;
using tessera_tests::error_of;

namespace {

table_profile of(std::string const& format, std::string const& optimizer, bool hashed) {
  return {.name = "t",
          .rows = 1000,
          .dim = 12,
          .pooling_factor = 2.5,
          .bags = 300,
          .distinct_bags = 100,
          .row_format = format,
          .optimizer = optimizer,
          .hashed = hashed};
}

}  // namespace

TEST_CASE("shard_memory: a shard takes what its store takes once built") {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  auto const options = tessera::table_options{.dim = 12, .rows = 1000};
  auto const dense = tessera::memory_of_shard(of("float16", "adam", false));
  CHECK(dense.weights == 1000 * 12 * 2);
  CHECK(dense.state == 1000 * 12 * 2 * 4);
  CHECK(dense.index == 0);
  tessera::dense_table<tessera::float16> const table(exec, options, tessera::adam{});
  CHECK(dense.weights + dense.state == static_cast<std::int64_t>(table.bytes()));
  auto const hashed = tessera::memory_of_shard(of("float", "rowwise_adagrad", true));
  tessera::hash_table<> const other(exec, options, tessera::rowwise_adagrad{});
  CHECK(hashed.index > 0);
  CHECK(hashed.weights + hashed.state + hashed.index == static_cast<std::int64_t>(other.bytes()));
}

TEST_CASE("shard_memory: formats, optimizers and what a batch takes, by hand") {
  auto const weights = [](std::string const& format) { return tessera::memory_of_shard(of(format, "sgd", false)).weights; };
  CHECK(weights("float") == 48'000);
  CHECK(weights("bfloat16") == 24'000);
  CHECK(weights("float8_e4m3") == 12'000);
  CHECK(weights("float8_e5m2") == 12'000);
  CHECK(weights("scaled_int8") == 16'000);
  auto const state = [](std::string const& optimizer) { return tessera::memory_of_shard(of("float", optimizer, false)).state; };
  CHECK(state("sgd") == 0);
  CHECK(state("momentum_sgd") == 48'000);
  CHECK(state("adagrad") == 48'000);
  CHECK(state("ftrl") == 96'000);
  CHECK(state("rowwise_adagrad") == 4'000);
  CHECK(state("rowwise_adam") == 52'000);
  auto const all = tessera::memory_of_shard(of("float", "sgd", false));
  CHECK(all.activations == 100 * 12 * 8);
  CHECK(all.exchange == (250 + 100) * 8);
  CHECK(all.total() == 48'000 + 9'600 + 2'800);
  // As published: float weights alone.
  auto const published = tessera::memory_of_shard(of("float16", "adam", true), counted_memory::float_weights);
  CHECK(published == tessera::shard_memory{.weights = 48'000});
  std::vector<table_profile> const tables{of("float", "sgd", false), of("float16", "sgd", false)};
  CHECK(tessera::received_bytes(tables, 7) == 2 * 43 * 12 * 8);
  CHECK(tessera::received_bytes(tables, 7, counted_memory::float_weights) == 0);
}

TEST_CASE("shard_memory: unknown names are refused by table, field and value") {
  auto const format = error_of([] { tessera::memory_of_shard(of("float32", "sgd", false)); });
  CHECK(format.code() == errc::invalid_argument);
  CHECK(format.value("table") == "t");
  CHECK(format.value("field") == "row_format");
  CHECK(format.value("value") == "float32");
  auto const optimizer = error_of([] { tessera::memory_of_shard(of("float", "lamb", false)); });
  CHECK(optimizer.value("field") == "optimizer");
  CHECK(optimizer.value("value") == "lamb");
  CHECK(error_of([] { tessera::received_bytes(std::vector<table_profile>{}, 0); }).value("devices") == "0");
}

}  // namespace shard_memory_test
