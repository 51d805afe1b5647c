// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::mpi

// A training step of a DLRM, 26 tables of dim 64, by ranks that are threads of one process, beside one rank of as many threads, in alternated
// rounds; under MPI's launcher by its processes. Rows that a rank holds, ids that it reads and samples that it has, are the same for any number of ranks.
//
//   build/release/bench/shard_dlrm_step_bench [SAMPLES A RANK] [ROUNDS]
//   mpirun -n 2 build/release/bench/shard_dlrm_step_bench

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/mpi_session.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/synth/zipf.hpp>
#include <tessera/tessera.hpp>

#include "../comm/rank_timing.hpp"

namespace {

using tessera_bench::median;

constexpr std::int64_t tables = 26, dim = 64, numbers = 13;
std::int64_t rows = 100'000;  // of a table; fewer where it is only to be seen that all runs

/// A batch of one id a table, some of which come often.
struct clicks {
  clicks(tessera::host_exec const& exec, std::int64_t samples, std::uint64_t seed)
      : dense(static_cast<std::size_t>(samples * numbers)), labels(static_cast<std::size_t>(samples)) {
    std::mt19937_64 random(seed);
    auto const uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    for (auto& x : dense) x = static_cast<float>(uniform());
    for (auto& label : labels) label = uniform() < 0.25 ? 1.0F : 0.0F;
    tessera::zipf_distribution const law(rows, 1.05);
    std::vector<std::string> names;
    std::vector<std::int64_t> all;
    for (std::int64_t t = 0; t < tables; ++t) {
      names.push_back("C" + std::to_string(t));
      for (std::int64_t s = 0; s < samples; ++s) all.push_back(law(uniform));
    }
    std::vector<std::int64_t> const lengths(all.size(), 1);
    ids = tessera::keyed_jagged<>::from_lengths(exec, names, all, lengths,
                                                std::vector<std::int64_t>(static_cast<std::size_t>(tables), samples));
    batch.dense = {dense.data(), samples, numbers};
    batch.labels = labels;
    batch.sparse = std::as_const(ids).view();
  }

  std::vector<float> dense, labels;
  tessera::keyed_jagged<> ids;
  tessera::batch_view batch;
};

/// One rank's model and trainer, with what they stand on.
template <class Source>
class one_rank {
 public:
  using model_type = tessera::dlrm<Source, tessera::eigen_gemm>;

  template <class Make>
  one_rank(int threads, std::int64_t samples, int rank, tessera::trainer_options const& options, Make const& make)
      : pool_(threads),
        exec_(pool_, memory_),
        step_exec_(pool_, arena_),
        model_(exec_, net(), make(exec_)),
        run_(exec_, model_, tessera::sgd{0.01F}, options) {
    for (std::uint64_t b = 0; b < 8; ++b)
      batches_.push_back(std::make_unique<clicks>(exec_, samples, 100 * b + static_cast<std::uint64_t>(rank)));
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i) run_.step(step_exec_, batches_[next_++ % batches_.size()]->batch);
  }

 private:
  static tessera::click_model_options net() {
    return {.dense_features = numbers, .bottom_hidden = {512, 256}, .top_hidden = {512, 256}, .seed = tessera::random_seed{1}};
  }

  tessera::thread_pool pool_;
  tessera::system_memory memory_;
  tessera::arena<tessera::system_memory> arena_{memory_};
  tessera::host_exec exec_, step_exec_;
  model_type model_;
  tessera::trainer<model_type, tessera::sgd> run_;
  std::vector<std::unique_ptr<clicks>> batches_;
  std::size_t next_ = 0;
};

std::vector<tessera::table_feature> features() {
  std::vector<tessera::table_feature> all;
  for (std::int64_t t = 0; t < tables; ++t) all.push_back({.name = "C" + std::to_string(t), .table = t});
  return all;
}
tessera::table_options options_of_table(std::int64_t t) {
  return {.id = tessera::table_id{t}, .dim = dim, .rows = rows, .init_bound = 0.01F};
}

