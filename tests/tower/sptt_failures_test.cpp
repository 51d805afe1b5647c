// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 2
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/tower/dcn_tower.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/sptt_tables.hpp>
#include <tessera/tower/tower_partition.hpp>

#include "../shard/sharded_problem.hpp"
#include "drawn_towers.hpp"

namespace sptt_failures_test {

using namespace shard_tests;
using tessera::topology;
using tessera::tower_partition;

namespace {

// What each rank is told that makes sptt_tables of these arguments.
template <class Recipe = tessera::pass_through>
std::vector<tessera::error> refusals(int ranks, topology const& where, bool is_plannable, tower_partition const& towers,
                                     Recipe const& recipe = {}) {
  auto const problem = usual_problem();
  auto const specs = specs_of(problem, hashed_tables(problem.tables.size(), false));
  auto plan = tessera::plan_round_robin(tessera::options_of(specs), ranks);
  if (is_plannable) plan = tessera::plan_towers(specs, problem.features, where, towers);
  std::vector<tessera::error> errors(static_cast<std::size_t>(ranks), tessera::error(tessera::errc::invalid_argument, "none"));
  std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    errors[r] = tessera_tests::error_of([&] {
      tessera::sptt_tables<Recipe> const source(hosts[r].exec(), comm, where, specs, problem.features, plan, towers, recipe,
                                                {.modules = {.policy = tessera::any_gemm(tessera::eigen_gemm{})}});
    });
  });
  return errors;
}

tower_partition const two{{{0, 3, 2}, {1, 4, 5, 6}}};

// A tower on each of three hosts of two ranks, and a batch of ten samples a rank.
struct towered_problem {
  static constexpr int ranks = 6;
  source_problem problem = usual_problem();
  topology where = topology::of_hosts(3, 2);
  std::vector<tessera::table_spec> specs = specs_of(problem, hashed_tables(problem.tables.size(), false));
  tower_partition towers;
  tessera::sharding_plan plan;
  source_rows rows;

  explicit towered_problem(std::mt19937_64& random)
      : towers(tower_tests::draw_towers(problem, 3, random)),
        plan(tessera::plan_towers(specs, problem.features, where, towers)),
        rows(draw_source_rows(random, 60)) {}

  source_batch<host_exec> batch(host_exec const& here, int rank) const {
    return {here, problem, part_of(rows, 10 * rank, 10 * rank + 10), false};
  }
  tessera::sptt_tables<> source(host_exec const& here, tessera::thread_communicator& comm) const {
    return {here, comm, where, specs, problem.features, plan, towers};
  }
};

}  // namespace

TEST_CASE("sptt_tables and plan_towers: hosts with other numbers of ranks are refused, and named") {
  auto const problem = usual_problem();
  auto const specs = specs_of(problem, hashed_tables(problem.tables.size(), false));
  // Three ranks on two hosts, by the names that they would tell.
  auto const uneven = topology::of_host_names(std::vector<std::string>{"a", "a", "b"});
  auto const check = [](tessera::error const& e) {
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value("level") == "host");
    CHECK(e.value("ranks of domain 0") == "2");
    CHECK(e.value("domain") == "1");
    CHECK(e.value("its ranks") == "1");
  };
  for (auto const& e : refusals(3, uneven, false, two)) check(e);
  for (auto const& e : refusals(3, uneven, false, {{{0, 1, 2, 3, 4, 5, 6}}})) check(e);
  check(tessera_tests::error_of([&] { tessera::plan_towers(specs, problem.features, uneven, two); }));
  check(tessera_tests::error_of([&] { tessera::choose_tower_plan(specs, problem.features, uneven, two); }));
  for (auto const& e : refusals(3, topology::of_hosts(2, 2), false, two)) {
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value("topology") == "4");
    CHECK(e.value("ranks") == "3");
  }
  auto const three = tessera_tests::error_of([&] {
    tessera::plan_towers(specs, problem.features, topology::of_hosts(2, 2), {{{0, 3}, {2}, {1, 4, 5, 6}}});
  });
  CHECK(three.code() == tessera::errc::invalid_argument);
  CHECK(three.value("towers") == "3");
  CHECK(three.value("hosts") == "2");
  auto const chips = tessera_tests::error_of([&] {
    tessera::plan_towers(specs, problem.features, topology(2, {{.name = "chip", .domains = {{0}, {1}}}}), two);
  });
  CHECK(chips.value("name") == "host");
  CHECK(chips.value("levels") == "chip");
}

