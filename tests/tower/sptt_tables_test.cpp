// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 5
#include <tessera/tower/sptt_tables.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/tower/dcn_tower.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/tower_source.hpp>

#include "../shard/sharded_problem.hpp"
#include "drawn_towers.hpp"
#include "tower_source_suite.hpp"

namespace sptt_tables_test {

using namespace shard_tests;
using tower_tests::draw_ranks_of_table;
using tower_tests::draw_towers;
using tower_tests::hosts_and_towers;

namespace {

template <class Recipe>
tessera::sptt_tables<Recipe> one_rank(host_exec const& exec, source_problem const& problem, Recipe const& recipe) {
  auto const specs = specs_of(problem, hashed_tables(problem.tables.size(), false));
  return {exec,
          tessera::self_communicator(),
          tessera::topology::of_hosts(1, 1),
          specs,
          problem.features,
          tessera::plan_round_robin(tessera::options_of(specs), 1),
          tower_tests::suite_towers,
          recipe,
          {.modules = tower_tests::suite_modules()}};
}

struct one_rank_maker {
  using source_type = tessera::sptt_tables<>;
  static constexpr bool refuses_ids = true;
  static constexpr auto sums = tessera::shared_gradients::merged;
  static source_type make(host_exec const& exec, source_problem const& problem) { return one_rank(exec, problem, tessera::pass_through{}); }
};

struct one_rank_modules_maker {
  using source_type = tessera::sptt_tables<tessera::dlrm_tower>;
  static constexpr bool refuses_ids = true;
  static constexpr auto sums = tessera::shared_gradients::merged;
  static void change(source_problem& problem) { tower_tests::widen(problem); }
  static source_type make(host_exec const& exec, source_problem const& problem) {
    return tower_tests::with_identities(one_rank(exec, problem, tower_tests::suite_recipe));
  }
};

}  // namespace

TESSERA_EMBEDDING_SOURCE_TESTS("sptt_tables of one rank", one_rank_maker)
TESSERA_EMBEDDING_SOURCE_TESTS("sptt_tables of one rank with modules", one_rank_modules_maker)

constexpr hosts_and_towers layouts[] = {{1, 1, 1}, {1, 3, 2}, {2, 1, 2}, {2, 2, 2}, {3, 1, 3},
                                        {4, 2, 2}, {4, 1, 4}, {2, 2, 4}, {6, 1, 3}, {5, 1, 5}};

// Each table in one of the ways that its tower's ranks allow.
sharding_plan draw_plan(source_problem const& problem, hashed_tables const& hashed, tessera::topology const& where,
                        tessera::tower_partition const& towers, std::mt19937_64& random) {
  sharding_plan plan;
  for (std::size_t t = 0; t < problem.tables.size(); ++t) {
    auto const here = draw_ranks_of_table(problem, static_cast<std::int64_t>(t), where, towers, random);
    auto const table = static_cast<std::int64_t>(t);
    auto const way = random() % (hashed[t] ? 3 : 4);
    auto const shards = way == 0   ? tessera::table_wise(problem.tables, table, here[0])
                        : way == 1 ? tessera::column_wise(problem.tables, table, here)
                        : way == 2 ? tessera::row_wise(problem.tables, table, here)
                                   : tessera::data_parallel(problem.tables, table);
    plan.shards.insert(plan.shards.end(), shards.begin(), shards.end());
  }
  return plan;
}

TEST_CASE("sptt_tables: without modules, ranks with parts of every batch give and learn what one process does, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& layout : layouts)
    for (bool const weighted : {false, true}) {
      CAPTURE(layout.hosts);
      CAPTURE(layout.ranks_of_host);
      CAPTURE(layout.towers);
      CAPTURE(weighted);
      auto problem = usual_problem();
      if (weighted) problem.features[2].pooling = tessera::pooling::sum;  // a maximum is of an unweighted batch
      hashed_tables hashed(problem.tables.size());
      for (std::size_t t = 0; t < hashed.size(); ++t) hashed[t] = random() % 2 == 0;
      auto const where = tessera::topology::of_hosts(layout.hosts, layout.ranks_of_host);
      auto const towers = draw_towers(problem, layout.towers, random);
      auto const specs = specs_of(problem, hashed);
      auto const plan = random() % 3 == 0 ? tessera::plan_towers(specs, problem.features, where, towers)
                                          : draw_plan(problem, hashed, where, towers, random);
      check_source_as_one_process(problem, specs, static_cast<int>(where.ranks()), weighted, tessera::out_of_range_ids::refuse, random,
                                  draw_source_rows, [&](host_exec const& exec, any_communicator comm) {
                                    return tessera::sptt_tables<>(exec, std::move(comm), where, specs, problem.features, plan, towers);
                                  });
    }
}

TEST_CASE("sptt_tables: batches with groups give and learn what the definition says") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  hashed_tables const hashed{false, true, false, true, false};
  auto const where = tessera::topology::of_hosts(2, 2);
  auto const towers = draw_towers(problem, 2, random);
  auto const plan = draw_plan(problem, hashed, where, towers, random);
  check_groups_by_definition(problem, 4, random, [&](host_exec const& exec, any_communicator comm) {
    return tessera::sptt_tables<>(exec, std::move(comm), where, specs_of(problem, hashed), problem.features, plan, towers);
  });
}

