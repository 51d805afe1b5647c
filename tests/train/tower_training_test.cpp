// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
// ctest-weight: 4
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/tower/dcn_tower.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/sptt_tables.hpp>
#include <tessera/tower/tower_source.hpp>

#include "trained_clicks.hpp"

namespace tower_training_test {

using namespace train_tests;

tessera::tower_options module_options() { return {.seed = tessera::random_seed{7}, .policy = tessera::any_gemm(tessera::eigen_gemm{})}; }

template <class Recipe>
learned learn_alone(click_data const& data, Recipe const& recipe, tessera::tower_partition const& towers,
                    tessera::trainer_options const& options, way how) {
  serial_host host;
  tessera::table_list list;
  for (auto const& spec : specs()) spec.add(host.exec(), spec.table, list);
  return learn<tessera::dot_products>(
      host.exec(),
      tessera::tower_source<tessera::local_tables, Recipe>(host.exec(), tessera::local_tables(std::move(list), features()), towers, recipe,
                                                           module_options()),
      options, data, [](std::int64_t samples) { return std::pair<std::int64_t, std::int64_t>(0, samples); }, how);
}

template <class Recipe>
std::vector<learned> learn_on(tessera::topology const& where, click_data const& data, Recipe const& recipe,
                              tessera::tower_partition const& towers, tessera::trainer_options const& options, way how) {
  auto const ranks = static_cast<int>(where.ranks());
  auto const plan = tessera::plan_towers(specs(), features(), where, towers);
  std::vector<learned> of_rank(static_cast<std::size_t>(ranks));
  std::vector<serial_host> hosts(of_rank.size());
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto with = options;
    with.comm = comm;
    auto const bound = [&](std::int64_t samples, int rank) {  // whole chunks a rank, for some ranks none
      return rank >= ranks ? samples : std::min(samples, (samples / chunk * rank / ranks) * chunk);
    };
    of_rank[r] = learn<tessera::dot_products>(
        hosts[r].exec(),
        tessera::sptt_tables<Recipe>(hosts[r].exec(), comm, where, specs(), features(), plan, towers, recipe,
                                     {.modules = module_options()}),
        with, data, [&](std::int64_t samples) { return std::pair(bound(samples, comm.rank()), bound(samples, comm.rank() + 1)); }, how);
  });
  return of_rank;
}

// What all ranks have in common: losses, and logits after training.
bool same_results(learned const& one, learned const& alone, std::int64_t logits) {
  return one.losses == alone.losses && std::equal(one.values.end() - logits, one.values.end(), alone.values.end() - logits);
}

template <class Recipe>
void check_recipe(Recipe const& recipe, bool takes_any_widths, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  click_data const data(random, 5);
  auto const logits = data.all[0].samples();
  tessera::tower_partition const two{{{1, 0}, {2}}}, three{{{2}, {0}, {1}}}, other{{{2}, {0, 1}}};
  tessera::tower_partition const whole{{{0, 1, 2}}}, last{{{0}, {2, 1}}};  // where no output says which key is the last
  struct layout {
    std::int64_t hosts, each;
    tessera::tower_partition const* towers;
  };
  // Hosts whose ranks are no neighbours: the peers of some ranks do not come in the order of their samples, so rows are summed in another.
  std::vector<std::string> const host_names{"a", "b", "b", "a"};
  auto const apart = learn_alone(data, recipe, two, {.chunk_samples = chunk}, way::steps);
  for (auto const& one : learn_on(tessera::topology::of_host_names(host_names), data, recipe, two, {.chunk_samples = chunk}, way::steps))
    for (std::size_t i = 0; i < apart.losses.size(); ++i) CHECK(one.losses[i] == doctest::Approx(apart.losses[i]).epsilon(1e-3));
  for (auto const how : {way::steps, way::micro_batches, way::ahead})
    for (auto const& of :
         {layout{1, 1, &two}, {1, 2, &other}, {2, 1, &two}, {2, 2, &other}, {3, 1, &three}, {4, 2, &two}, {1, 2, &whole}, {2, 1, &last}}) {
      if (!takes_any_widths && (of.towers == &whole || of.towers == &last)) continue;
      CAPTURE(of.hosts);
      CAPTURE(of.each);
      auto const where = tessera::topology::of_hosts(of.hosts, of.each);
      auto const alone = learn_alone(data, recipe, *of.towers, {.chunk_samples = chunk}, how);
      for (auto const& one : learn_on(where, data, recipe, *of.towers, {.chunk_samples = chunk}, how))
        CHECK(same_results(one, alone, logits));
      if (how != way::steps) continue;
      // Without chunks, sums have another order.
      for (auto const& one : learn_on(where, data, recipe, *of.towers, {}, how))
        for (std::size_t i = 0; i < alone.losses.size(); ++i) CHECK(one.losses[i] == doctest::Approx(alone.losses[i]).epsilon(1e-3));
    }
}

TEST_CASE("sptt_tables: with modules and chunks any ranks and towers have the bits of one process") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  check_recipe(tessera::dlrm_tower{.dim = dim, .p = 1, .c = 1}, false, seed);
  check_recipe(tessera::dcn_tower{.dim = dim, .vectors = 2, .layers = 2, .rank = 4}, true, seed);
}

}  // namespace tower_training_test
