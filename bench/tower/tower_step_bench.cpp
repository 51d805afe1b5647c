// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::mpi

// Training steps of a DLRM by ranks on hosts, 26 tables of dim 64: vectors travel flat, by two hops, by towers without modules, and by towers
// whose modules send fewer bytes. Ids travel ahead, the same plan serves all. Steps are measured in alternated rounds, and what of their
// exchanges no work of the same rank hides. Then steps whose exchanges are kept apart, each alone on all links, tell the stages, and these the
// step that modules could reach.
//
//   sudo bench/testbed/hosts.sh up 4 400mbit
//   sudo bench/testbed/hosts.sh run 4 2 build/release/bench/tower_tower_step_bench [SAMPLES A RANK [ROUNDS [RANKS_OF_A_HOST [fp16|fp32
//        [COMPRESSION...]]]]]
//   sudo bench/testbed/hosts.sh down 4
//
// With RANKS_OF_A_HOST, hosts are neighbouring ranks, as many as that; 0: as they say themselves. A codec leaves out steps with the other, and
// compressions those with others than these: all ways together take more than 24 GiB, of 8 ranks and of 16. Without a launcher there is one
// rank, which sends nothing.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/mpi_session.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/tessera.hpp>

#include "../comm/staged_communicator.hpp"
#include "tower_rank.hpp"

namespace {

using namespace tessera_bench;

/// A `dlrm_tower` whose modules add up their seconds.
struct timed_tower {
  tessera::dlrm_tower recipe;
  double* seconds = nullptr;

  class module;
  static constexpr std::string_view name = "timed dlrm_tower";

  std::vector<tessera::tower_output> outputs(tessera::vector_view<std::int64_t const> widths) const { return recipe.outputs(widths); }
  tessera::tower_cost cost(tessera::vector_view<std::int64_t const> widths) const { return recipe.cost(widths); }
  module make(tessera::host_exec const& exec, tessera::vector_view<std::int64_t const> widths, tessera::random_seed seed,
              std::uint32_t stream) const;
};

class timed_tower::module : public tessera::dlrm_tower_module {
 public:
  module(tessera::dlrm_tower_module of, double* seconds) :dlrm_tower_module(std::move(of)), seconds_(seconds) {}

  template <tessera::gemm_policy Gemm, class... Arguments>
  void forward(tessera::host_exec const& exec, Gemm const& policy, Arguments&&... arguments) const {
    tessera::stopwatch watch;
    dlrm_tower_module::forward(exec, policy, std::forward<Arguments>(arguments)...);
    *seconds_ += watch.lap();
  }
  template <tessera::gemm_policy Gemm, class... Arguments>
  void backward(tessera::host_exec const& exec, Gemm const& policy, Arguments&&... arguments) const {
    tessera::stopwatch watch;
    dlrm_tower_module::backward(exec, policy, std::forward<Arguments>(arguments)...);
    *seconds_ += watch.lap();
  }

 private:
  double* seconds_;
};

timed_tower::module timed_tower::make(tessera::host_exec const& exec, tessera::vector_view<std::int64_t const> widths,
                                      tessera::random_seed seed, std::uint32_t stream) const {
  return {recipe.make(exec, widths, seed, stream), seconds};
}
static_assert(tessera::tower_recipe<timed_tower>);

enum class way { flat, two_hops, towers, modules };

/// One way to exchange, and what was measured of it: seconds a step.
struct contender {
  std::string name;
  way how = way::flat;
  tessera::codec with = tessera::codec::fp16;
  std::int64_t compression = 1;

  tessera::sent_counts sent;
  exchange_stages stages, dense;  // of tables and towers; of what the trainer sums
  double modules = 0;             // of this rank
  std::unique_ptr<dlrm_steps> rank;
  std::vector<double> times;

  // Of a step as it is, means of ranks: in exchanges of ids and embeddings, and of what the trainer sums.
  double exposed = 0, exposed_sums = 0;
  double apart = 0;  // a step whose exchanges are kept apart
  double ids = 0, vectors = 0, gradients = 0, inside = 0, sums = 0, waiting = 0;
  tessera::message_count between;     // ids, vectors and gradients of a step, by all ranks, to other hosts
  std::int64_t bytes_of_vectors = 0;  // of these without ids; 0 by two hops, whose messages hold both

