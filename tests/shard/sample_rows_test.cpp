// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 3
#include <tessera/shard/sample_rows.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/deduplicate.hpp>

#include "sharded_problem.hpp"

namespace sample_rows_test {

namespace {

using namespace shard_tests;
using tessera::codec;

// What one rank has of a batch: of the groups' keys the distinct rows alone. Outputs are theirs, gradients those of all samples.
struct grouped_part {
  grouped_part(host_exec const& exec, source_problem const& problem, source_rows const& rows, std::vector<std::int64_t> const& groups,
               bool weighted)
      : plain(exec, problem, rows, false, weighted), view(plain.view()) {
    auto const samples = plain.samples();
    if (!groups.empty()) {
      distinct = tessera::deduplicate(exec, view.sparse, groups);
      view.sparse = std::as_const(distinct).view().distinct;
      view.groups = std::as_const(distinct).view().groups;
    }
    for (std::int64_t key = 0; key < view.sparse.keys; ++key) {
      auto const& feature = problem.features[static_cast<std::size_t>(key)];
      auto const dim = problem.tables[static_cast<std::size_t>(feature.table)].dim;
      out.add(exec, feature.sequence ? view.sparse.key(key).size() : samples, dim);
    }
  }

  source_batch<host_exec> plain;  // with a row a sample, and its gradients
  tessera::inverse_keyed_jagged<> distinct;
  tessera::batch_view view;
  source_blocks<host_exec> out;
};

// Gives the blocks of all samples what came for distinct rows.
void expand_out(source_problem const& problem, grouped_part const& part) {
  auto const batch = part.view.inverse_keyed();
  for (std::int64_t key = 0; key < batch.keys(); ++key) {
    auto const& from = part.out.here()[static_cast<std::size_t>(key)];
    auto const& to = part.plain.given()[static_cast<std::size_t>(key)];
    auto const copy = [&](std::int64_t row, std::int64_t to_row) { std::copy_n(from.row(row), from.columns(), to.row(to_row)); };
    auto const bags = batch.distinct.key(key);
    std::int64_t next = 0;
    for (std::int64_t sample = 0; sample < part.plain.samples(); ++sample) {
      auto const inverse = batch.inverse(key);
      auto const row = inverse.empty() ? sample : inverse[sample];
      if (!problem.features[static_cast<std::size_t>(key)].sequence)
        copy(sample, sample);
      else
        for (auto p = bags.begin_of(row); p < bags.end_of(row); ++p) copy(p - bags.offsets[0], next++);
    }
  }
}

// Groups of a batch of seven keys: none, some, or all keys; bags that repeat, and such as do not.
std::vector<std::int64_t> draw_groups(std::mt19937_64& random) {
  std::vector<std::vector<std::int64_t>> const all{{}, {3, 1}, {2, 2}, {1, 2, 1}, {4}, {7}, {3, 2, 2}};
  return all[random() % all.size()];
}

// A model of one process, whose batches have a row a sample and whose vectors and gradients have travelled, against ranks with groups.
void check_expanded(source_problem const& problem, hashed_tables const& hashed, int ranks, cuts cut, bool weighted,
                    tessera::exchange_codecs const& codecs, std::mt19937_64& random) {
  constexpr int steps = 4;
  auto const plan = plan_of(problem, hashed, ranks, cut, random);
  struct step_batch {
    source_rows rows;
    std::vector<std::int64_t> first;
    std::vector<std::vector<std::int64_t>> groups;
  };
  std::vector<step_batch> all(steps);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto local = local_of(exec, problem, hashed);
  tessera::local_tables_saved saved;
  std::deque<source_batch<host_exec>> wholes;
  std::normal_distribution<float> draw;
  for (auto& one : all) {
    one.first.push_back(0);
    for (int r = 0; r < ranks; ++r) {
      one.first.push_back(one.first.back() + static_cast<std::int64_t>(random() % 4 == 0 ? 0 : random() % 20));
      one.groups.push_back(draw_groups(random));
    }
    one.rows = draw_source_rows(random, static_cast<std::size_t>(one.first.back()));
    auto& whole = wholes.emplace_back(exec, problem, one.rows, false, weighted);
    whole.fill_gradients([&] { return draw(random); });
    source_batch const arrived(exec, problem, one.rows, false, weighted);
    for (std::size_t key = 0; key < problem.features.size(); ++key)
      send(codecs.backward, whole.gradient_blocks()[key], arrived.gradient_blocks()[key]);
    forward(exec, local, whole, saved);
    forward(exec, local, arrived, saved);
    backward(exec, local, arrived, saved);
  }
  source_rows probe_rows(problem.features.size(), std::vector<std::vector<std::int64_t>>(source_ids));
  for (auto& key : probe_rows)
    for (std::int64_t id = 0; id < source_ids; ++id) key[static_cast<std::size_t>(id)] = {id};
  source_batch const probe(exec, problem, probe_rows, false);
  local.predict(exec, probe.view(), probe.out());

  auto const through = [&](std::vector<float> vector) { return travelled(codecs.forward, std::move(vector)); };
  std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    auto const here = hosts[rank].exec();
    sharded_tables source(here, any_communicator(comm), specs_of(problem, hashed), problem.features, plan,
                          {.codecs = codecs, .sums = tessera::shared_gradients::expanded});
    for (std::int64_t k = 0; k < source.outputs().size(); ++k)
      CHECK(source.outputs()[k].expanded_gradients == problem.features[static_cast<std::size_t>(k)].sequence);
    tessera::sharded_saved own;
    tessera::row_gradients sum;
    for (std::size_t s = 0; s < all.size(); ++s) {
      auto const first = all[s].first[rank], last = all[s].first[rank + 1];
      grouped_part const part(here, problem, part_of(all[s].rows, first, last), all[s].groups[rank], weighted);
      take_gradients(problem, wholes[s], part.plain, first);
      source.predict(here, part.view, part.out.there());
      expand_out(problem, part);
      CHECK(gives_part(problem, wholes[s], part.plain, first, through));
      source.begin(here, part.view, own);
      source.finish(here, own, part.out.there());
      expand_out(problem, part);
      CHECK(gives_part(problem, wholes[s], part.plain, first, through));
      source.begin_backward(here, own, part.plain.gradients());
      if (s % 2 == 0) {
        source.finish_backward(here, own);
      } else {  // the same step of gradients that are handed out
        source.gradients(here, own, sum);
        source.apply(here, sum);
      }
    }
    source_batch const found(here, problem, probe_rows, false);
    source.predict(here, found.view(), found.out());
    CHECK(gives_part(problem, probe, found, 0, through));
  });
}

}  // namespace

