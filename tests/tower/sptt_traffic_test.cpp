// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
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

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/exchange_costs.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/sptt_tables.hpp>

namespace sptt_traffic_test {

namespace {

using tessera::exchange_shape;
using tessera::rank_exchange_costs;

constexpr std::int64_t rows = 48;
constexpr std::int64_t dim = 16;

struct layout {
  std::int64_t hosts, ranks_of_host, towers;
};
constexpr layout layouts[] = {{1, 2, 1}, {2, 1, 2}, {2, 2, 2}, {3, 2, 3}, {4, 2, 2}, {4, 1, 4}, {2, 2, 4}, {3, 1, 1}};

// Tables of a feature each, the towers of all of them, and where their shards lie.
struct problem {
  std::vector<tessera::table_spec> specs;
  std::vector<tessera::table_feature> features;
  std::vector<std::int64_t> ids_a_sample;
  tessera::tower_partition towers;
  tessera::sharding_plan plan;
  exchange_shape shape;
};

enum class shards { whole, columns, rows };

problem draw_problem(layout const& of, tessera::topology const& where, std::mt19937_64& random) {
  auto const draw = [&](std::int64_t least, std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(least, most)(random); };
  problem made;
  tessera::tower_ranks const ranks(where, of.towers);
  made.towers.towers.resize(static_cast<std::size_t>(of.towers));
  for (std::int64_t t = 0; t < of.towers + draw(0, 5); ++t) {
    auto const tower = t < of.towers ? t : draw(0, of.towers - 1);
    made.towers.towers[static_cast<std::size_t>(tower)].push_back(t);
    tessera::table_options const options{.id = tessera::table_id{t}, .dim = dim, .rows = rows, .init_bound = 0.1F};
    made.specs.push_back(tessera::spec_of<tessera::dense_table<>>(options, tessera::sgd{.learning_rate = 0.1F}));
    bool const is_sequence = draw(0, 3) == 0;
    made.features.push_back({.name = std::to_string(t), .table = t, .sequence = is_sequence});
    std::vector<int> here;
    for (int r = 0; r < static_cast<int>(where.ranks()); ++r)
      if (ranks.group_of(r) == ranks.group_of_tower(tower)) here.push_back(r);
    auto const way = static_cast<shards>(draw(0, is_sequence ? 1 : 2));
    // By rows, an id a sample, so that each shard has as many.
    made.ids_a_sample.push_back(way == shards::rows ? 1 : draw(0, 3));
    auto const tables = tessera::options_of(made.specs);
    auto const cut = way == shards::whole     ? tessera::table_wise(tables, t, here[static_cast<std::size_t>(draw(0, 99)) % here.size()])
                     : way == shards::columns ? tessera::column_wise(tables, t, here)
                                              : tessera::row_wise(tables, t, here);
    if (way == shards::rows) made.plan.partial.push_back(t);
    for (auto const& shard : cut) {
      made.plan.shards.push_back(shard);
      made.shape.features.push_back({shard.rank, shard.columns, made.ids_a_sample.back(), t, shard.first_column,
                                     way == shards::rows ? static_cast<std::int64_t>(cut.size()) : 1, is_sequence, is_sequence});
    }
  }
  made.shape.route = tessera::exchange_route::towers;
  made.shape.grid = {where.ranks(), of.hosts, of.towers < of.hosts ? of.hosts / of.towers : 1};
  made.shape.samples = rows * draw(1, 2) / 2;
  made.shape.codecs = {tessera::all_codecs[draw(0, 5)], tessera::all_codecs[draw(0, 5)]};
  return made;
}

// Ids that each shard of rows has as many of.
tessera::keyed_jagged<> ids_of(tessera::host_exec const& exec, problem const& of) {
  std::vector<tessera::feature_rows<>> bags;
  for (std::size_t f = 0; f < of.features.size(); ++f) {
    std::vector<std::vector<std::int64_t>> of_key;
    for (std::int64_t s = 0; s < of.shape.samples; ++s)
      of_key.emplace_back(static_cast<std::size_t>(of.ids_a_sample[f]), s * (rows / of.shape.samples));
    bags.emplace_back(of.features[f].name, of_key);
  }
  return tessera::keyed_jagged<>::from_rows(exec, bags);
}

// What each rank sends in a step.
template <class Recipe>
std::vector<tessera::sent_counts> sent_in_a_step(problem const& of, tessera::topology const& where, Recipe const& recipe) {
  auto const ranks = static_cast<std::size_t>(where.ranks());
  std::vector<tessera::sent_counts> sent(ranks);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(static_cast<int>(ranks), [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto const exec = hosts[r].exec();
    tessera::sptt_tables<Recipe> tables(exec, tessera::counting_communicator(comm, sent[r]), where, of.specs, of.features, of.plan,
                                        of.towers, recipe,
                                        {.codecs = of.shape.codecs, .modules = {.policy = tessera::any_gemm(tessera::eigen_gemm{})}});
    auto const ids = ids_of(exec, of);
    tessera::batch_view batch;
    batch.dense = {nullptr, of.shape.samples, 0};
    batch.sparse = ids.view();
    std::vector<std::vector<float>> floats;
    std::vector<tessera::matrix_view<float>> out;
    for (auto const& output : tables.outputs()) {
      auto const count = output.sequence ? batch.sparse.key(output.key).size() : of.shape.samples;
      floats.emplace_back(static_cast<std::size_t>(count * output.width), 0.5F);
      out.push_back({floats.back().data(), count, output.width});
    }
    std::vector<tessera::matrix_view<float const>> const gradients(out.begin(), out.end());
    sent[r].clear();
    typename tessera::sptt_tables<Recipe>::saved_type saved;
    tables.begin(exec, batch, saved);
    tables.finish(exec, saved, out);
    if constexpr (tessera::sptt_tables<Recipe>::passes_through) {
      tables.begin_backward(exec, saved, gradients);
      tables.finish_backward(exec, saved);
    } else {
      std::vector<float> of_parameters(static_cast<std::size_t>(tables.parameter_count()));
      tables.begin_backward(exec, saved, gradients, of_parameters);
      tables.finish_backward(exec, saved);
    }
  });
  return sent;
}

// Messages and bytes of an operation by level, of a rank to others.
tessera::exchange_costs counted(tessera::sent_counts const& sent, char const* operation, std::int64_t rank, std::int64_t host_ranks) {
  tessera::exchange_costs costs;
  auto const found = sent.find(operation);
  if (found == sent.end()) return costs;
  for (auto const& to : found->second) {
    if (to.first == rank) continue;
    auto& level = to.first / host_ranks == rank / host_ranks ? costs.inside_host : costs.between_hosts;
    level += {to.second.messages, to.second.bytes};
  }
  return costs;
}

void check_traffic(problem const& of, layout const& on, std::vector<tessera::sent_counts> const& sent) {
  auto const compare = [&](char const* operation, std::vector<rank_exchange_costs> const& costs) {
    CAPTURE(operation);
    for (std::size_t r = 0; r < costs.size(); ++r) {
      CAPTURE(r);
      auto const found = counted(sent[r], operation, static_cast<std::int64_t>(r), on.ranks_of_host);
      CHECK(found.inside_host.messages == costs[r].sent.inside_host.messages);
      CHECK(found.inside_host.bytes == costs[r].sent.inside_host.bytes);
      CHECK(found.between_hosts.messages == costs[r].sent.between_hosts.messages);
      CHECK(found.between_hosts.bytes == costs[r].sent.between_hosts.bytes);
    }
  };
  compare("ids to their tables", tessera::id_exchange_costs(of.shape));
  compare("vectors to their samples", tessera::vector_exchange_costs(of.shape));
  compare("gradients to their tables", tessera::gradient_exchange_costs(of.shape));
}

}  // namespace

TEST_CASE("sptt_tables send what exchange_costs predict, message for message and byte for byte at each level") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& on : layouts)
    for (bool const has_modules : {false, true}) {
      CAPTURE(on.hosts);
      CAPTURE(on.ranks_of_host);
      CAPTURE(on.towers);
      CAPTURE(has_modules);
      auto const where = tessera::topology::of_hosts(on.hosts, on.ranks_of_host);
      auto of = draw_problem(on, where, random);
      CAPTURE(of.shape.samples);
      if (!has_modules) {
        check_traffic(of, on, sent_in_a_step(of, where, tessera::pass_through{}));
        continue;
      }
      tessera::dlrm_tower const recipe{.dim = 5, .p = 1, .c = 1};
      for (auto const& tower : of.towers.towers) {
        auto const pooled =
            std::count_if(tower.begin(), tower.end(), [&](auto f) { return !of.features[static_cast<std::size_t>(f)].sequence; });
        of.shape.outputs.push_back(pooled == 0 ? 0 : 5 * (1 + pooled));
      }
      check_traffic(of, on, sent_in_a_step(of, where, recipe));
    }
}

