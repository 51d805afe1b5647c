// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/sptt_tables.hpp>
#include <tessera/tower/tower_source.hpp>
#include <tessera/train/checkpoint.hpp>

#include "trained_clicks.hpp"

namespace tower_checkpoint_test {

using namespace train_tests;

constexpr tessera::dlrm_tower recipe{.dim = dim, .p = 1, .c = 1};
tessera::tower_partition const towers{{{2}, {1, 0}}};

tessera::tower_options module_options() { return {.seed = tessera::random_seed{7}, .policy = tessera::any_gemm(tessera::eigen_gemm{})}; }

tessera::tower_source<tessera::local_tables, tessera::dlrm_tower> source_of_one(tessera::host_exec const& exec,
                                                                                tessera::tower_partition const& of = towers) {
  tessera::table_list list;
  for (auto const& spec : specs()) spec.add(exec, spec.table, list);
  return {exec, tessera::local_tables(std::move(list), features()), of, recipe, module_options()};
}
tessera::sptt_tables<tessera::dlrm_tower> source_of_ranks(tessera::host_exec const& exec, tessera::any_communicator comm,
                                                          tessera::topology const& where) {
  return {exec,    std::move(comm), where,
          specs(), features(),      tessera::plan_towers(specs(), features(), where, towers),
          towers,  recipe,          {.modules = module_options()}};
}

// Loads the newest checkpoint of a folder, if there is one, trains on this part of some batches, saves, and returns logits of the first.
template <class Source, class Part>
std::vector<float> go_on(tessera::host_exec const& exec, Source source, std::optional<tessera::any_communicator> comm,
                         std::string const& folder, click_data const& data, std::size_t first, std::size_t last, Part const& part) {
  tessera::click_model<Source, tessera::eigen_gemm, tessera::dot_products> model(
      exec, {.dense_features = numbers, .bottom_hidden = {8}, .top_hidden = {8}, .seed = tessera::random_seed{3}, .dim = dim},
      std::move(source));
  tessera::trainer run(exec, model, tessera::adam{.learning_rate = 0.02F}, {.comm = comm, .chunk_samples = chunk});
  if (first > 0) tessera::load_trainer(exec, tessera::open_newest_checkpoint(folder), run);
  for (auto b = first; b < last; ++b) {
    auto const [from, to] = part(data.all[b].samples());
    click_part const own(exec, data.all[b], from, to);
    run.step(exec, own.view);
  }
  tessera::save_checkpoint(exec, folder, run, {.step = static_cast<std::int64_t>(last)});
  click_part const whole(exec, data.all[0], 0, data.all[0].samples());
  typename decltype(model)::saved_type saved;
  saved.chunk_samples = chunk;
  auto const logits = model.predict(exec, whole.view, saved);
  return {logits.begin(), logits.end()};
}

std::vector<float> go_on_alone(std::string const& folder, click_data const& data, std::size_t first, std::size_t last) {
  serial_host host;
  return go_on(host.exec(), source_of_one(host.exec()), {}, folder, data, first, last,
               [](std::int64_t samples) { return std::pair<std::int64_t, std::int64_t>(0, samples); });
}

void go_on_ranks(tessera::topology const& where, std::string const& folder, click_data const& data, std::size_t first, std::size_t last,
                 std::vector<float> const& expected) {
  auto const ranks = static_cast<int>(where.ranks());
  std::vector<serial_host> hosts(static_cast<std::size_t>(ranks));
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const exec = hosts[static_cast<std::size_t>(comm.rank())].exec();
    auto const bound = [&](std::int64_t samples, int rank) {
      return rank >= ranks ? samples : std::min(samples, (samples / chunk * rank / ranks) * chunk);
    };
    auto const logits =
        go_on(exec, source_of_ranks(exec, comm, where), tessera::any_communicator(comm), folder, data, first, last,
              [&](std::int64_t samples) { return std::pair(bound(samples, comm.rank()), bound(samples, comm.rank() + 1)); });
    CHECK(logits == expected);
  });
}

TEST_CASE("checkpoints of towers go on under other hosts and ranks, and in one process, to the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_data const data(random, 7);
  tessera_tests::temporary_folder const folder;
  auto const alone = folder.file("alone"), ranks = folder.file("ranks");
  auto const first = go_on_alone(alone, data, 0, 2), second = go_on_alone(alone, data, 2, 4), third = go_on_alone(alone, data, 4, 6),
             last = go_on_alone(alone, data, 6, 7);
  go_on_ranks(tessera::topology::of_hosts(2, 2), ranks, data, 0, 2, first);
  go_on_ranks(tessera::topology::of_hosts(1, 3), ranks, data, 2, 4, second);
  go_on_ranks(tessera::topology::of_hosts(4, 1), ranks, data, 4, 6, third);
  CHECK(go_on_alone(ranks, data, 6, 7) == last);

  serial_host host;
  auto const exec = host.exec();
  tessera::click_model<tessera::tower_source<tessera::local_tables, tessera::dlrm_tower>, tessera::eigen_gemm, tessera::dot_products> other(
      exec, {.dense_features = numbers, .bottom_hidden = {8}, .top_hidden = {8}, .dim = dim},
      source_of_one(exec, tessera::tower_partition{{{2}, {0, 1}}}));
  CHECK_THROWS_WITH_AS(tessera::load_model(exec, tessera::open_newest_checkpoint(ranks), other), doctest::Contains("towers"),
                       tessera::error);
}

}  // namespace tower_checkpoint_test
