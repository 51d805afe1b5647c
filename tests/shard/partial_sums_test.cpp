// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 3
#include <tessera/shard/partial_sums.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "sharded_problem.hpp"

namespace partial_sums_test {

namespace {

using namespace shard_tests;

// Tables of any dims, each read by sums, means or both, with a plan that cuts their rows and returns partial sums.
struct partial_case {
  source_problem problem;
  hashed_tables hashed;
  sharding_plan plan;
};
partial_case draw_partial(int ranks, cuts cut, std::vector<tessera::pooling> const& poolings, std::mt19937_64& random,
                          bool with_hashed = false) {
  auto problem = usual_problem();
  for (auto& table : problem.tables) {
    table.dim = 1 + static_cast<std::int64_t>(random() % 40);
    table.rows = source_ids + static_cast<std::int64_t>(random() % 3);
  }
  for (auto& feature : problem.features) {
    feature.sequence = false;
    feature.pooling = poolings[random() % poolings.size()];
  }
  hashed_tables hashed;
  for (std::size_t t = 0; t < problem.tables.size(); ++t) hashed.push_back(with_hashed && random() % 2 == 0);
  auto plan = plan_of(problem, hashed, ranks, cut, random);
  for (std::int64_t t = 0; t < 5; ++t) plan.partial.push_back(t);
  return {std::move(problem), std::move(hashed), std::move(plan)};
}

std::vector<tessera::table_spec> dense_specs(source_problem const& problem) {
  return specs_of(problem, hashed_tables(problem.tables.size(), false));
}

// Of at most five ids, each weighted by 1.5 at most.
constexpr double sum_roundings = 2 * (5 + 1) * 5 * 1.5;

}  // namespace

TEST_CASE("partial_sums: ranks give what one process does within the bound, and learn of sums what it does bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int const ranks : {1, 2, 3, 4, 8})
    for (auto const cut : {cuts::rows, cuts::any})
      for (bool const weighted : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(static_cast<int>(cut));
        CAPTURE(weighted);
        auto const [problem, hashed, plan] = draw_partial(ranks, cut, {tessera::pooling::sum}, random, true);
        check_as_one_process(problem, specs_of(problem, hashed), plan, ranks, weighted, {}, random, draw_source_rows, {sum_roundings, 0});
      }
}

TEST_CASE("partial_sums: a mean divides by its whole bag, beside sums of the same table") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int const ranks : {1, 2, 3, 4, 8})
    for (bool const weighted : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(weighted);
      auto const [problem, hashed, plan] = draw_partial(ranks, cuts::rows, {tessera::pooling::sum, tessera::pooling::mean}, random, true);
      // A row's gradient is a sum of a few hundred numbers of about 1, each rounded once more, in four steps.
      check_as_one_process(problem, specs_of(problem, hashed), plan, ranks, weighted, {}, random, draw_source_rows,
                           {4 * sum_roundings, 2000});
    }
}

TEST_CASE("partial_sums: bags of one shard alone, and ids that no shard has, keep the bits of one process") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr int ranks = 4;
  for (bool const weighted : {false, true}) {
    auto [problem, hashed, plan] = draw_partial(ranks, cuts::rows, {tessera::pooling::sum}, random);
    plan.shards.clear();
    for (auto& table : problem.tables) table.rows = source_ids;
    auto const specs = dense_specs(problem);
    for (std::int64_t t = 0; t < 5; ++t)
      for (auto const& shard : tessera::row_wise(tessera::options_of(specs), t, ranks)) plan.shards.push_back(shard);
    auto const draw_apart = [](std::mt19937_64& from, std::size_t samples) {
      auto rows = draw_source_rows(from, samples);
      for (auto& key : rows)
        for (auto& bag : key) {
          auto const first = static_cast<std::int64_t>(from() % ranks) * (source_ids / ranks);
          for (auto& id : bag) id = from() % 8 == 0 ? -1 : first + id % (source_ids / ranks);
        }
      return rows;
    };
    check_as_one_process(problem, specs, plan, ranks, weighted, {.out_of_range = tessera::out_of_range_ids::zero}, random, draw_apart);
    // The vectors of means, too: their rows learn nothing here.
    for (auto& feature : problem.features) feature.pooling = tessera::pooling::mean;
    problem.rates.assign(problem.rates.size(), 0);
    check_as_one_process(problem, dense_specs(problem), plan, ranks, weighted, {.out_of_range = tessera::out_of_range_ids::zero}, random,
                         draw_apart);
  }
}

TEST_CASE("partial_sums: tables with fewer rows than ranks, and ranks that hold nothing") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr int ranks = 8;
  auto [problem, hashed, plan] = draw_partial(ranks, cuts::rows, {tessera::pooling::sum}, random);
  plan.shards.clear();
  for (std::size_t t = 0; t < 5; ++t) problem.tables[t].rows = std::vector<std::int64_t>{5, 3, 2, 1, 7}[t];
  auto const specs = dense_specs(problem);
  for (std::int64_t t = 0; t < 5; ++t)
    for (auto const& shard : tessera::row_wise(tessera::options_of(specs), t, ranks)) plan.shards.push_back(shard);
  check_as_one_process(problem, specs, plan, ranks, false, {.out_of_range = tessera::out_of_range_ids::zero}, random, draw_source_rows,
                       {sum_roundings, 0});
}

