// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/sampled_blocks.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <random.hpp>
#include <temporary_folder.hpp>

#include "sample_support.hpp"
#include "session_source.hpp"

using namespace sample_tests;
using tessera_tests::error_of;

namespace sampled_blocks_test {

namespace {

std::vector<std::int64_t> blocks_of(tessera::sampled_blocks<sample_list> const& drawn) {
  std::vector<std::int64_t> blocks;
  for (std::int64_t block = 0; block < drawn.block_count(); ++block) blocks.push_back(drawn.block_of(block));
  return blocks;
}

}  // namespace

TEST_CASE("sampled_blocks: as many blocks as asked for, rounded up, in their order; more have all of fewer; no other is read") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  table_shape const shape{.rows = 137};
  sample_list log(schema_of(shape), random_samples(random, shape), 3);
  std::set<std::int64_t> read;
  log.set_before_read([&](std::int64_t block) { read.insert(block); });
  plain_host h;
  std::vector<std::int64_t> fewer;
  for (double const percent : {0.001, 5.0, 33.3, 50.0, 99.9, 100.0}) {
    CAPTURE(percent);
    tessera::sampled_blocks const drawn(log, {.percent = percent, .seed = tessera::random_seed{seed}});
    auto const blocks = blocks_of(drawn);
    CHECK(drawn.block_count() == static_cast<std::int64_t>(std::ceil(static_cast<double>(log.block_count()) * percent / 100)));
    CHECK(std::is_sorted(blocks.begin(), blocks.end()));
    CHECK(std::adjacent_find(blocks.begin(), blocks.end()) == blocks.end());
    CHECK(std::includes(blocks.begin(), blocks.end(), fewer.begin(), fewer.end()));
    fewer = blocks;
    auto all = blocks_of(tessera::sampled_blocks(log, {.percent = percent, .seed = tessera::random_seed{seed}, .rest = true}));
    CHECK(static_cast<std::int64_t>(all.size()) == log.block_count() - drawn.block_count());
    all.insert(all.end(), blocks.begin(), blocks.end());
    std::sort(all.begin(), all.end());
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
    read.clear();
    CHECK(static_cast<std::int64_t>(read_all(h.exec, drawn).size()) == drawn.rows());
    CHECK(std::vector<std::int64_t>(read.begin(), read.end()) == blocks);
  }
}

TEST_CASE("sampled_blocks: seeds draw other blocks, each about as often") {
  std::mt19937_64 random(1);
  table_shape const shape{.rows = 20, .dense = 0, .sparse = 0};
  sample_list const log(schema_of(shape), random_samples(random, shape), 1);
  std::vector<int> drawn_times(20);
  for (std::uint64_t seed = 0; seed < 2000; ++seed)
    for (auto const block : blocks_of(tessera::sampled_blocks(log, {.percent = 25, .seed = tessera::random_seed{seed}})))
      ++drawn_times[static_cast<std::size_t>(block)];
  // 500 in the mean, with a deviation of 19.4.
  for (auto const times : drawn_times) CHECK(std::abs(times - 500) < 100);
}

TEST_CASE("sampled_blocks: a data set without samples, fingerprints, and what is refused") {
  std::mt19937_64 random(2);
  table_shape const shape{.rows = 30};
  sample_list log(schema_of(shape), random_samples(random, shape), 3);
  sample_list const none(schema_of(shape), {}, 3);
  CHECK(tessera::sampled_blocks(none, {.percent = 5}).block_count() == 0);
  CHECK(tessera::sampled_blocks(none, {.percent = 5}).rows() == 0);

  log.set_fingerprint(7);
  auto const print = [&](tessera::block_sampling sampling) { return tessera::sampled_blocks(log, sampling).fingerprint(); };
  CHECK(print({.percent = 30}) == print({.percent = 30}));
  CHECK(print({.percent = 30}) != print({.percent = 40}));
  CHECK(print({.percent = 30}) != print({.percent = 30, .seed = tessera::random_seed{1}}));
  auto const before = print({});
  log.set_fingerprint(8);
  CHECK(print({}) != before);

  for (double const percent : {0.0, -1.0, 100.1, std::nan("")})
    CHECK(error_of([&] { tessera::sampled_blocks(log, {.percent = percent}); }).code() == tessera::errc::invalid_argument);
  plain_host h;
  tessera::sample_columns out;
  tessera::sampled_blocks const drawn(log, {.percent = 50});
  CHECK(error_of([&] { drawn.read(h.exec, -1, out); }).code() == tessera::errc::out_of_range);
  CHECK(error_of([&] { drawn.read(h.exec, drawn.block_count(), out); }).code() == tessera::errc::out_of_range);
}

}  // namespace sampled_blocks_test