TEST_CASE("sptt_tables: modules of no elements are refused on all ranks") {
  for (std::int64_t const dim : {0, -1})
    for (auto const& e : refusals(2, topology::of_hosts(2, 1), true, two, tessera::dcn_tower{.dim = dim})) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(std::string(e.what()).find("dcn_tower: ") != std::string::npos);
      CHECK(e.value("dim") == std::to_string(dim));
    }
}

TEST_CASE("sptt_tables: where a rank fails in a tower's collective, all other ranks throw, and are told which") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  towered_problem const of(random);
  for (int failing = 0; failing < of.ranks; ++failing) {
    std::vector<tessera_tests::serial_host> hosts(of.ranks);
    tessera::run_thread_ranks(of.ranks, [&](tessera::thread_communicator& comm) {
      auto const rank = comm.rank();
      auto const here = hosts[static_cast<std::size_t>(rank)].exec();
      auto const batch = of.batch(here, rank);
      auto source = of.source(here, comm);
      tessera::sptt_saved<tessera::pass_through> saved;
      bool const fails = rank == failing;
      // Its text names the rank, whoever told of it; its value the rank that told. Not where a rank has left: who waited for it then leaves
      // too, and names it by its number among peers.
      auto const is_told = [&](auto const& call, char const* why, bool has_left = false) {
        auto const e = tessera_tests::error_of(call);
        std::string const text = e.what();
        CAPTURE(failing);
        CAPTURE(rank);
        CAPTURE(text);
        CHECK(text.find(why) != std::string::npos);
        if (fails) return e.code();
        CHECK(e.code() == tessera::errc::rank_failed);
        if (has_left) return e.code();
        CHECK(text.find("rank " + std::to_string(failing)) != std::string::npos);
        bool const is_near_by = rank / 2 == failing / 2 || rank % 2 == failing % 2;  // of its tower, or a peer
        CHECK((!is_near_by || e.value("rank") == std::to_string(failing)));
        return e.code();
      };
      auto out = batch.out_of(source);
      if (fails) out.pop_back();
      source.begin(here, batch.view(), saved);
      auto code = is_told([&] { source.finish(here, saved, out); }, "sptt_tables::finish: one block an output");
      CHECK((!fails || code == tessera::errc::shape_mismatch));
      forward(here, source, batch, saved);  // they go on
      naive_source before(of.problem);
      CHECK(before.gives(batch));
      auto gradients = batch.gradients_of(source);
      if (fails) gradients.pop_back();
      code = is_told(
          [&] {
            source.begin_backward(here, saved, gradients);
            source.finish_backward(here, saved);
          },
          "sptt_tables::begin_backward: one block an output");
      CHECK((!fails || code == tessera::errc::shape_mismatch));
      forward(here, source, batch, saved);
      CHECK(before.gives(batch));  // nothing has been learnt
      backward(here, source, batch, saved);
      tessera::barrier(here, comm, "the last step");

      // A rank that leaves: nobody goes on.
      if (fails) return comm.fail("out of power");
      is_told(
          [&] {
            source.begin(here, batch.view(), saved);
            source.finish(here, saved, batch.out_of(source));
          },
          "out of power", true);
    });
  }
}

TEST_CASE("sptt_tables: where a rank never comes, all others throw when the time is up") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  towered_problem const of(random);
  std::vector<tessera_tests::serial_host> hosts(of.ranks);
  std::latch others(of.ranks - 1);
  auto const run = [&](tessera::thread_communicator& comm) {
    auto const rank = comm.rank();
    auto const here = hosts[static_cast<std::size_t>(rank)].exec();
    auto const batch = of.batch(here, rank);
    std::optional<tessera::errc> code;
    try {
      auto source = of.source(here, comm);
      tessera::sptt_saved<tessera::pass_through> saved;
      if (rank == 3) return others.wait();
      forward(here, source, batch, saved);
    } catch (tessera::error const& e) {
      code = e.code();
    }
    if (rank != 3) others.count_down();
    CHECK((code == tessera::errc::timed_out || code == tessera::errc::rank_failed));  // another gave up first, and says so
  };
  tessera::run_thread_ranks(of.ranks, run, {.timeout_ms = 5000});
}

}  // namespace sptt_failures_test