  double embedding() const { return vectors + gradients; }
  double tower() const { return inside + modules; }
  double compute() const { return apart - ids - embedding() - tower() - sums; }
};

contender made(std::string name, way how, tessera::codec with = tessera::codec::fp16, std::int64_t compression = 1) {
  contender one;
  one.name = std::move(name);
  one.how = how;
  one.with = with;
  one.compression = compression;
  return one;
}

void make_rank(contender& one, tower_ranks_of_mpi const& ranks, MPI_Comm world, std::int64_t samples, std::int64_t rows) {
  std::vector<std::int64_t> hosts;
  for (int r = 0; r < ranks.comm.size(); ++r) hosts.push_back(ranks.host_of(r));
  tessera::any_communicator const below = one.how == way::two_hops ? ranks.two_hops(one.sent) : ranks.counted(one.sent);
  tessera::any_communicator const comm = staged_communicator(below, world, hosts, one.stages);
  // Sums keep to the levels of hosts already.
  tessera::any_communicator const of_sums = staged_communicator(ranks.counted(one.sent), world, hosts, one.dense);
  tessera::trainer_options const options{.comm = of_sums, .levels = ranks.where};
  tessera::exchange_codecs const codecs{one.with, one.with};
  auto const towers = [&](auto const& recipe) {
    using recipe_type = std::remove_cvref_t<decltype(recipe)>;
    return std::make_unique<dlrm_rank<tessera::sptt_tables<recipe_type>>>(
        1, samples, rows, ranks.comm.rank(), options, [&](tessera::host_exec const& exec) {
          return tessera::sptt_tables<recipe_type>(exec, comm, ranks.where, ranks.specs, dlrm_features(), ranks.plan, ranks.towers, recipe,
                                                   {.codecs = codecs, .modules = {.policy = tessera::eigen_gemm{}}});
        });
  };
  if (one.how == way::modules)
    one.rank = towers(timed_tower{{.dim = dlrm_dim / one.compression, .c = 1}, &one.modules});
  else if (one.how == way::towers)
    one.rank = towers(tessera::pass_through{});
  else
    one.rank = std::make_unique<dlrm_rank<tessera::sharded_tables>>(
        1, samples, rows, ranks.comm.rank(), options, [&](tessera::host_exec const& exec) {
          return tessera::sharded_tables(exec, comm, ranks.specs, dlrm_features(), ranks.plan, {.codecs = codecs});
        });
}

double total(exchange_stages const& stages) {
  double sum = 0;
  for (auto const& of : stages.seconds) sum += of.second;
  return sum;
}

/// Steps as they are, in turns.
void measure_steps(std::vector<contender>& all, MPI_Comm world, int rounds, int steps) {
  for (int round = -1; round < rounds; ++round)  // in the first all memory is new
    for (auto& one : all) {
      if (round == 0) one.stages = one.dense = {};
      auto const seconds = slowest_seconds(world, [&] { one.rank->steps_with_ids_ahead(steps); });
      if (round >= 0) one.times.push_back(seconds / steps);
    }
  for (auto& one : all) {
    one.exposed = mean_of_ranks(world, total(one.stages)) / (rounds * steps);
    one.exposed_sums = mean_of_ranks(world, total(one.dense)) / (rounds * steps);
  }
}

/// Steps one exchange after the other.
void measure_stages(contender& one, tower_ranks_of_mpi const& ranks, MPI_Comm world, int steps) {
  one.stages.one_by_one = one.dense.one_by_one = true;
  one.rank->steps_with_ids_ahead(1);
  one.stages = one.dense = {.one_by_one = true, .seconds = {}, .waiting = 0};
  one.modules = 0;
  one.sent.clear();
  one.apart = slowest_seconds(world, [&] { one.rank->steps_with_ids_ahead(steps); }) / steps;
  one.stages.one_by_one = one.dense.one_by_one = false;
  std::erase_if(one.sent, [](auto const& of) {  // ids, vectors and gradients; by two hops these are messages of hosts
    return of.first != "ids to their tables" && of.first != "vectors to their samples" && of.first != "gradients to their tables" &&
           of.first != "messages between hosts";
  });
  one.between = ranks.sent_between_hosts(world, one.sent);
  one.between.messages /= steps;
  one.between.bytes /= steps;
  std::erase_if(one.sent, [](auto const& of) { return of.first == "ids to their tables" || of.first == "messages between hosts"; });
  one.bytes_of_vectors = ranks.sent_between_hosts(world, one.sent).bytes / steps;
  one.modules = mean_of_ranks(world, one.modules) / steps;
  one.waiting = mean_of_ranks(world, one.stages.waiting + one.dense.waiting) / steps;
  for (auto const& [operation, seconds] : one.stages.seconds) {
    auto const mean = mean_of_ranks(world, seconds) / steps;
    auto& stage = operation == "ids to their tables"         ? one.ids
                  : operation == "vectors to their samples"  ? one.vectors
                  : operation == "gradients to their tables" ? one.gradients
                                                             : one.inside;
    stage += mean;
  }
  for (auto const& of : one.dense.seconds) one.sums += mean_of_ranks(world, of.second) / steps;
}

void print(std::vector<contender> const& all, std::int64_t samples, int ranks, int hosts) {
  std::printf("%-16s %9s %9s | %9s %9s %9s %9s %9s %9s %9s %9s | %10s %9s\n", "ms a step", "as it is", "apart", "compute", "ids", "vectors",
              "gradients", "in tower", "modules", "sums", "(waiting)", "MB a host", "messages");
  for (auto const& one : all)
    std::printf("%-16s %9.1f %9.1f | %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f | %10.2f %9lld\n", one.name.c_str(),
                1e3 * median(one.times), 1e3 * one.apart, 1e3 * one.compute(), 1e3 * one.ids, 1e3 * one.vectors, 1e3 * one.gradients,
                1e3 * one.inside, 1e3 * one.modules, 1e3 * one.sums, 1e3 * one.waiting,
                1e-6 * static_cast<double>(one.between.bytes) / hosts, static_cast<long long>(one.between.messages));
  std::printf("%-16s %9s | %9s %9s %9s\n", "ms of a step", "mean", "exposed", "sums", "rest");
  for (auto const& one : all) {
    auto const mean = std::accumulate(one.times.begin(), one.times.end(), 0.0) / static_cast<double>(one.times.size());
    std::printf("%-16s %9.1f | %9.1f %9.1f %9.1f\n", one.name.c_str(), 1e3 * mean, 1e3 * one.exposed, 1e3 * one.exposed_sums,
                1e3 * (mean - one.exposed - one.exposed_sums));
  }
  for (auto const& one : all) {
    auto const& flat = *std::find_if(all.begin(), all.end(), [&](auto const& other) { return other.with == one.with; });
    if (&flat == &one) continue;
    // What modules could reach: the flat step, but for its exchange of embeddings, which sends so many bytes less, and the tower's stages.
    auto const of_flat = median(flat.times), rest = of_flat - flat.embedding();
    auto const fewer = [](std::int64_t of, std::int64_t than) { return of > 0 ? static_cast<double>(than) / static_cast<double>(of) : 1; };
    auto const bytes = fewer(one.between.bytes, flat.between.bytes), compressed = fewer(one.bytes_of_vectors, flat.bytes_of_vectors);
    auto const bound = of_flat / (rest + one.tower() + flat.embedding() / compressed), ratio = of_flat / median(one.times);
    std::printf("%-16s %5.2f times flat, %5.1f times fewer bytes", one.name.c_str(), ratio, bytes);
    if (one.how == way::modules) std::printf(", bound %4.2f, %4.2f of it", bound, ratio / bound);
    std::printf("; %.0f samples/s\n", static_cast<double>(samples * ranks) / median(one.times));
  }
}

}  // namespace