TEST_CASE("sptt_tables: what cannot be is refused on all ranks, and named") {
  auto const problem = usual_problem();
  hashed_tables const hashed(problem.tables.size(), false);
  auto const specs = specs_of(problem, hashed);
  auto const where = tessera::topology::of_hosts(2, 1);
  tessera::tower_partition const towers{{{0, 3, 2}, {1, 4, 5, 6}}}, shared{{{0, 2}, {1, 3, 4, 5, 6}}}, short_one{{{0, 3}, {1, 4, 5, 6}}},
      three{{{0, 3}, {2}, {1, 4, 5, 6}}};
  auto const plan = tessera::plan_towers(specs, problem.features, where, towers);
  auto elsewhere = plan;
  for (auto& shard : elsewhere.shards)
    if (shard.table == 2) shard.rank = 1 - shard.rank;
  auto const said = [&](tessera::sharding_plan const& of, tessera::tower_partition const& first, tessera::tower_partition const& second) {
    std::vector<std::string> texts(2);
    std::vector<tessera_tests::serial_host> hosts(2);
    tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      texts[r] = tessera_tests::error_of([&] {
                   tessera::sptt_tables<> const source(hosts[r].exec(), comm, where, specs, problem.features, of, r == 0 ? first : second);
                 }).what();
    });
    return texts;
  };
  auto const says = [](std::vector<std::string> const& texts, char const* what) {
    return std::all_of(texts.begin(), texts.end(), [&](auto const& text) { return text.find(what) != std::string::npos; });
  };
  CHECK(says(said(elsewhere, towers, towers), "a shard lies outside of its tower's ranks (table 2"));
  CHECK(says(said(plan, shared, shared), "features of one table in towers of other hosts (table 0, feature 3, other feature 0)"));
  CHECK(says(said(plan, short_one, short_one), "a feature is in no tower (feature 2"));
  CHECK(says(said(plan, three, three), "the number of towers divides that of hosts, or is a multiple of it (towers 3, hosts 2)"));
  auto const disagree = said(plan, towers, {{{2, 3, 0}, {1, 4, 5, 6}}});
  CHECK(disagree[1].find("ranks disagree") != std::string::npos);
  CHECK(disagree[0].find("another rank failed") != std::string::npos);

  tessera_tests::serial_host host;
  auto const one = tessera::topology::of_hosts(1, 1);
  CHECK_THROWS_WITH_AS((tessera::sptt_tables<tessera::dcn_tower>(host.exec(), tessera::self_communicator(), one, specs, problem.features,
                                                                 tessera::plan_round_robin(tessera::options_of(specs), 1), towers)),
                       doctest::Contains("modules need tower_options::policy"), tessera::error);
}

