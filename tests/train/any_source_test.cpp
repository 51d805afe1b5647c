// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 4
#include <tessera/train/any_source.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/sptt_tables.hpp>
#include <tessera/tower/tower_source.hpp>

#include "../embed/embedding_source_suite.hpp"
#include "trained_clicks.hpp"

namespace any_source_test {

using embed_tests::source_problem;
using tessera::any_source;
using tessera::host_exec;

static_assert(tessera::host_source<tessera::local_tables> && tessera::host_source<tessera::sharded_tables> &&
              tessera::host_source<tessera::sptt_tables<tessera::dlrm_tower>> &&
              tessera::host_source<tessera::tower_source<tessera::local_tables, tessera::dlrm_tower>>);

struct any_maker {
  using source_type = any_source;
  static constexpr bool refuses_ids = true;
  static source_type make(host_exec const& exec, source_problem const& problem) {
    tessera::table_list tables;
    for (std::size_t t = 0; t < problem.tables.size(); ++t)
      tables.add(tessera::dense_table<>(exec, problem.tables[t], tessera::sgd{}), tessera::sgd{.learning_rate = problem.rates[t]});
    return any_source(tessera::local_tables(std::move(tables), problem.features, {.sums = problem.sums}));
  }
};

}  // namespace any_source_test

namespace embed_tests {

TESSERA_EMBEDDING_SOURCE_TESTS("any_source", any_source_test::any_maker)

}  // namespace embed_tests

namespace any_source_test {

using namespace train_tests;

std::pair<std::int64_t, std::int64_t> all_samples(std::int64_t samples) { return {0, samples}; }

tessera::local_tables local(host_exec const& exec) {
  tessera::table_list list;
  for (auto const& spec : specs()) spec.add(exec, spec.table, list);
  return {std::move(list), features()};
}

TEST_CASE("any_source: what it holds trains to the bits that it has by itself, with parameters and without, also by chunks and ahead") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_data const data(random, 4);
  tessera::tower_partition const towers{{{1, 0}, {2}}};
  tessera::tower_options const with{.seed = tessera::random_seed{7}, .policy = tessera::any_gemm(tessera::eigen_gemm{})};
  tessera::dlrm_tower const recipe{.dim = dim, .p = 1, .c = 1};
  auto const where = tessera::topology::of_hosts(2, 2);
  auto const plan = tessera::plan_towers(specs(), features(), where, towers);
  serial_host host;
  auto const& exec = host.exec();
  for (auto const how : {way::steps, way::micro_batches, way::ahead})
    for (std::int64_t const chunks : {std::int64_t{0}, chunk}) {
      CAPTURE(chunks);
      auto const same_alone = [&](auto const& make) {
        auto const plain = learn<tessera::dot_products>(exec, make(), {.chunk_samples = chunks}, data, all_samples, how);
        auto const held = learn<tessera::dot_products>(exec, any_source(make()), {.chunk_samples = chunks}, data, all_samples, how);
        return same(plain, held);
      };
      CHECK(same_alone([&] { return local(exec); }));
      CHECK(same_alone([&] {
        return tessera::sharded_tables(exec, tessera::self_communicator(), specs(), features(), tessera::plan_by_bytes(specs(), 1));
      }));
      CHECK(same_alone([&] { return tessera::tower_source(exec, local(exec), towers, recipe, with); }));

      std::vector<serial_host> hosts(4);
      std::vector<char> is_same(4);
      tessera::run_thread_ranks(4, [&](tessera::thread_communicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        auto const part = [&](std::int64_t samples) {
          auto const bound = [&](int rank) { return rank == 4 ? samples : std::min(samples, (samples / chunk * rank / 4) * chunk); };
          return std::pair(bound(comm.rank()), bound(comm.rank() + 1));
        };
        auto const trained = [&](auto source) {
          return learn<tessera::dot_products>(hosts[r].exec(), std::move(source), {.comm = comm, .chunk_samples = chunks}, data, part, how);
        };
        auto const make = [&] {
          return tessera::sptt_tables(hosts[r].exec(), comm, where, specs(), features(), plan, towers, recipe, {.modules = with});
        };
        auto const plain = trained(make());
        is_same[r] = same(plain, trained(any_source(make())));
      });
      for (auto const one : is_same) CHECK(one);
    }
}

TEST_CASE("any_source: it says what it holds, and refuses what another source began") {
  serial_host host;
  auto const& exec = host.exec();
  tessera::tower_options const with{.policy = tessera::any_gemm(tessera::eigen_gemm{})};
  any_source plain = local(exec);
  any_source towered = tessera::tower_source(exec, local(exec), {{{0, 1}, {2}}}, tessera::dlrm_tower{.dim = dim}, with);
  auto* const held = plain.get_if<tessera::local_tables>();
  REQUIRE(held != nullptr);
  auto const moved = std::move(plain);
  plain = any_source(local(exec));
  CHECK(plain.get_if<tessera::local_tables>() != held);
  CHECK(towered.get_if<tessera::local_tables>() == nullptr);
  CHECK(moved.bytes() == held->bytes());
  CHECK(moved.places().parts.size() == 3);
  CHECK(moved.comm().size() == 1);
  CHECK(moved.parameter_count() == 0);
  CHECK(moved.towers_text().empty());
  CHECK(plain.groups().empty());
  CHECK(plain.blocks().empty());
  CHECK(towered.towers_text() == "dlrm_tower: 0 1, 2");
  CHECK(towered.parameter_count() > 0);
  CHECK(!towered.groups().empty());

  std::mt19937_64 random(1);
  click_data const data(random, 1);
  click_part const part(exec, data.all[0], 0, data.all[0].samples());
  any_source::saved_type saved;
  auto const finish = [&](any_source& source) { source.finish(exec, saved, {}); };
  CHECK_THROWS_WITH_AS(finish(plain), doctest::Contains("any_source: the batch was not begun"), tessera::error);
  plain.begin(exec, part.view, saved);
  CHECK_THROWS_WITH_AS(finish(towered), doctest::Contains("any_source: the batch was not begun"), tessera::error);
}

}  // namespace any_source_test