TEST_CASE("sharded_tables: expanded sums of batches with groups have the bits of one process with a row a sample") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int const ranks : {1, 2, 3, 4})
    for (auto const cut : {cuts::none, cuts::columns})
      for (bool const weighted : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(static_cast<int>(cut));
        CAPTURE(weighted);
        auto problem = usual_problem(tessera::shared_gradients::expanded);
        if (weighted) problem.features[2].pooling = tessera::pooling::sum;  // a maximum is of an unweighted batch
        hashed_tables hashed(problem.tables.size());
        for (std::size_t t = 0; t < hashed.size(); ++t) hashed[t] = random() % 2 == 0;
        check_expanded(problem, hashed, ranks, cut, weighted, {}, random);
      }
}

TEST_CASE("sharded_tables: expanded sums with codecs have the bits of one process whose vectors and gradients have travelled") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int const ranks : {1, 2, 3, 4})
    for (auto const codecs : {tessera::exchange_codecs{codec::fp16, codec::bf16}, tessera::exchange_codecs{codec::int8, codec::fp32},
                              tessera::exchange_codecs{codec::fp32, codec::int8}}) {
      CAPTURE(ranks);
      CAPTURE(static_cast<int>(codecs.forward));
      hashed_tables const hashed{false, true, false, true, false};
      check_expanded(usual_problem(tessera::shared_gradients::expanded), hashed, ranks, cuts::none, false, codecs, random);
    }
}

TEST_CASE("sharded_tables: expanded sums of tables that are cut by rows, or on all ranks, are refused by name") {
  auto const problem = usual_problem(tessera::shared_gradients::expanded);
  constexpr int ranks = 2;
  auto const specs = specs_of(problem, hashed_tables(5, false));
  auto const tables = tessera::options_of(specs);
  for (bool const is_everywhere : {false, true}) {
    auto plan = tessera::plan_round_robin(tables, ranks);
    auto const shards = is_everywhere ? tessera::data_parallel(tables, 3) : tessera::row_wise(tables, 3, std::vector<int>{0, 1});
    plan.shards.erase(plan.shards.begin() + 3);
    plan.shards.insert(plan.shards.end(), shards.begin(), shards.end());
    std::vector<tessera_tests::serial_host> hosts(ranks);
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
      auto const e = tessera_tests::error_of(
          [&] { sharded_tables const source(here, any_communicator(comm), specs, problem.features, plan, {.sums = problem.sums}); });
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value("table") == "3");
      CHECK(std::string(e.what()).find("expanded sums") != std::string::npos);
    });
  }
}

TEST_CASE("sharded_tables: with expanded sums, what one rank's data cannot have is thrown on all, and both go on") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem(tessera::shared_gradients::expanded);
  constexpr int ranks = 2;
  auto const specs = specs_of(problem, hashed_tables(5, false));
  auto const plan = tessera::plan_round_robin(tessera::options_of(specs), ranks);
  auto const rows = draw_source_rows(random, 12);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    sharded_tables source(here, any_communicator(comm), specs, problem.features, plan, {.sums = problem.sums});
    grouped_part const part(here, problem, rows, {3, 1}, false), shorter(here, problem, part_of(rows, 0, 6), {3, 1}, false);
    part.plain.fill_gradients([] { return 1.0F; });
    auto const before = all_rows(here, problem, source);
    auto broken = part.view;
    std::vector<tessera::row_group> groups(broken.groups.begin(), broken.groups.end());
    std::vector<std::int64_t> const inverse(12, 100);
    groups[0].inverse = inverse.data();
    broken.groups = groups;
    tessera::sharded_saved own;
    bool const is_here = comm.rank() == 1;
    auto const refuses = [&](tessera::errc code, auto const& call) {
      CHECK(tessera_tests::error_of(call).code() == (is_here ? code : tessera::errc::rank_failed));
      CHECK(same_bits(all_rows(here, problem, source), before));
    };
    refuses(tessera::errc::out_of_range, [&] {
      source.begin(here, is_here ? broken : part.view, own);
      source.finish(here, own, part.out.there());
    });
    source.begin(here, part.view, own);
    source.finish(here, own, part.out.there());
    refuses(tessera::errc::shape_mismatch, [&] {
      source.begin_backward(here, own, is_here ? shorter.plain.gradients() : part.plain.gradients());
      source.finish_backward(here, own);
    });
    source.begin(here, part.view, own);
    source.finish(here, own, part.out.there());
    source.begin_backward(here, own, part.plain.gradients());
    source.finish_backward(here, own);
    CHECK(!same_bits(all_rows(here, problem, source), before));
    CHECK(own.bytes() > 0);
  });
}

}  // namespace sample_rows_test