tessera::sharded_tables sharded(tessera::host_exec const& exec, tessera::any_communicator const& comm) {
  std::vector<tessera::table_spec> specs;
  for (std::int64_t t = 0; t < tables; ++t)
    specs.push_back(tessera::spec_of<tessera::dense_table<>>(options_of_table(t), tessera::rowwise_adagrad{.learning_rate = 0.01F}));
  auto const plan = tessera::plan_round_robin(tessera::options_of(specs), comm.size());
  return {exec, comm, specs, features(), plan};
}

tessera::local_tables local(tessera::host_exec const& exec) {
  tessera::table_list list;
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.01F};
  for (std::int64_t t = 0; t < tables; ++t) list.add(tessera::dense_table<>(exec, options_of_table(t), optimizer), optimizer);
  return {std::move(list), features()};
}

constexpr int steps_a_round = 8;

/// Ranks that are threads, each with one of its own, beside one rank with as many.
void compare_threads(int ranks, std::int64_t samples, int rounds) {
  one_rank<tessera::local_tables> alone(ranks, samples * ranks, 0, {}, [](auto const& exec) { return local(exec); });
  one_rank<tessera::sharded_tables> served(ranks, samples * ranks, 0, {},
                                           [](auto const& exec) { return sharded(exec, tessera::self_communicator()); });
  std::vector<double> of_one, of_served, of_ranks;
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    tessera::serial_team team;
    tessera::system_memory memory;
    tessera::host_exec const exec(team, memory);
    one_rank<tessera::sharded_tables> mine(1, samples, comm.rank(), {.comm = comm},
                                           [&](auto const& own) { return sharded(own, tessera::any_communicator(comm)); });
    bool const first = comm.rank() == 0;
    for (int round = -1; round < rounds; ++round) {  // in the first all memory is new
      tessera::barrier(exec, comm);
      tessera::stopwatch watch;
      mine.steps(steps_a_round);
      tessera::barrier(exec, comm);
      if (first && round >= 0) of_ranks.push_back(watch.lap());
      if (first) {  // the others wait in the barrier above
        watch.lap();
        alone.steps(steps_a_round);
        if (auto const seconds = watch.lap(); round >= 0) of_one.push_back(seconds);
        served.steps(steps_a_round);
        if (auto const seconds = watch.lap(); round >= 0) of_served.push_back(seconds);
      }
    }
  });
  auto const per_second = [&](std::vector<double> const& times) {
    return static_cast<double>(samples * ranks * steps_a_round) / median(times);
  };
  std::printf("%d ranks x 1 thread: %8.0f samples/s; 1 x %d: local_tables %8.0f, sharded_tables %8.0f; ranks / local_tables %4.2f\n", ranks,
              per_second(of_ranks), ranks, per_second(of_one), per_second(of_served), per_second(of_ranks) / per_second(of_one));
}

/// Processes, each with one thread.
void measure_processes(MPI_Comm world, std::int64_t samples, int rounds) {
  tessera::mpi_communicator comm(world);
  one_rank<tessera::sharded_tables> mine(1, samples, comm.rank(), {.comm = comm},
                                         [&](auto const& exec) { return sharded(exec, tessera::any_communicator(comm)); });
  std::vector<double> times;
  for (int round = -1; round < rounds; ++round) {
    auto const seconds = tessera_bench::slowest_seconds(world, [&] { mine.steps(steps_a_round); });
    if (round >= 0) times.push_back(seconds);
  }
  if (comm.rank() == 0)
    std::printf("%d processes x 1 thread: %8.0f samples/s, %.2f ms a step\n", comm.size(),
                static_cast<double>(samples * comm.size() * steps_a_round) / median(times), 1e3 * median(times) / steps_a_round);
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
  if (size > 1) {
    measure_processes(mpi.world(), samples, rounds);
    return 0;
  }
  for (int const ranks : {1, 2}) compare_threads(ranks, samples, rounds);
}
