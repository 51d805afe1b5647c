// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet
#include <tessera/synth/session_log_store.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/data/session_sampling.hpp>

#include <hosts.hpp>
#include <temporary_folder.hpp>

#include "../data/sample_support.hpp"
#include "../data/session_source.hpp"

using namespace sample_tests;
using tessera_tests::error_of;

TEST_CASE("session_log_store: all bytes of all messages, and more of them compressed away where sessions stay together") {
  session_log_source const source(20'000, 1000, 8, 10, 16);
  auto const through = [&](tessera::host_exec const& exec, tessera::session_log_store_options const& options) {
    tessera::session_log_store store(options);
    tessera::sample_columns samples;
    std::int64_t raw = 0;
    for (std::int64_t block = 0; block < source.block_count(); ++block) {
      source.read(exec, block, samples);
      store.append(exec, samples.view(), source.first_row(block));
      raw += samples.size() * (3 * 4 + 2 * 8 + 8 * 4);
      for (auto const& rows : samples.view().sparse) raw += 8 * rows.size();
    }
    auto const bytes = store.finish(exec);
    CHECK(bytes.messages == 20'000);
    CHECK(bytes.raw == raw);
    CHECK(bytes.compressed < raw);
    CHECK(bytes.blocks >= raw / (options.block_bytes + 4000));
    CHECK(bytes.blocks <= raw / options.block_bytes + options.shards);
    return bytes;
  };
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    auto const by_session = through(exec, {.shards = 64, .key = tessera::sample_key::session});
    auto const by_sample = through(exec, {.shards = 64, .key = tessera::sample_key::sample});
    MESSAGE("compressed ", by_sample.ratio(), " times by sample and ", by_session.ratio(), " times by session");
    CHECK(by_session.ratio() > 1.2 * by_sample.ratio());
    tessera_tests::serial_host other;
    CHECK(through(other.exec(), {.shards = 64}).compressed == by_session.compressed);
  });
  CHECK(tessera::session_log_bytes{}.ratio() == 1);
  CHECK(error_of([] { tessera::session_log_store({.shards = 0}); }).code() == tessera::errc::invalid_argument);
  CHECK(error_of([] { tessera::session_log_store({.block_bytes = 0}); }).value("block_bytes") == "0");
  CHECK(error_of([] { tessera::session_log_store({.key = static_cast<tessera::sample_key>(7)}); }).value("key") == "7");
}

TEST_CASE("session_log_store: each shard gets its messages in their order") {
  plain_host h;
  std::mt19937_64 random(31);
  table_shape const shape{900, 2, 3, 4, 60};
  auto const samples = random_samples(random, shape);
  auto const append = [&](tessera::session_log_store& store, std::vector<sample> const& some, std::int64_t first_row) {
    tessera::sample_columns columns;
    fill(h.exec, schema_of(shape), some, columns);
    store.append(h.exec, columns.view(), first_row);
  };
  tessera::random_seed const seed{9};
  for (auto const key : {tessera::sample_key::session, tessera::sample_key::sample}) {
    tessera::session_log_store store({.shards = 4, .key = key, .seed = seed, .block_bytes = 2000});
    for (std::size_t first = 0; first < samples.size(); first += 150) {
      std::vector<sample> const some(samples.begin() + static_cast<std::ptrdiff_t>(first),
                                     samples.begin() + static_cast<std::ptrdiff_t>(first + 150));
      append(store, some, static_cast<std::int64_t>(first));
    }
    // The same as four stores of one shard each.
    tessera::session_log_bytes sum;
    for (std::int64_t shard = 0; shard < 4; ++shard) {
      std::vector<sample> of_shard;
      for (std::size_t i = 0; i < samples.size(); ++i)
        if (tessera::shard_of(key, samples[i].session, static_cast<std::int64_t>(i), 4, seed) == shard) of_shard.push_back(samples[i]);
      tessera::session_log_store one({.shards = 1, .key = key, .block_bytes = 2000});
      append(one, of_shard, 0);
      auto const bytes = one.finish(h.exec);
      sum.messages += bytes.messages;
      sum.raw += bytes.raw;
      sum.compressed += bytes.compressed;
      sum.blocks += bytes.blocks;
    }
    auto const found = store.finish(h.exec);
    CHECK(found.messages == 900);
    CHECK(found.messages == sum.messages);
    CHECK(found.raw == sum.raw);
    CHECK(found.compressed == sum.compressed);
    CHECK(found.blocks == sum.blocks);
  }
}

TEST_CASE("session_log_store: samples without sessions are spread by sample alone") {
  plain_host h;
  std::mt19937_64 random(32);
  table_shape const shape{50};
  auto const schema = schema_of(shape, false);
  tessera::sample_columns columns(schema);
  tessera::session_log_store by_session({.key = tessera::sample_key::session}), by_sample({.key = tessera::sample_key::sample});
  by_session.append(h.exec, columns.view(), 0);
  fill(h.exec, schema, random_samples(random, shape), columns);
  auto const e = error_of([&] { by_session.append(h.exec, columns.view(), 0); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("sessions") == "0");
  CHECK(e.value("samples") == "50");
  CHECK(by_session.finish(h.exec).messages == 0);
  by_sample.append(h.exec, columns.view(), 0);
  CHECK(by_sample.finish(h.exec).messages == 50);
}
