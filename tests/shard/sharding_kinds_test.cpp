// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 3
#include <tessera/shard/sharded_tables.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sharded_problem.hpp"

namespace sharding_kinds_test {

namespace {

using namespace shard_tests;

enum class cut_kind { table_wise, row_wise, column_wise, grid, grid_of_hosts, table_row_wise, table_column_wise, data_parallel, count };

// Tables of any dims, some of fewer rows than there are ranks, where others ask for ids past the end.
source_problem draw_problem(std::mt19937_64& random) {
  auto problem = usual_problem();
  for (auto& table : problem.tables) {
    table.dim = 1 + static_cast<std::int64_t>(random() % 40);
    table.rows = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(random() % 2 == 0 ? 7 : 50));
  }
  return problem;
}

std::vector<tessera::table_shard> shards_of_kind(cut_kind kind, tessera::vector_view<tessera::table_options const> tables, std::int64_t t,
                                                 int ranks, std::mt19937_64& random) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  auto const each = ranks % 2 == 0 ? ranks / 2 : ranks;
  auto const where = tessera::topology::of_hosts(ranks / each, each);
  auto const host = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(where.domains(0)));
  switch (kind) {
    case cut_kind::row_wise: return tessera::row_wise(tables, t, all);
    case cut_kind::column_wise: return tessera::column_wise(tables, t, all);
    case cut_kind::grid: {
      std::vector<std::vector<int>> blocks;  // of as many ranks each, so that hashed tables may have them
      for (int r = 0; r + each <= ranks; r += each) blocks.emplace_back(all.begin() + r, all.begin() + r + each);
      return tessera::grid(tables, t, blocks);
    }
    case cut_kind::grid_of_hosts: return tessera::grid_of_hosts(tables, t, where);
    case cut_kind::table_row_wise: return tessera::table_row_wise(tables, t, where, host);
    case cut_kind::table_column_wise: return tessera::table_column_wise(tables, t, where, host);
    case cut_kind::data_parallel: return tessera::data_parallel(tables, t);
    default: return tessera::table_wise(tables, t, all.front());
  }
}

}  // namespace

TEST_CASE("sharding kinds: tables of every kind, dense and hashed, learn what one process does, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int const ranks : {1, 2, 3, 4, 8})
    for (int first = 0; first < static_cast<int>(cut_kind::count); ++first)
      for (bool const weighted : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(first);
        CAPTURE(weighted);
        auto problem = draw_problem(random);
        if (weighted) problem.features[2].pooling = tessera::pooling::sum;  // a maximum is of an unweighted batch
        hashed_tables hashed;
        sharding_plan plan;
        for (std::size_t t = 0; t < problem.tables.size(); ++t) {
          auto const kind = static_cast<cut_kind>((static_cast<std::size_t>(first) + t) % static_cast<std::size_t>(cut_kind::count));
          hashed.push_back(random() % 2 == 0);
          for (auto const& shard : shards_of_kind(kind, problem.tables, static_cast<std::int64_t>(t), ranks, random))
            plan.shards.push_back(shard);
        }
        check_as_one_process(problem, specs_of(problem, hashed), plan, ranks, weighted, {.out_of_range = tessera::out_of_range_ids::zero},
                             random, draw_source_rows);
      }
}

TEST_CASE("hashed tables cut by rows: any ids, and rows are where their hashes say, each once") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr int ranks = 4;
  tessera::table_options const table{.id = tessera::table_id{3}, .dim = 8, .rows = 100, .most_rows = 1000};
  std::vector<tessera::table_spec> const specs{tessera::spec_of<tessera::hash_table<>>(table, tessera::sgd{})};
  sharding_plan const plan{tessera::row_wise(tessera::options_of(specs), 0, ranks)};
  std::vector<std::vector<std::int64_t>> bags(300);
  for (auto& bag : bags) bag = {static_cast<std::int64_t>(random()), static_cast<std::int64_t>(random() % 3)};
  std::vector<std::vector<std::int64_t>> held(ranks);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    auto const here = hosts[rank].exec();
    sharded_tables source(here, any_communicator(comm), specs, {{.name = "a", .table = 0}}, plan);
    auto const keys = tessera::keyed_jagged<>::from_rows(here, {{"a", rank == 1 ? bags : std::vector<std::vector<std::int64_t>>{}}});
    std::vector<float> numbers(rank == 1 ? bags.size() * 8 : 0);
    std::vector<tessera::matrix_view<float>> const out{{numbers.data(), rank == 1 ? static_cast<std::int64_t>(bags.size()) : 0, 8}};
    tessera::batch_view batch;
    batch.dense = {nullptr, out[0].rows(), 0};
    batch.sparse = keys.view();
    tessera::sharded_saved saved;
    source.begin(here, batch, saved);
    source.finish(here, saved, out);
    auto const parts = source.parts();
    REQUIRE(parts.size() == 1);
    CHECK(parts[0]->options().first_row == 0);
    CHECK(parts[0]->options().rows == 25);
    CHECK(parts[0]->options().most_rows == 250);
    held[rank].resize(static_cast<std::size_t>(parts[0]->rows()));
    std::vector<std::int64_t> slots(held[rank].size());
    parts[0]->list_rows(slots, held[rank]);
    for (auto const id : held[rank]) CHECK(tessera::hashed_row(id, 100) / 25 == comm.rank());
    auto const place = source.places().parts[0];
    CHECK(place.first_row == 25 * comm.rank());
    CHECK(place.rows == 25);
    CHECK(place.hashed_rows == 100);
  });
  std::vector<std::int64_t> all, expected;
  for (auto const& ids : held) {
    CHECK(ids.size() > 30);  // of about 76
    all.insert(all.end(), ids.begin(), ids.end());
  }
  for (auto const& bag : bags) expected.insert(expected.end(), bag.begin(), bag.end());
  for (auto* const ids : {&all, &expected}) std::sort(ids->begin(), ids->end());
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  CHECK(all == expected);
}

TEST_CASE("hashed_row: consecutive, random and extreme ids spread evenly") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int64_t const rows : {1, 2, 7, 1000}) {
    for (bool const draws : {false, true}) {
      std::vector<int> counts(static_cast<std::size_t>(rows));
      for (std::int64_t i = 0; i < 100 * rows; ++i) {
        auto const row = tessera::hashed_row(draws ? static_cast<std::int64_t>(random()) : i, rows);
        REQUIRE(row >= 0);
        REQUIRE(row < rows);
        ++counts[static_cast<std::size_t>(row)];
      }
      CHECK(*std::min_element(counts.begin(), counts.end()) > 30);  // of 100, where a deviation is 10
      CHECK(*std::max_element(counts.begin(), counts.end()) < 190);
    }
  }
  auto const most = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  for (auto const id : {most, least, std::int64_t{-1}}) {
    CHECK(tessera::hashed_row(id, most) >= 0);
    CHECK(tessera::hashed_row(id, 1) == 0);
  }
  static_assert(tessera::hashed_row(0, 5) == 0);
  CHECK(tessera::share_of_limit(most, 1, 3) == most);
  CHECK(tessera::share_of_limit(10, 1, 3) == 4);
  CHECK(tessera::share_of_limit(most - 1, 3, 3) == most - 1);
}

}  // namespace sharding_kinds_test