// Blocks for what a source makes of a batch, and gradients of as many numbers.
struct output_blocks {
  std::vector<std::vector<float>> memory;
  std::vector<tessera::matrix_view<float>> out;
  std::vector<tessera::matrix_view<float const>> gradients;

  template <class Source>
  output_blocks(Source const& source, tessera::batch_view const& batch) {
    for (auto const& output : source.outputs()) {
      auto const rows = output.sequence ? batch.sparse.key(output.key).size() : batch.samples();
      memory.emplace_back(static_cast<std::size_t>(rows * output.width));
      out.push_back({memory.back().data(), rows, output.width});
      gradients.push_back(out.back());
    }
  }
  // Of pooled outputs alone: sequences of a batch with groups are other rows.
  std::vector<float> pooled(tessera::vector_view<tessera::embedding_output const> outputs) const {
    std::vector<float> all;
    for (std::size_t o = 0; o < memory.size(); ++o)
      if (!outputs[static_cast<std::int64_t>(o)].sequence) all.insert(all.end(), memory[o].begin(), memory[o].end());
    return all;
  }
};

TEST_CASE("sptt_tables: modules see the same vectors of batches with groups") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  constexpr int ranks = 4;
  hashed_tables const hashed(problem.tables.size(), false);
  auto const specs = specs_of(problem, hashed);
  auto const where = tessera::topology::of_hosts(2, 2);
  auto const towers = draw_towers(problem, 2, random);
  auto const plan = tessera::plan_towers(specs, problem.features, where, towers);
  tessera::dcn_tower const recipe{.dim = 8, .vectors = 2, .layers = 1, .rank = 3};
  tessera::sptt_options const options{.modules = {.policy = tessera::any_gemm(tessera::eigen_gemm{})}};
  auto const rows = draw_source_rows(random, 80);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    auto const part = part_of(rows, comm.rank() * std::int64_t{20}, comm.rank() * std::int64_t{20} + 20);
    std::vector<std::vector<float>> before, after, of_parameters;
    for (bool const grouped : {false, true}) {
      tessera::sptt_tables<tessera::dcn_tower> source(here, comm, where, specs, problem.features, plan, towers, recipe, options);
      source_batch const batch(here, problem, part, grouped);
      output_blocks blocks(source, batch.view());
      tessera::sptt_saved<tessera::dcn_tower> saved;
      source.begin(here, batch.view(), saved);
      source.finish(here, saved, blocks.out);
      before.push_back(blocks.pooled(source.outputs()));
      for (std::size_t o = 0; o < blocks.memory.size(); ++o)  // sequences learn nothing: their rows are others
        for (std::size_t i = 0; i < blocks.memory[o].size(); ++i)
          blocks.memory[o][i] = source.outputs()[static_cast<std::int64_t>(o)].sequence ? 0.0F : static_cast<float>(i % 7) / 7 - 0.4F;
      auto& gradient = of_parameters.emplace_back(static_cast<std::size_t>(source.parameter_count()), 7.0F);
      source.begin_backward(here, saved, blocks.gradients, gradient);
      source.finish_backward(here, saved);
      source.predict(here, batch.view(), blocks.out);
      after.push_back(blocks.pooled(source.outputs()));
    }
    CHECK(before[0] == before[1]);
    CHECK(of_parameters[0] == of_parameters[1]);
    CHECK(after[0] != before[0]);
    for (std::size_t i = 0; i < after[0].size(); ++i) CHECK(after[0][i] == doctest::Approx(after[1][i]).epsilon(1e-4));
  });
}