int main(int argc, char** argv) {
  tessera::mpi_session mpi(argc, argv);
  bool const is_smoke = argc > 1 && argv[1][0] == '-';  // Google Benchmark's options
  auto const samples = is_smoke ? 16 : argc > 1 ? std::max<std::int64_t>(std::atoll(argv[1]), 1) : 1024;
  int const rounds = is_smoke ? 1 : argc > 2 ? std::max(std::atoi(argv[2]), 1) : 7;
  int const steps = is_smoke ? 1 : 4;
  std::int64_t const rows = is_smoke ? 1000 : 100'000;
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  tower_ranks_of_mpi const ranks(exec, mpi.world(), argc > 3 ? std::atoi(argv[3]) : 0, rows);
  using tessera::codec;
  std::string_view const only = argc > 4 ? argv[4] : "";
  std::vector<std::int64_t> compressions{2, 4, 8, 16};
  if (argc > 5) compressions.clear();
  for (int a = 5; a < argc; ++a) compressions.push_back(std::clamp<std::int64_t>(std::atoll(argv[a]), 1, tessera_bench::dlrm_dim));
  std::vector<contender> all;
  if (only != "fp32") {
    all.push_back(made("flat", way::flat));
    all.push_back(made("two hops", way::two_hops));
    all.push_back(made("SPTT", way::towers));
    for (auto const compression : compressions)
      all.push_back(made("DMT CR " + std::to_string(compression), way::modules, codec::fp16, compression));
  }
  if (only != "fp16") {
    all.push_back(made("flat fp32", way::flat, codec::fp32));
    for (auto const compression : compressions)
      all.push_back(made("DMT CR " + std::to_string(compression) + " fp32", way::modules, codec::fp32, compression));
  }
  for (auto& one : all) make_rank(one, ranks, mpi.world(), samples, rows);
  measure_steps(all, mpi.world(), rounds, steps);
  for (auto& one : all) measure_stages(one, ranks, mpi.world(), 2 * steps);
  if (ranks.comm.rank() != 0) return 0;
  std::printf("%d ranks on %d hosts, %lld samples a rank, medians of %d rounds of %d steps\n", ranks.comm.size(),
              static_cast<int>(ranks.hosts()), static_cast<long long>(samples), rounds, steps);
  print(all, samples, ranks.comm.size(), static_cast<int>(ranks.hosts()));
}
