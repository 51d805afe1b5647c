// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Towers (DMT): features that are alike in a trained model make a tower, whose tables lie on one host and whose module shortens their vectors
// before they leave it. Without arguments the hosts are four pairs of threads; where mpirun starts processes, they are the ranks. In the end a
// table says how long the stages of a step take, without towers and with them.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/comm/two_hop_communicator.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/local_model.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/feature_affinity.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/sptt_tables.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_partitioner.hpp>

#include "support/ranks.hpp"
#include "support/stage_times.hpp"

namespace {

constexpr std::int64_t samples = 256, numbers = 2, features = 8, ids = 400, classes = 8, dim = 16;

/// Samples of eight features in four pairs. Both ids of a pair mostly follow one class, which draws clicks or not.
class clicks {
 public:
  explicit clicks(std::uint32_t seed) : random_(seed) {
    for (std::int64_t f = 0; f < features; ++f) names_.push_back("f" + std::to_string(f));
  }

  tessera::batch_view next(tessera::host_exec const& exec) {
    std::vector<std::int64_t> values(features * samples), lengths(features * samples, 1);
    for (auto& number : x_) number = static_cast<float>(below(2001)) / 1000 - 1;
    for (std::int64_t s = 0; s < samples; ++s) {
      std::int64_t score = 0;
      for (std::int64_t pair = 0; pair < features / 2; ++pair) {
        auto const drawn = below(classes);
        score += (drawn * (pair + 3)) % classes < classes / 2 ? 1 : -1;
        for (std::int64_t f = 2 * pair; f < 2 * pair + 2; ++f)
          values[static_cast<std::size_t>(f * samples + s)] =
              (below(10) < 9 ? drawn : below(classes)) * (ids / classes) + below(ids / classes);
      }
      labels_[static_cast<std::size_t>(s)] = score > 0 || (score == 0 && below(2) == 0) ? 1.0F : 0.0F;
    }
    ids_ = tessera::keyed_jagged<>::from_lengths(exec, names_, values, lengths, std::vector<std::int64_t>(features, samples));
    return {.dense = {x_.data(), samples, numbers}, .labels = labels_, .sparse = std::as_const(ids_).view(), .sample_ids = {}};
  }

 private:
  std::int64_t below(std::int64_t bound) { return static_cast<std::int64_t>(random_()) % bound; }

  std::mt19937 random_;
  std::vector<std::string> names_;
  std::vector<float> x_ = std::vector<float>(samples * numbers), labels_ = std::vector<float>(samples);
  tessera::keyed_jagged<> ids_;
};

std::vector<tessera::table_spec> make_specs() {
  std::vector<tessera::table_spec> specs;
  for (std::int64_t f = 0; f < features; ++f)
    specs.push_back(tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{f}, .dim = dim, .rows = ids, .init_bound = 0.1F},
                                                             tessera::rowwise_adagrad{.learning_rate = 0.1F}));
  return specs;
}
std::vector<tessera::table_feature> make_features() {
  std::vector<tessera::table_feature> all;
  for (std::int64_t f = 0; f < features; ++f) all.push_back({.name = "f" + std::to_string(f), .table = f});
  return all;
}
tessera::click_model_options net() {
  return {.dense_features = numbers, .bottom_hidden = {16}, .top_hidden = {32, 16}, .seed = tessera::random_seed{1}};
}

// Which features are alike, in a small model that one process trains.
tessera::tower_partition find_towers(tessera::host_exec const& exec) {
  tessera::table_list list;
  for (auto const& spec : make_specs()) spec.add(exec, spec.table, list);
  tessera::dlrm<tessera::local_tables, tessera::eigen_gemm> model(exec, net(), tessera::local_tables(std::move(list), make_features()));
  tessera::trainer run(exec, model, tessera::adam{.learning_rate = 0.01F});
  clicks source(100);
  for (int step = 0; step < 200; ++step) run.step(exec, source.next(exec));
  tessera::feature_affinity sum(exec, features);
  for (int batch = 0; batch < 20; ++batch) sum.add_lookups(exec, model.source(), source.next(exec));
  auto const affinity = sum.result(tessera::affinity_kind::abs_of_mean);
  return tessera::partition_features(exec, affinity.view(), 4, {.embedding = {.dims = 4}}).partition;
}

void print(tessera::tower_partition const& towers) {
  for (std::size_t t = 0; t < towers.towers.size(); ++t) {
    std::printf("tower %zu:", t);
    for (auto const f : towers.towers[t]) std::printf(" f%d", static_cast<int>(f));
    std::printf("\n");
  }
}

void train(tessera::host_exec const& exec, tessera::any_communicator comm, tessera::topology const& where,
           tessera::tower_partition const& towers) {
  auto const specs = make_specs();
  auto const plan = tessera::plan_towers(specs, make_features(), where, towers);
  tessera::sent_counts sent;
  // Each tower makes two vectors of its features' two, half as long: half as many bytes leave its host.
  tessera::sptt_tables tables(exec, tessera::counting_communicator(comm, sent), where, specs, make_features(), plan, towers,
                              tessera::dlrm_tower{.dim = dim / 2, .c = 1}, {.modules = {.policy = tessera::eigen_gemm{}}});
  tessera::dlrm<decltype(tables), tessera::eigen_gemm> model(exec, net(), std::move(tables));
  tessera::trainer run(exec, model, tessera::adam{.learning_rate = 0.01F}, {.comm = comm});

  clicks source(static_cast<std::uint32_t>(comm.rank()));
  double loss = 0;
  for (int step = 1; step <= 200; ++step) {
    sent.clear();
    loss += run.step(exec, source.next(exec));  // of all ranks' samples
    if (step % 50 == 0 && comm.rank() == 0) std::printf("steps %d to %d: mean loss %.4f\n", step - 49, step, loss / 50);
    if (step % 50 == 0) loss = 0;
  }
  auto const host = where.level("host");
  auto const between = tessera::sent_to(sent, [&](int to) { return where.domain_of(host, to) != where.domain_of(host, comm.rank()); });
  if (comm.rank() == 0)
    std::printf("a step sends %d messages of %d bytes in all to other hosts\n", static_cast<int>(between.messages),
                static_cast<int>(between.bytes));
}

