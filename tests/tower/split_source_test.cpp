// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 3
#include <tessera/tower/split_source.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/split_columns.hpp>
#include <tessera/tower/sptt_tables.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_source.hpp>

#include "../shard/sharded_problem.hpp"

namespace split_source_test {

using namespace shard_tests;
using tessera::local_tables;
using tessera::split_source;
using tessera::split_tables;

namespace {

hashed_tables const some_hashed{false, true, false, false, true};

split_tables split_of(source_problem const& problem, hashed_tables const& hashed) {
  return tessera::split_columns(specs_of(problem, hashed), problem.features, {2, 3, 1, 5, 4});
}
local_tables local_pieces(host_exec const& exec, split_tables const& split, tessera::shared_gradients sums) {
  tessera::table_list list;
  for (auto const& spec : split.specs) spec.add(exec, spec.table, list);
  return {std::move(list), split.features, {.sums = sums}};
}

struct local_maker {
  using source_type = split_source<local_tables>;
  static constexpr bool refuses_ids = true;
  static source_type make(host_exec const& exec, source_problem const& problem) {
    auto const split = split_of(problem, hashed_tables(problem.tables.size(), false));
    return {local_pieces(exec, split, problem.sums), split};
  }
};

// All pieces of a table lie on the one rank.
struct one_rank_maker {
  using source_type = split_source<tessera::sptt_tables<>>;
  static constexpr bool refuses_ids = true;
  static constexpr auto sums = tessera::shared_gradients::merged;
  static source_type make(host_exec const& exec, source_problem const& problem) {
    auto const split = split_of(problem, hashed_tables(problem.tables.size(), false));
    tessera::tower_partition towers{{{}}};
    for (std::size_t f = 0; f < split.features.size(); ++f) towers.towers[0].push_back(static_cast<std::int64_t>(f));
    return {tessera::sptt_tables<>(exec, tessera::self_communicator(), tessera::topology::of_hosts(1, 1), split.specs, split.features,
                                   tessera::plan_round_robin(tessera::options_of(split.specs), 1), towers),
            split};
  }
};

// Towers of whole pieces, as even as can be, in another order than features have.
tessera::tower_partition deal_pieces(split_tables const& split, std::int64_t towers, std::mt19937_64& random) {
  std::vector<std::int64_t> of_piece(split.specs.size());
  for (std::size_t p = 0; p < of_piece.size(); ++p) of_piece[p] = static_cast<std::int64_t>(p) % towers;
  std::shuffle(of_piece.begin(), of_piece.end(), random);
  tessera::tower_partition partition;
  partition.towers.resize(static_cast<std::size_t>(towers));
  for (std::size_t f = 0; f < split.features.size(); ++f)
    partition.towers[static_cast<std::size_t>(of_piece[static_cast<std::size_t>(split.features[f].table)])].push_back(
        static_cast<std::int64_t>(f));
  for (auto& tower : partition.towers) std::shuffle(tower.begin(), tower.end(), random);
  return partition;
}

}  // namespace

TESSERA_EMBEDDING_SOURCE_TESTS("split_source of local tables", local_maker)
TESSERA_EMBEDDING_SOURCE_TESTS("split_source of sptt_tables of one rank", one_rank_maker)

TEST_CASE("split_columns: pieces, their names and places, by hand") {
  source_problem problem;
  problem.tables = {{.id = tessera::table_id{5}, .dim = 10, .rows = 3}, {.id = tessera::table_id{6}, .dim = 4, .rows = 3}};
  problem.rates = {1, 1};
  problem.features = {{.name = "a", .table = 0}, {.name = "b", .table = 1}, {.name = "c", .table = 0, .sequence = true}};
  auto const specs = specs_of(problem, {false, false});
  auto const split = tessera::split_columns(specs, problem.features, {2, 1});
  CHECK(split.of_tables == std::vector<tessera::column_piece>{{0, 0, 8}, {0, 8, 2}, {1, 0, 4}});
  CHECK(split.of_features == std::vector<tessera::column_piece>{{0, 0, 8}, {0, 8, 2}, {1, 0, 4}, {2, 0, 8}, {2, 8, 2}});
  CHECK(split.features[1].name == "a.1");
  CHECK(split.features[2].name == "b");
  CHECK(split.features[4].table == 1);
  CHECK(split.features[4].sequence);
  CHECK(split.specs[1].table.dim == 2);
  CHECK(split.specs[1].table.id == tessera::table_id{5});

  tessera_tests::serial_host host;
  split_source<local_tables> source(local_pieces(host.exec(), split, tessera::shared_gradients::merged), split);
  CHECK(source.outputs().size() == 3);
  CHECK(source.outputs()[2].name == "c");
  CHECK(source.outputs()[2].width == 10);
  CHECK(source.outputs()[2].key == 2);
  CHECK(source.outputs()[2].table == 0);
  auto const places = source.places();
  CHECK(places.tables.size() == 2);
  CHECK(places.tables[0].dim == 10);
  CHECK(places.parts.size() == 3);
  CHECK(places.parts[1].table == 0);
  CHECK(places.parts[1].first_column == 8);
  CHECK(places.parts[1].columns == 2);

  auto const refused = [&](std::vector<std::int64_t> const& pieces) {
    return tessera_tests::error_of([&] { tessera::split_columns(specs, problem.features, pieces); });
  };
  CHECK(refused({1}).value("numbers") == "1");
  CHECK(refused({4, 1}).value("pieces") == "4");
  CHECK(refused({4, 1}).value("id") == "5");
  CHECK(refused({1, 0}).value("table") == "1");

  // The widest piece is cut first; both of its features are then two.
  CHECK(tessera::split_for_towers(specs, problem.features, 3).specs.size() == 2);
  CHECK(tessera::split_for_towers(specs, problem.features, 4).features.size() == 5);
  CHECK(tessera::split_for_towers(specs, problem.features, 6).features.size() == 7);
  auto const few = tessera_tests::error_of([&] { tessera::split_for_towers(specs, problem.features, 8); });
  CHECK(few.value("towers") == "8");
  CHECK(few.value("features") == "3");
  CHECK(tessera_tests::error_of([&] { tessera::split_for_towers(specs, problem.features, 0); }).value("towers") == "0");
  CHECK(tessera_tests::error_of([&] {
          split_source<local_tables>(local_of(host.exec(), problem, {false, false}), split);
        }).value("width") == "10");
}

TEST_CASE("split_source: more towers than features give and learn what one process does with whole tables, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto problem = usual_problem();
  struct layout {
    std::int64_t hosts, each, towers;
  };
  for (auto const& on : {layout{9, 1, 9}, {5, 1, 10}, {4, 2, 8}})
    for (bool const weighted : {false, true}) {
      if (weighted) problem.features[2].pooling = tessera::pooling::sum;  // a maximum is of an unweighted batch
      CAPTURE(on.towers);
      auto const where = tessera::topology::of_hosts(on.hosts, on.each);
      auto const specs = specs_of(problem, some_hashed);
      auto const split = split_of(problem, some_hashed);
      auto const towers = deal_pieces(split, on.towers, random);
      auto const plan = tessera::plan_towers(split.specs, split.features, where, towers);
      check_source_as_one_process(
          problem, specs, static_cast<int>(where.ranks()), weighted, tessera::out_of_range_ids::refuse, random, draw_source_rows,
          [&](host_exec const& exec, any_communicator comm) {
            return split_source(tessera::sptt_tables<>(exec, std::move(comm), where, split.specs, split.features, plan, towers), split);
          });
    }
  tessera::tower_partition nine;
  for (std::int64_t f = 0; f < 9; ++f) nine.towers.push_back({f});
  auto const refused = tessera_tests::error_of([&] { tessera::check_towers(nine, 7); });
  CHECK(refused.value("towers") == "9");
  CHECK(refused.value("features") == "7");
}

TEST_CASE("split_source: batches with groups give and learn what the definition says") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  auto const where = tessera::topology::of_hosts(4, 1);
  auto const split = split_of(problem, some_hashed);
  auto const towers = deal_pieces(split, 8, random);
  auto const plan = tessera::plan_towers(split.specs, split.features, where, towers);
  check_groups_by_definition(problem, 4, random, [&](host_exec const& exec, any_communicator comm) {
    return split_source(tessera::sptt_tables<>(exec, std::move(comm), where, split.specs, split.features, plan, towers), split);
  });
}