TEST_CASE("partial_sums: batches with groups, and codecs, give and learn what the definition says") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr int ranks = 3;
  for (bool const grouped : {false, true})
    for (auto const with : {tessera::codec::fp32, tessera::codec::fp16}) {
      CAPTURE(grouped);
      CAPTURE(static_cast<int>(with));
      auto const drawn = draw_partial(ranks, cuts::any, {tessera::pooling::sum, tessera::pooling::mean}, random);
      auto const& problem = drawn.problem;
      std::vector<tessera_tests::serial_host> hosts(ranks);
      naive_source naive(problem);
      auto const rows = draw_source_rows(random, 60);
      auto const batches = one_step(hosts, problem, rows, grouped, random, naive);
      std::vector<std::vector<float>> first_rows(ranks), again_rows(ranks);
      for (auto* all : {&first_rows, &again_rows})
        tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
          auto const r = static_cast<std::size_t>(comm.rank());
          auto const here = hosts[r].exec();
          sharded_tables source(here, any_communicator(comm), dense_specs(problem), problem.features, drawn.plan,
                                {.codecs = {.forward = with, .backward = with}});
          naive_source before(problem);
          tessera::sharded_saved own;
          source_batch const batch(here, problem, batches[r].rows(), grouped);
          for (std::size_t key = 0; key < problem.features.size(); ++key)
            for (std::int64_t row = 0; row < batch.samples(); ++row)
              std::copy_n(batches[r].gradient_blocks()[key].row(row), batch.gradient_blocks()[key].columns(),
                          batch.gradient_blocks()[key].row(row));
          forward(here, source, batch, own);
          if (with == tessera::codec::fp32) CHECK(before.gives(batch));
          backward(here, source, batch, own);
          source_batch const after(here, problem, batch.rows(), false);
          source.predict(here, after.view(), after.out());
          auto expected = naive;
          if (with == tessera::codec::fp32) CHECK(expected.gives(after));
          (*all)[r] = all_rows(here, problem, source);
        });
      CHECK(first_rows == again_rows);  // equal batches, equal bits
      // What has travelled is near what has not: fp16 keeps 11 bits, of sums of a few hundred numbers below 8.
      if (with == tessera::codec::fp32) continue;
      auto local = local_of(hosts[0].exec(), problem, hashed_tables(5, false));
      source_batch const whole(hosts[0].exec(), problem, rows, false);
      for (int r = 0; r < ranks; ++r)
        for (std::size_t key = 0; key < problem.features.size(); ++key)
          for (std::int64_t row = 0; row < 20; ++row)
            std::copy_n(batches[static_cast<std::size_t>(r)].gradient_blocks()[key].row(row), whole.gradient_blocks()[key].columns(),
                        whole.gradient_blocks()[key].row(r * 20 + row));
      tessera::local_tables_saved saved;
      forward(hosts[0].exec(), local, whole, saved);
      backward(hosts[0].exec(), local, whole, saved);
      auto const exact = all_rows(hosts[0].exec(), problem, local);
      for (std::size_t r = 0; r < ranks; ++r) {
        bool near = exact.size() == first_rows[r].size();
        for (std::size_t i = 0; near && i < exact.size(); ++i) near = is_near(first_rows[r][i], exact[i], 0.1);
        CHECK(near);
      }
    }
}

TEST_CASE("partial_sums: what is no sum is refused on all ranks, and so are plans that differ in it") {
  constexpr int ranks = 2;
  auto const problem = usual_problem();
  std::vector<tessera_tests::serial_host> hosts(ranks);
  auto const specs = dense_specs(problem);
  auto const refused = [&](std::vector<std::int64_t> const& partial, bool on_all, tessera::errc code, char const* part) {
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
      auto plan = tessera::plan_round_robin(tessera::options_of(specs), ranks);
      bool const is_changed = on_all || comm.rank() == 1;
      if (is_changed) plan.partial = partial;
      auto const e =
          tessera_tests::error_of([&] { sharded_tables const source(here, any_communicator(comm), specs, problem.features, plan); });
      CHECK(e.code() == (is_changed ? code : tessera::errc::rank_failed));
      CHECK(std::string(e.what()).find(part) != std::string::npos);
      tessera::barrier(here, comm);
    });
  };
  refused({2}, true, tessera::errc::invalid_argument, "pooled by maximum (table 2, feature c");
  refused({3}, true, tessera::errc::invalid_argument, "read as a sequence or pooled by maximum (table 3, feature f");
  refused({5}, true, tessera::errc::invalid_argument, "not there, or is listed twice (table 5, tables 5");
  refused({4, 4}, true, tessera::errc::invalid_argument, "listed twice (table 4");
  refused({4}, false, tessera::errc::incompatible, "partial sums of tables 4");
}

}  // namespace partial_sums_test