// How long the stages of this rank's steps take over tables that `make` makes.
template <class Make>
examples::stage_times time_stages(tessera::host_exec const& exec, tessera::any_communicator comm, Make const& make) {
  constexpr int steps = 40, unmeasured = 10;
  examples::stage_times times;
  examples::timed_source source(make(times), times);
  tessera::dlrm<decltype(source), tessera::eigen_gemm> model(exec, net(), std::move(source));
  tessera::trainer run(exec, model, tessera::adam{.learning_rate = 0.01F}, {.comm = comm});
  clicks batches(static_cast<std::uint32_t>(comm.rank()));
  for (int step = 0; step < unmeasured + steps; ++step) {
    if (step == unmeasured) times = {};
    auto const batch = batches.next(exec);
    tessera::stopwatch watch;
    run.step(exec, batch);
    times.step += watch.lap();
  }
  for (auto* const seconds : {&times.between_hosts, &times.inside_hosts, &times.modules, &times.source, &times.step}) *seconds /= steps;
  return times;
}

// The mean over ranks, in milliseconds, of four ways of the same vectors.
void print_stages(tessera::host_exec const& exec, tessera::any_communicator comm, tessera::topology const& where,
                  tessera::tower_partition const& towers) {
  auto const specs = make_specs();
  auto const read = make_features();
  auto const plan = tessera::plan_towers(specs, read, where, towers);
  auto const flat = [&](examples::stage_times& times) {
    return tessera::sharded_tables(exec, examples::timed_communicator(comm, where, times), specs, read, plan);
  };
  auto const two_hop = [&](examples::stage_times& times) {
    return tessera::sharded_tables(exec, tessera::two_hop_communicator(examples::timed_communicator(comm, where, times), where), specs,
                                   read, plan);
  };
  auto const sptt = [&](examples::stage_times& times) {
    return tessera::sptt_tables<>(exec, examples::timed_communicator(comm, where, times), where, specs, read, plan, towers);
  };
  auto const modules = [&](examples::stage_times& times) {
    examples::timed_recipe<tessera::dlrm_tower> const recipe{{.dim = dim / 2, .c = 1}, &times};
    return tessera::sptt_tables<examples::timed_recipe<tessera::dlrm_tower>>(exec, examples::timed_communicator(comm, where, times), where,
                                                                             specs, read, plan, towers, recipe,
                                                                             {.modules = {.policy = tessera::eigen_gemm{}}});
  };
  std::vector<examples::stage_times> const ways{time_stages(exec, comm, flat), time_stages(exec, comm, two_hop),
                                                time_stages(exec, comm, sptt), time_stages(exec, comm, modules)};
  auto const line = [&](char const* stage, auto const& seconds_of) {
    std::vector<double> own, mean(ways.size());
    for (auto const& way : ways) own.push_back(seconds_of(way));
    tessera::any_pending pending;
    for (auto const& one : tessera::all_gather<double>(exec, comm, own, pending, "times"))
      for (std::size_t w = 0; w < mean.size(); ++w) mean[w] += 1000 * one[static_cast<std::int64_t>(w)] / comm.size();
    if (comm.rank() == 0) std::printf("%-24s %8.3f %8.3f %8.3f %8.3f\n", stage, mean[0], mean[1], mean[2], mean[3]);
  };
  if (comm.rank() == 0) std::printf("%-24s %8s %8s %8s %8s\n", "milliseconds a step", "flat", "two-hop", "SPTT", "modules");
  line("exchange between hosts", [](auto const& t) { return t.between_hosts; });
  line("exchange inside hosts", [](auto const& t) { return t.inside_hosts; });
  line("tower modules", [](auto const& t) { return t.modules; });
  line("lookups, updates, copies", [](auto const& t) { return t.source - t.between_hosts - t.inside_hosts - t.modules; });
  line("dense net and its sums", [](auto const& t) { return t.step - t.source; });
  line("step", [](auto const& t) { return t.step; });
}

}  // namespace

int main(int argc, char** argv) {
  std::string ranks = examples::launched_rank() >= 0 ? "mpi" : "threads:8";
  std::int64_t hosts = 4;
  CLI::App app("Trains with towers, and says how long the stages of a step take.");
  app.add_option("--ranks", ranks, "mpi, the processes of mpirun, or threads:N")->capture_default_str();
  app.add_option("--hosts", hosts, "How many hosts there are, each of as many neighbouring ranks")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    constexpr std::int64_t seconds = 300;
    examples::rank_group group(ranks, seconds);
    tessera::tower_partition towers;
    auto const prepare = [&](tessera::any_communicator const&) {
      tessera::serial_team team;
      tessera::system_memory memory;
      towers = find_towers(tessera::host_exec(team, memory));
      if (group.has_first()) print(towers);
    };
    group.run(prepare, [&](tessera::any_communicator const& comm) {
      tessera::serial_team team;
      tessera::system_memory memory;
      tessera::host_exec const exec(team, memory);
      auto const where = tessera::topology::of_hosts(hosts, comm.size() / std::max<std::int64_t>(hosts, 1));
      train(exec, comm, where, towers);
      print_stages(exec, comm, where, towers);
    });
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "towers: %s\n", e.what());
    return 1;
  }
}