TEST_CASE("split_source: what is wrong on one rank ends the step on all") {
  std::mt19937_64 random(5);
  auto const problem = usual_problem();
  auto const where = tessera::topology::of_hosts(2, 1);
  auto const split = split_of(problem, some_hashed);
  auto const towers = deal_pieces(split, 2, random);
  auto const plan = tessera::plan_towers(split.specs, split.features, where, towers);
  auto const rows = draw_source_rows(random, 10);
  std::vector<tessera_tests::serial_host> hosts(2);
  tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    split_source source(tessera::sptt_tables<>(here, comm, where, split.specs, split.features, plan, towers), split);
    decltype(source)::saved_type saved;
    source_batch const batch(here, problem, rows, false);
    auto view = batch.view();
    if (comm.rank() == 1) view.sparse.keys -= 1;
    source.begin(here, view, saved);
    auto const of_keys = tessera_tests::error_of([&] { source.finish(here, saved, batch.out()); });
    CHECK(of_keys.code() == (comm.rank() == 1 ? tessera::errc::shape_mismatch : tessera::errc::rank_failed));
    if (comm.rank() == 1) CHECK(of_keys.value("keys") == std::to_string(view.sparse.keys));
    // Offsets that fall, and the same error by `predict`.
    auto falling = batch.view();
    std::vector<std::int64_t> offsets(falling.sparse.offsets, falling.sparse.offsets + falling.sparse.first_row[falling.sparse.keys] + 1);
    offsets[1] = offsets.back() + 1;
    if (comm.rank() == 1) falling.sparse.offsets = offsets.data();
    source.begin(here, falling, saved);
    auto const of_offsets = tessera_tests::error_of([&] { source.finish(here, saved, batch.out()); });
    auto const predicted = tessera_tests::error_of([&] { source.predict(here, falling, batch.out()); });
    if (comm.rank() == 1) {
      auto const own = tessera_tests::error_of([&] { tessera::detail::validate_batch(here, falling.sparse); });
      CHECK(std::string(of_offsets.what()) == own.what());
      CHECK(std::string(predicted.what()) == own.what());
    } else {
      CHECK(of_offsets.code() == tessera::errc::rank_failed);
      CHECK(predicted.code() == tessera::errc::rank_failed);
    }
    // A batch under way stays as it is where another one is refused.
    source_batch const other(here, problem, part_of(rows, 3, 10), false);
    source.begin(here, batch.view(), saved);
    CHECK(tessera_tests::error_of([&] { source.begin(here, other.view(), saved); }).code() == tessera::errc::invalid_argument);
    source.finish(here, saved, batch.out());
    CHECK(naive_source(problem).gives(batch));
    auto out = batch.out();
    if (comm.rank() == 0) out[3] = out[3].columns_from(0, 4);
    source.begin(here, batch.view(), saved);
    auto const of_blocks = tessera_tests::error_of([&] { source.finish(here, saved, out); });
    CHECK(of_blocks.code() == (comm.rank() == 0 ? tessera::errc::shape_mismatch : tessera::errc::rank_failed));
    forward(here, source, batch, saved);
    naive_source before(problem);
    CHECK(before.gives(batch));
  });
}

