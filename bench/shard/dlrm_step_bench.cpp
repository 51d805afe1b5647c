// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::mpi

// A training step of a DLRM, 26 tables of dim 64, by ranks that are threads of one process, beside one rank of as many threads, in alternated
// rounds; under MPI's launcher by its processes. Rows that a rank holds, ids that it reads and samples that it has, are the same for any number of ranks.
//
//   build/release/bench/shard_dlrm_step_bench [SAMPLES A RANK] [ROUNDS]
//   mpirun -n 2 build/release/bench/shard_dlrm_step_bench [SAMPLES A RANK] [ROUNDS] [LINKS.json of fit_links]
//   mpirun -n 2 build/release/bench/shard_dlrm_step_bench SAMPLES_A_RANK ROUNDS stages      what each stage of a step takes; one process, too

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/link_model_file.hpp>
#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/mpi_session.hpp>
#include <tessera/comm/rank_levels.hpp>
#include <tessera/comm/rank_sums.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/tessera.hpp>

#include "../comm/rank_timing.hpp"
#include "dlrm_step.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t tables = dlrm_tables, dim = dlrm_dim;
std::int64_t rows = 100'000;  // of a table; fewer where it is only to be seen that all runs

tessera::sharded_tables sharded(tessera::host_exec const& exec, tessera::any_communicator const& comm,
                                tessera::exchange_codecs const& codecs = {}) {
  auto const specs = dlrm_specs(rows);
  auto const plan = tessera::plan_round_robin(tessera::options_of(specs), comm.size());
  return {exec, comm, specs, dlrm_features(), plan, {.codecs = codecs}};
}

tessera::local_tables local(tessera::host_exec const& exec) {
  tessera::table_list list;
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.01F};
  for (std::int64_t t = 0; t < tables; ++t) list.add(tessera::dense_table<>(exec, dlrm_table(t, rows), optimizer), optimizer);
  return {std::move(list), dlrm_features()};
}

constexpr int steps_a_round = 8;
constexpr std::int64_t bucket_bytes = 1 << 18;

/// Of fixed sums; ranks have whole chunks.
std::int64_t chunk_of(std::int64_t samples) { return samples % 256 == 0 ? 256 : samples; }

/// Ranks that are threads, each with one of its own, beside one rank with as many; with sums in the order of ranks, and by chunks.
void compare_threads(int ranks, std::int64_t samples, int rounds) {
  dlrm_rank<tessera::local_tables> alone(ranks, samples * ranks, rows, 0, {}, [](auto const& exec) { return local(exec); });
  dlrm_rank<tessera::sharded_tables> served(ranks, samples * ranks, rows, 0, {},
                                            [](auto const& exec) { return sharded(exec, tessera::self_communicator()); });
  std::vector<double> of_one, of_served, of_ranks, of_chunks;
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    tessera::serial_team team;
    tessera::system_memory memory;
    tessera::host_exec const exec(team, memory);
    auto const make = [&](auto const& own) { return sharded(own, tessera::any_communicator(comm)); };
    dlrm_rank<tessera::sharded_tables> mine(1, samples, rows, comm.rank(), {.comm = comm}, make);
    dlrm_rank<tessera::sharded_tables> fixed(1, samples, rows, comm.rank(), {.comm = comm, .chunk_samples = chunk_of(samples)}, make);
    bool const first = comm.rank() == 0;
    tessera::stopwatch watch;
    auto const timed = [&](std::vector<double>& times, int round, auto const& work) {
      tessera::barrier(exec, comm);
      watch.lap();
      work();
      tessera::barrier(exec, comm);
      if (auto const seconds = watch.lap(); first && round >= 0) times.push_back(seconds);
    };
    for (int round = -1; round < rounds; ++round) {  // in the first all memory is new
      timed(of_ranks, round, [&] { mine.steps(steps_a_round); });
      timed(of_chunks, round, [&] { fixed.steps(steps_a_round); });
      timed(of_one, round, [&] {
        if (first) alone.steps(steps_a_round);
      });
      timed(of_served, round, [&] {
        if (first) served.steps(steps_a_round);
      });
    }
  });
  auto const per_second = [&](std::vector<double> const& times) {
    return static_cast<double>(samples * ranks * steps_a_round) / median(times);
  };
  std::printf("%d ranks x 1 thread: %8.0f samples/s; 1 x %d: local_tables %8.0f, sharded_tables %8.0f; ranks / local_tables %4.2f\n", ranks,
              per_second(of_ranks), ranks, per_second(of_one), per_second(of_served), per_second(of_ranks) / per_second(of_one));
  std::printf("  fixed sums, chunks of %lld: %8.0f samples/s, a step %4.2f of one that sums in the order of ranks\n",
              static_cast<long long>(chunk_of(samples)), per_second(of_chunks), median(of_chunks) / median(of_ranks));
}