TEST_CASE("sptt_tables: modules over weighted batches make what one process makes") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto problem = usual_problem();
  problem.features[2].pooling = tessera::pooling::sum;  // a maximum is of an unweighted batch
  hashed_tables const hashed(problem.tables.size(), false);
  auto const specs = specs_of(problem, hashed);
  auto const where = tessera::topology::of_hosts(2, 2);
  auto const towers = draw_towers(problem, 2, random);
  auto const plan = draw_plan(problem, hashed, where, towers, random);
  tessera::dcn_tower const recipe{.dim = 8, .vectors = 1, .layers = 1, .rank = 3};
  tessera::tower_options const modules{.policy = tessera::any_gemm(tessera::eigen_gemm{})};
  auto const rows = draw_source_rows(random, 40);
  std::vector<tessera_tests::serial_host> hosts(4);
  tessera::run_thread_ranks(4, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    auto const part = part_of(rows, comm.rank() * std::int64_t{10}, comm.rank() * std::int64_t{10} + 10);
    source_batch const weighted(here, problem, part, false, true), plain(here, problem, part, false);
    tessera::sptt_tables<tessera::dcn_tower> const source(here, comm, where, specs, problem.features, plan, towers, recipe,
                                                          {.modules = modules});
    tessera::tower_source<tessera::local_tables, tessera::dcn_tower> const alone(here, local_of(here, problem, hashed), towers, recipe,
                                                                                 modules);
    output_blocks ranks(source, weighted.view()), one(alone, weighted.view()), unweighted(source, plain.view());
    source.predict(here, weighted.view(), ranks.out);
    source.predict(here, plain.view(), unweighted.out);
    alone.predict(here, weighted.view(), one.out);
    CHECK(ranks.memory == one.memory);
    CHECK(ranks.memory != unweighted.memory);
  });
}

TEST_CASE("sptt_tables: with modules, ranks may have no samples") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  hashed_tables const hashed(problem.tables.size(), false);
  auto const specs = specs_of(problem, hashed);
  auto const where = tessera::topology::of_hosts(2, 2);
  auto const towers = draw_towers(problem, 2, random);
  auto const plan = draw_plan(problem, hashed, where, towers, random);
  tessera::dcn_tower const recipe{.dim = 8, .vectors = 1, .layers = 1, .rank = 3};
  tessera::tower_options const modules{.policy = tessera::any_gemm(tessera::eigen_gemm{})};
  auto const rows = draw_source_rows(random, 40);
  std::array<std::int64_t, 5> const first{0, 10, 10, 40, 40};  // of each rank
  // One step, and what is made of the part after it.
  auto const learnt = [&](auto const& here, auto& source, auto& saved, std::int64_t begin, std::int64_t end) {
    source_batch const batch(here, problem, part_of(rows, begin, end), false);
    output_blocks blocks(source, batch.view());
    source.begin(here, batch.view(), saved);
    source.finish(here, saved, blocks.out);
    for (auto const& block : blocks.out)
      for (std::int64_t r = 0; r < block.rows(); ++r)
        for (std::int64_t c = 0; c < block.columns(); ++c) block(r, c) = static_cast<float>(c % 7) / 7 - 0.4F;
    std::vector<float> of_parameters(static_cast<std::size_t>(source.parameter_count()), 7.0F);
    source.begin_backward(here, saved, blocks.gradients, of_parameters);
    source.finish_backward(here, saved);
    return of_parameters;
  };
  tessera_tests::serial_host host;
  tessera::tower_source<tessera::local_tables, tessera::dcn_tower> alone(host.exec(), local_of(host.exec(), problem, hashed), towers,
                                                                         recipe, modules);
  decltype(alone)::saved_type saved_alone;
  learnt(host.exec(), alone, saved_alone, 0, 40);
  std::vector<tessera_tests::serial_host> hosts(4);
  tessera::run_thread_ranks(4, [&](tessera::thread_communicator& comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    auto const here = hosts[rank].exec();
    tessera::sptt_tables<tessera::dcn_tower> source(here, comm, where, specs, problem.features, plan, towers, recipe, {.modules = modules});
    tessera::sptt_saved<tessera::dcn_tower> saved;
    learnt(here, source, saved, first[rank], first[rank + 1]);
    source_batch const batch(here, problem, part_of(rows, first[rank], first[rank + 1]), false);
    output_blocks of_ranks(source, batch.view()), one(alone, batch.view());
    source.predict(here, batch.view(), of_ranks.out);
    alone.predict(here, batch.view(), one.out);
    for (std::size_t o = 0; o < one.memory.size(); ++o)
      for (std::size_t i = 0; i < one.memory[o].size(); ++i)
        CHECK(of_ranks.memory[o][i] == doctest::Approx(one.memory[o][i]).epsilon(1e-4));
  });
}