TEST_CASE("split_source: modules over pieces make on hosts what they make in one process") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  auto const where = tessera::topology::of_hosts(4, 1);
  auto const split = split_of(problem, some_hashed);
  auto const towers = deal_pieces(split, 8, random);
  auto const plan = tessera::plan_towers(split.specs, split.features, where, towers);
  tessera::dlrm_tower const recipe{.dim = 6, .p = 1, .c = 0};
  tessera::tower_options const modules{.policy = tessera::any_gemm(tessera::eigen_gemm{})};
  auto const rows = draw_source_rows(random, 40);
  std::vector<tessera_tests::serial_host> hosts(4);
  tessera::run_thread_ranks(4, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    source_batch const batch(here, problem, part_of(rows, comm.rank() * std::int64_t{10}, comm.rank() * std::int64_t{10} + 10), false);
    split_source const on_hosts(tessera::sptt_tables<tessera::dlrm_tower>(here, comm, where, split.specs, split.features, plan, towers,
                                                                          recipe, {.modules = modules}),
                                split);
    split_source const alone(
        tessera::tower_source<local_tables, tessera::dlrm_tower>(here, local_pieces(here, split, problem.sums), towers, recipe, modules),
        split);
    auto const made_by = [&](auto const& source) {
      std::vector<std::vector<float>> made;
      std::vector<tessera::matrix_view<float>> out;
      for (auto const& output : source.outputs()) {
        auto const count = output.sequence ? batch.view().sparse.key(output.key).size() : batch.samples();
        made.emplace_back(static_cast<std::size_t>(count * output.width));
        out.push_back({made.back().data(), count, output.width});
      }
      source.predict(here, batch.view(), out);
      return made;
    };
    CHECK(on_hosts.outputs().size() == alone.outputs().size());
    for (auto const& output : alone.outputs())  // a key's name stands for its whole feature alone
      CHECK((output.key < 0 || output.name == split.whole[static_cast<std::size_t>(output.key)].name));
    CHECK(made_by(on_hosts) == made_by(alone));
  });
}

}  // namespace split_source_test