TEST_CASE("sptt_tables: modules get along 4 bytes a sample and group, whatever the order of a tower's features") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr std::int64_t samples = 50, count = 7;
  auto const where = tessera::topology::of_hosts(2, 1);
  tessera::tower_partition towers{{{0}, {1, 2, 3, 4, 5, 6}}};
  std::shuffle(towers.towers[1].begin(), towers.towers[1].end(), random);
  std::vector<tessera::table_spec> specs;
  std::vector<tessera::table_feature> features;
  std::vector<tessera::feature_rows<>> bags;
  for (std::int64_t t = 0; t < count; ++t) {
    tessera::table_options const options{.id = tessera::table_id{t}, .dim = dim, .rows = rows, .init_bound = 0.1F};
    specs.push_back(tessera::spec_of<tessera::dense_table<>>(options, tessera::sgd{.learning_rate = 0.1F}));
    features.push_back({.name = std::to_string(t), .table = t});
    std::vector<std::vector<std::int64_t>> of_key;
    for (std::int64_t s = 0; s < samples; ++s) of_key.push_back({t < 3 ? s / 5 : t < 5 ? s / 2 % 5 : s % rows});
    bags.emplace_back(features.back().name, of_key);
  }
  auto const plan = tessera::plan_towers(specs, features, where, towers);
  std::vector<tessera::sent_counts> sent(2);
  std::vector<tessera_tests::serial_host> hosts(2);
  tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto const exec = hosts[r].exec();
    tessera::sptt_tables<tessera::dlrm_tower> const tables(exec, tessera::counting_communicator(comm, sent[r]), where, specs, features,
                                                           plan, towers, tessera::dlrm_tower{.dim = 5, .p = 1, .c = 1},
                                                           {.modules = {.policy = tessera::any_gemm(tessera::eigen_gemm{})}});
    auto const plain = tessera::keyed_jagged<>::from_rows(exec, bags);
    std::vector<std::int64_t> const groups{3, 2};
    auto const shared = tessera::deduplicate(exec, plain.view(), groups);
    tessera::batch_view batch;
    batch.dense = {nullptr, samples, 0};
    batch.sparse = shared.distinct().view();
    batch.groups = shared.view().groups;
    std::vector<std::vector<float>> floats;
    std::vector<tessera::matrix_view<float>> out;
    for (auto const& output : tables.outputs()) {
      floats.emplace_back(static_cast<std::size_t>(samples * output.width));
      out.push_back({floats.back().data(), samples, output.width});
    }
    sent[r].clear();
    tables.predict(exec, batch, out);
    // Ten distinct rows of keys 1 and 2, five of keys 3 and 4, all of the others; each group's inverse once.
    auto const padded = [](std::int64_t bytes) { return (bytes + 7) / 8 * 8; };
    auto const ids = 2 * padded(4 * 10) + 2 * padded(4 * 5) + 2 * padded(4 * samples), inverses = 2 * padded(4 * samples);
    if (r == 0)
      CHECK(counted(sent[0], "ids to their tables", 0, 1).between_hosts ==
            tessera::link_traffic{1, 16 + 6 * 32 + ids + 6 * 32 + inverses + 32 + padded(samples) + 32 + 8});
  });
}

}  // namespace sptt_traffic_test