TEST_CASE("sptt_tables: a bad id on one rank ends the step on all, which then go on") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  constexpr int ranks = 6;
  hashed_tables const hashed(problem.tables.size(), false);
  auto const specs = specs_of(problem, hashed);
  auto const where = tessera::topology::of_hosts(3, 2);
  auto const towers = draw_towers(problem, 3, random);
  auto const plan = draw_plan(problem, hashed, where, towers, random);
  auto const rows = draw_source_rows(random, 10);
  auto bad = rows;
  bad[4][3] = {source_ids};
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    tessera::sptt_tables<> source(here, comm, where, specs, problem.features, plan, towers);
    tessera::sptt_saved<tessera::pass_through> saved;
    source_batch const good(here, problem, rows, false), broken(here, problem, bad, false);
    for (int time = 0; time < 2; ++time) {
      auto const& batch = comm.rank() == 4 ? broken : good;
      source.begin(here, batch.view(), saved);
      auto const e = tessera_tests::error_of([&] { source.finish(here, saved, batch.out()); });
      CHECK(e.code() == (comm.rank() == 4 ? tessera::errc::out_of_range : tessera::errc::rank_failed));
      if (comm.rank() == 4) CHECK(std::string(e.what()).find("feature 4") != std::string::npos);
      CHECK(std::string(e.what()).find("sptt_tables: id out of range") != std::string::npos);
      // Ranks 0, 2 and 4 are peers, and tell the other rank of their tower: all by the numbers of all ranks.
      if (comm.rank() != 4) CHECK(e.value("rank") == std::to_string(comm.rank() % 2 == 0 ? 4 : comm.rank() - 1));
    }
    forward(here, source, good, saved);
    naive_source before(problem);
    CHECK(before.gives(good));
    backward(here, source, good, saved);
  });
}

// A recipe whose module cannot be made on one rank.
struct failing_tower : tessera::dcn_tower {
  bool fails = false;
  auto make(host_exec const& exec, tessera::vector_view<std::int64_t const> widths, tessera::random_seed seed, std::uint32_t tower) const {
    if (fails) throw std::bad_alloc();
    return tessera::dcn_tower::make(exec, widths, seed, tower);
  }
};

TEST_CASE("sptt_tables: where a module cannot be made on one rank, no rank makes its tables") {
  auto const problem = usual_problem();
  hashed_tables const hashed(problem.tables.size(), false);
  auto const specs = specs_of(problem, hashed);
  auto const where = tessera::topology::of_hosts(2, 2);
  tessera::tower_partition const towers{{{0, 3, 2}, {1, 4, 5, 6}}};
  auto const plan = tessera::plan_towers(specs, problem.features, where, towers);
  std::vector<std::string> said(4);
  std::vector<tessera_tests::serial_host> hosts(4);
  tessera::run_thread_ranks(4, [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    failing_tower recipe{{.dim = 8, .vectors = 1, .layers = 1, .rank = 3}};
    recipe.fails = r == 1;
    try {
      tessera::sptt_tables<failing_tower> const source(hosts[r].exec(), comm, where, specs, problem.features, plan, towers, recipe,
                                                       {.modules = {.policy = tessera::any_gemm(tessera::eigen_gemm{})}});
      said[r] = "made";
    } catch (std::bad_alloc const&) {
      said[r] = "no memory";
    } catch (tessera::error const& e) {
      said[r] = "rank " + std::string(e.value("rank")) + " failed";
    }
  });
  CHECK(said == std::vector<std::string>{"rank 1 failed", "no memory", "rank 1 failed", "rank 1 failed"});
}

