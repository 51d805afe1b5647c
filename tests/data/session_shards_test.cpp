// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet
#include <tessera/data/session_shards.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/data/parquet_log.hpp>

#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include "sample_support.hpp"
#include "session_source.hpp"

using namespace sample_tests;
using tessera_tests::contents;
using tessera_tests::error_of;

TEST_CASE("write_session_shards: each sample once, a session in one shard, in the order of the source") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  table_shape const shape{1500, 2, 3, 3, 200};
  sample_list const source(schema_of(shape), random_samples(random, shape), 130);
  for (tessera::sample_key const key : {tessera::sample_key::session, tessera::sample_key::sample})
    for (double const rate : {1.0, 0.5}) {
      tessera::session_shards_options options{.shards = 5, .key = key, .selection = {rate, tessera::sample_key::session}};
      options.writer.row_group_rows = 100;
      std::vector<std::string> first;
      tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
        auto const result = tessera::write_session_shards(exec, source, folder.path(), "shards", options);
        REQUIRE(result.paths.size() == 5);
        CHECK(result.paths[3] == folder.file("shards/shard-00003.parquet"));
        CHECK(result.rows_read == 1500);
        std::vector<std::vector<sample>> expected(5);
        std::int64_t rows = 0;
        for (std::size_t i = 0; i < source.samples().size(); ++i) {
          auto const& s = source.samples()[i];
          if (!options.selection.keeps(s.session, 0)) continue;
          expected[static_cast<std::size_t>(tessera::shard_of(key, s.session, static_cast<std::int64_t>(i), 5))].push_back(s);
          ++rows;
        }
        CHECK(result.rows() == rows);
        std::vector<std::string> bytes;
        for (std::size_t i = 0; i < 5; ++i) {
          CHECK(read_all(exec, tessera::parquet_log({result.paths[i]}, source.schema())) == expected[i]);
          CHECK(result.written[i].rows == static_cast<std::int64_t>(expected[i].size()));
          CHECK(expected[i].size() > 50);
          bytes.push_back(contents(result.paths[i]));
        }
        if (first.empty()) first = bytes;
        CHECK(bytes == first);
        CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
      });
    }
}

TEST_CASE("write_session_shards: an error leaves the folder as it was, and what is out of range is refused") {
  std::mt19937_64 random(2);
  tessera_tests::temporary_folder folder;
  plain_host h;
  table_shape const shape{300};
  sample_list source(schema_of(shape), random_samples(random, shape), 100);
  tessera::write_session_shards(h.exec, source, folder.path(), "shards", {.shards = 2});
  auto const before = contents(folder.file("shards/shard-00001.parquet"));
  source.set_before_read([](std::int64_t block) {
    if (block == 2) throw std::runtime_error("no more");
  });
  CHECK_THROWS_AS(tessera::write_session_shards(h.exec, source, folder.path(), "shards", {.shards = 7}), std::runtime_error);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.file("shards")), {}) == 2);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK(contents(folder.file("shards/shard-00001.parquet")) == before);

  auto const refuse = [&](auto const& from, tessera::session_shards_options const& options) {
    return error_of([&] { tessera::write_session_shards(h.exec, from, folder.path(), "shards", options); }).code();
  };
  CHECK(refuse(source, {.shards = 0}) == tessera::errc::invalid_argument);
  CHECK(refuse(source, {.selection = {.rate = 2}}) == tessera::errc::invalid_argument);
  CHECK(refuse(source, {.key = static_cast<tessera::sample_key>(7)}) == tessera::errc::invalid_argument);
  sample_list const nameless(schema_of(shape, false), source.samples(), 100);
  CHECK(refuse(nameless, {}) == tessera::errc::invalid_argument);
  CHECK(refuse(nameless, {.key = tessera::sample_key::sample, .selection = {.rate = 0.5}}) == tessera::errc::invalid_argument);
  CHECK(tessera::write_session_shards(h.exec, nameless, folder.path(), "rows", {.key = tessera::sample_key::sample}).rows() == 300);
}