/// Processes, each with one thread: as they are; with fixed sums; with ids ahead and sums during the backward, which a thread moves on.
/// With a link model, also the stages of the tables alone beside what it predicts.
void measure_processes(MPI_Comm world, std::int64_t samples, int rounds, char const* links) {
  tessera::mpi_communicator comm(world);
  auto const make = [&](auto const& exec) { return sharded(exec, tessera::any_communicator(comm)); };
  tessera::serial_team team;
  tessera::system_memory memory;
  auto const hosts = tessera::detect_topology(tessera::host_exec(team, memory), comm);
  auto const rank_with = [&](tessera::trainer_options const& options) {
    return std::make_unique<dlrm_rank<tessera::sharded_tables>>(1, samples, rows, comm.rank(), options, make);
  };
  auto const plain = rank_with({.comm = comm, .levels = hosts}),
             fixed = rank_with({.comm = comm, .levels = hosts, .chunk_samples = chunk_of(samples)}),
             early = rank_with({.comm = comm, .levels = hosts, .bucket_bytes = bucket_bytes});
  std::vector<double> of_plain, of_fixed, of_ahead, of_early;
  auto const timed = [&](std::vector<double>& times, int round, auto const& work) {
    if (auto const seconds = slowest_seconds(world, work); round >= 0) times.push_back(seconds);
  };
  for (int round = -1; round < rounds; ++round) {
    timed(of_plain, round, [&] { plain->steps(steps_a_round); });
    timed(of_fixed, round, [&] { fixed->steps(steps_a_round); });
    timed(of_ahead, round, [&] { plain->steps_with_ids_ahead(steps_a_round); });
    timed(of_early, round, [&] { early->steps_with_ids_ahead(steps_a_round); });
  }
  std::vector<std::pair<char const*, tessera::exchange_codecs>> const codecs{{"fp32", {}},
                                                                             {"fp16", {tessera::codec::fp16, tessera::codec::fp16}},
                                                                             {"bf16", {tessera::codec::bf16, tessera::codec::bf16}},
                                                                             {"int8", {tessera::codec::int8, tessera::codec::int8}}};
  std::vector<std::unique_ptr<dlrm_lookups<tessera::sharded_tables>>> sources;
  for (auto const& codec : codecs)
    sources.push_back(std::make_unique<dlrm_lookups<tessera::sharded_tables>>(
        samples, rows, comm.rank(), [&](auto const& exec) { return sharded(exec, tessera::any_communicator(comm), codec.second); }));
  std::vector<std::vector<double>> of_codec(codecs.size());
  for (int round = -1; round < rounds; ++round)
    for (std::size_t c = 0; c < codecs.size(); ++c) timed(of_codec[c], round, [&] { sources[c]->steps(steps_a_round); });
  if (links != nullptr) {
    auto const model = tessera::read_link_model(links);
    tessera::check_link_model(model, hosts);
    std::vector<double> of_forward, of_backward;
    for (int round = -1; round < 4 * rounds; ++round) {
      timed(of_forward, round, [&] { sources[0]->forward(); });
      timed(of_backward, round, [&] { sources[0]->backward(); });
    }
    // The first rank has most tables, so it sends, and is sent, most; a message to each other rank.
    auto const predicted = [&](std::int64_t bytes) {
      double seconds = 0;
      for (int r = 1; r < comm.size(); ++r) seconds += model.predict(bytes, hosts.shared_level(0, r));
      return seconds;
    };
    auto const most = (tables + comm.size() - 1) / comm.size();
    auto const ids = predicted(4 * most * samples), vectors = predicted(4 * most * samples * dim);
    if (comm.rank() == 0)
      std::printf("stages: ids and vectors %7.2f ms, predicted %7.2f; gradients %7.2f ms, predicted %7.2f\n", 1e3 * median(of_forward),
                  1e3 * (ids + vectors), 1e3 * median(of_backward), 1e3 * vectors);
  }
  if (comm.rank() != 0) return;
  for (std::size_t c = 0; c < codecs.size(); ++c)
    std::printf("%d processes, tables alone, %s both ways: %7.2f ms a step, %4.2f times as fast as fp32\n", comm.size(), codecs[c].first,
                1e3 * median(of_codec[c]) / steps_a_round, median(of_codec[0]) / median(of_codec[c]));
  auto const print = [&](char const* what, std::vector<double> const& times) {
    std::printf("%d processes x 1 thread, %-42s %8.0f samples/s, %7.2f ms a step, %4.2f of the first\n", comm.size(), what,
                static_cast<double>(samples * comm.size() * steps_a_round) / median(times), 1e3 * median(times) / steps_a_round,
                median(times) / median(of_plain));
  };
  print("sums in the order of ranks:", of_plain);
  print("fixed sums, chunks of 256:", of_fixed);
  print("ids ahead:", of_ahead);
  print("ids ahead, sums during the backward:", of_early);
}