TEST_CASE("sptt_tables: gradients of parameters of another size end the backward on the rank, its tower and its peers") {
  auto const problem = usual_problem();
  std::mt19937_64 random(12);
  hashed_tables const hashed(problem.tables.size(), false);
  auto const specs = specs_of(problem, hashed);
  auto const where = tessera::topology::of_hosts(2, 2);
  tessera::tower_partition const towers{{{0, 3, 2}, {1, 4, 5, 6}}};
  auto const plan = tessera::plan_towers(specs, problem.features, where, towers);
  tessera::dcn_tower const recipe{.dim = 8, .vectors = 1, .layers = 1, .rank = 3};
  auto const rows = draw_source_rows(random, 12);
  std::vector<tessera_tests::serial_host> hosts(4);
  tessera::run_thread_ranks(4, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    source_batch const batch(here, problem, part_of(rows, comm.rank() * std::int64_t{3}, comm.rank() * std::int64_t{3} + 3), false);
    tessera::sptt_tables<tessera::dcn_tower> source(here, comm, where, specs, problem.features, plan, towers, recipe,
                                                    {.modules = {.policy = tessera::any_gemm(tessera::eigen_gemm{})}});
    output_blocks blocks(source, batch.view());
    tessera::sptt_saved<tessera::dcn_tower> saved;
    for (std::int64_t const wrong : {-1, 1, 0}) {
      std::vector<float> gradient(static_cast<std::size_t>(source.parameter_count() + (comm.rank() == 1 ? wrong : 0)));
      source.begin(here, batch.view(), saved);
      source.finish(here, saved, blocks.out);
      auto const back = [&] {
        source.begin_backward(here, saved, blocks.gradients, gradient);
        source.finish_backward(here, saved);
      };
      if (wrong == 0) {
        back();
        continue;
      }
      auto const e = tessera_tests::error_of(back);
      // Rank 3 is the peer of rank 1. Ranks 0 and 2 share their towers.
      CHECK(e.value("rank") == std::array{"1", "", "3", "1"}[static_cast<std::size_t>(comm.rank())]);
      if (comm.rank() != 1) continue;
      CHECK(e.code() == tessera::errc::shape_mismatch);
      CHECK(e.value("parameters") == std::to_string(source.parameter_count()));
      CHECK(e.value("gradients") == std::to_string(gradient.size()));
    }
  });
}

TEST_CASE("sptt_tables: a rank without memory anywhere in a step ends it on all") {
  auto const problem = usual_problem();
  std::mt19937_64 random(11);
  constexpr int ranks = 4, failing = 3;
  hashed_tables const hashed(problem.tables.size(), false);
  auto const specs = specs_of(problem, hashed);
  auto const where = tessera::topology::of_hosts(2, 2);
  auto const towers = draw_towers(problem, 2, random);
  auto const plan = draw_plan(problem, hashed, where, towers, random);
  tessera::dcn_tower const recipe{.dim = 8, .vectors = 2, .layers = 1, .rank = 3};
  tessera::sptt_options const options{.modules = {.policy = tessera::any_gemm(tessera::eigen_gemm{})}};
  auto const rows = draw_source_rows(random, 12);
  bool ends = false;
  for (std::int64_t allowed = 0; !ends; ++allowed) {
    CAPTURE(allowed);
    REQUIRE(allowed < 1000);
    std::vector<tessera_tests::serial_host> hosts(ranks);
    std::vector<tessera::errc> codes(ranks, tessera::errc::invalid_argument);
    bool is_without = false;
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto& host = hosts[static_cast<std::size_t>(comm.rank())];
      auto const here = host.exec();
      source_batch const batch(here, problem, part_of(rows, comm.rank() * std::int64_t{3}, comm.rank() * std::int64_t{3} + 3), false);
      try {
        tessera::sptt_tables<tessera::dcn_tower> source(here, comm, where, specs, problem.features, plan, towers, recipe, options);
        output_blocks blocks(source, batch.view());
        std::vector<float> gradient(static_cast<std::size_t>(source.parameter_count()));
        tessera::sptt_saved<tessera::dcn_tower> saved;
        if (comm.rank() == failing) host.memory().fail_after(allowed);
        source.begin(here, batch.view(), saved);
        source.finish(here, saved, blocks.out);
        source.begin_backward(here, saved, blocks.gradients, gradient);
        source.finish_backward(here, saved);
        host.memory().never_fail();
        tessera::barrier(here, comm, "the next step");
      } catch (std::bad_alloc const&) {
        is_without = comm.rank() == failing;
        comm.fail("no memory");
      } catch (tessera::error const& e) {
        codes[static_cast<std::size_t>(comm.rank())] = e.code();
        comm.fail(e.what());  // of all ranks: others of its tower may await it
      }
    });
    for (int rank = 0; rank < ranks; ++rank)
      CHECK(codes[static_cast<std::size_t>(rank)] ==
            (is_without && rank != failing ? tessera::errc::rank_failed : tessera::errc::invalid_argument));
    ends = !is_without;
  }
}

TEST_CASE("sptt_tables: a rank sends one message a tower to other hosts, where sharded_tables send one a rank") {
  std::mt19937_64 random(7);
  auto const problem = usual_problem();
  constexpr int hosts_count = 3, each = 2, ranks = hosts_count * each;
  hashed_tables const hashed(problem.tables.size(), false);
  auto const specs = specs_of(problem, hashed);
  auto const where = tessera::topology::of_hosts(hosts_count, each);
  auto const towers = draw_towers(problem, 3, random);
  auto const plan = tessera::plan_towers(specs, problem.features, where, towers);
  auto const rows = draw_source_rows(random, 10);
  std::vector<std::int64_t> flat_bytes(ranks), tower_bytes(ranks);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    source_batch const batch(here, problem, rows, false);
    auto const messages_of_a_step = [&](auto& source, tessera::sent_counts& sent) {
      typename std::remove_reference_t<decltype(source)>::saved_type saved;
      sent.clear();
      forward(here, source, batch, saved);
      backward(here, source, batch, saved);
      return tessera::sent_to(sent, [&](int to) { return to / each != comm.rank() / each; });
    };
    tessera::sent_counts of_flat, of_towers;
    sharded_tables flat(here, tessera::counting_communicator(comm, of_flat), specs, problem.features, plan);
    tessera::sptt_tables<> towered(here, tessera::counting_communicator(comm, of_towers), where, specs, problem.features, plan, towers);
    auto const flat_sent = messages_of_a_step(flat, of_flat), towers_sent = messages_of_a_step(towered, of_towers);
    CHECK(flat_sent.messages == 3 * (ranks - each));  // ids, vectors, gradients
    CHECK(towers_sent.messages == 3 * (hosts_count - 1));
    flat_bytes[static_cast<std::size_t>(comm.rank())] = flat_sent.bytes;
    tower_bytes[static_cast<std::size_t>(comm.rank())] = towers_sent.bytes;
  });
  // The same ids and vectors, in fewer messages.
  CHECK(std::accumulate(tower_bytes.begin(), tower_bytes.end(), std::int64_t{0}) <=
        std::accumulate(flat_bytes.begin(), flat_bytes.end(), std::int64_t{0}));
}

}  // namespace sptt_tables_test