/// A step of processes, with one thread each, and its stages alone: the tables' two, and sums of as many values as the dense net has.
void measure_stages(MPI_Comm world, std::int64_t samples, int rounds) {
  tessera::mpi_communicator comm(world);
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  auto const hosts = tessera::detect_topology(exec, comm);
  auto const make = [&](auto const& own) { return sharded(own, tessera::any_communicator(comm)); };
  dlrm_rank<tessera::sharded_tables> rank(1, samples, rows, comm.rank(), {.comm = comm, .levels = hosts}, make);
  dlrm_lookups<tessera::sharded_tables> alone(samples, rows, comm.rank(), make);
  auto levels = tessera::split_by_levels(exec, comm, hosts);
  tessera::rank_sums<tessera::mpi_communicator> sums(levels);
  tessera::pending_sum<tessera::mpi_communicator> pending;
  std::vector<float> values(static_cast<std::size_t>(rank.parameter_count()));
  std::vector<double> of_step, of_forward, of_backward, of_sums;
  auto const timed = [&](std::vector<double>& times, int round, auto const& work) {
    if (auto const seconds = slowest_seconds(world, work); round >= 0) times.push_back(1e3 * seconds);
  };
  for (int round = -1; round < rounds; ++round) {
    timed(of_step, round, [&] { rank.steps(steps_a_round); });
    for (int i = 0; i < steps_a_round; ++i) {
      timed(of_forward, round, [&] { alone.forward(); });
      timed(of_backward, round, [&] { alone.backward(); });
      timed(of_sums, round, [&] { sums.all(exec, values, pending); });
    }
  }
  if (comm.rank() != 0) return;
  auto const step = median(of_step) / steps_a_round;
  std::printf(
      "%2d processes, %5lld samples each: %8.0f samples/s, %7.2f ms a step; ids and vectors %7.2f, gradients and rows %7.2f, "
      "sums of the dense net %7.2f, the rest %7.2f\n",
      comm.size(), static_cast<long long>(samples), 1e3 * static_cast<double>(samples * comm.size()) / step, step, median(of_forward),
      median(of_backward), median(of_sums), step - median(of_forward) - median(of_backward) - median(of_sums));
}

}  // namespace

int main(int argc, char** argv) {
  tessera::mpi_session mpi(argc, argv);
  bool const is_smoke = argc > 1 && argv[1][0] == '-';  // Google Benchmark's options
  if (is_smoke) rows = 1000;
  auto const samples = argc > 1 ? std::max<std::int64_t>(std::atoll(argv[1]), 1) : 1024;
  int const rounds = is_smoke ? 1 : argc > 2 ? std::max(std::atoi(argv[2]), 1) : 9;
  int size = 1;
  MPI_Comm_size(mpi.world(), &size);
  if (argc > 3 && std::string_view(argv[3]) == "stages") {
    measure_stages(mpi.world(), samples, rounds);
    return 0;
  }
  if (size > 1) {
    measure_processes(mpi.world(), samples, rounds, argc > 3 ? argv[3] : nullptr);
    return 0;
  }
  for (int const ranks : {1, 2}) compare_threads(ranks, samples, rounds);
}
