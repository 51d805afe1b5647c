// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/data/dealt_reader.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/synth/parquet_meter.hpp>
#include <tessera/synth/session_clicks.hpp>
#include <tessera/synth/session_options.hpp>
#include <tessera/synth/session_sets.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/feature_interaction.hpp>
#include <tessera/train/sequence_pooler.hpp>
#include <tessera/train/trainer.hpp>

#include "model.hpp"
#include "reading.hpp"
#include "results.hpp"

namespace recd {

namespace {

using namespace tessera;
using ranks_dlrm = click_model<sharded_tables, float_products, dot_products, encoder_pooling>;

/// One way to read and train, of which each rank does its part.
class way_on_ranks {
 public:
  way_on_ranks(plan const& plan, session_clicks_options const& options, sample_schema const& schema, std::string path,
               std::vector<std::vector<std::string>> groups)
      : plan_(plan),
        options_(options),
        schema_(schema),
        path_(std::move(path)),
        groups_(std::move(groups)),
        hosts_(topology::of_hosts(plan.hosts, plan.ranks / plan.hosts)) {}

  ranks_way run() {
    run_thread_ranks(plan_.ranks, [&](thread_communicator& comm) { train(comm); });
    way_.read_bytes = meter_.bytes();
    return std::move(way_);
  }

 private:
  // Tables and the dense net have a communicator of their own, so that their messages are counted apart.
  void train(thread_communicator& comm) {
    serial_team team;
    system_memory memory;
    arena workspace(memory);
    host_exec const exec(team, workspace);
    sent_counts of_tables, of_sums;
    any_communicator const exchange = counting_communicator(comm, of_tables), sums = counting_communicator(comm, of_sums);

    parquet_log_options opened;
    opened.open = metered(meter_);
    parquet_log const log({path_}, schema_, opened);
    auto const prepare = preparation(schema_);
    dealt_reader reader(exec, log, prepare,
                        {.batch_size = plan_.batch, .groups = groups_, .slice = {.rank = comm.rank(), .ranks = comm.size()}});
    auto parts = parts_of_model(options_, static_cast<std::size_t>(plan_.rank_transformers), reader.keys(), pooled_rows::distinct);
    auto const where = plan_by_bytes(parts.tables, comm.size());
    ranks_dlrm model(exec, parts.dense, sharded_tables(exec, exchange, parts.tables, parts.features, where), {}, parts.groups);
    trainer run(exec, model, adam{.learning_rate = 1e-3F}, {.comm = sums});
    of_tables.clear();
    of_sums.clear();

    ranks_way own;
    for (batch_view batch; reader.next(exec, batch);) {
      own.read_samples += batch.samples();
      own.batch_bytes += bytes_of(batch);
      if (plan_.rank_steps > 0 && own.steps == plan_.rank_steps) continue;  // the rest of the epoch is read alone
      own.losses.push_back(run.step(exec, batch));
      own.samples += batch.samples();
      ++own.steps;
    }
    add(comm.rank(), own, of_tables, of_sums);
  }

  void add(int rank, ranks_way const& own, sent_counts const& of_tables, sent_counts const& of_sums) {
    std::lock_guard const lock(mutex_);
    way_.read_samples += own.read_samples;
    way_.batch_bytes += own.batch_bytes;
    way_.samples += own.samples;
    way_.steps = own.steps;
    way_.losses = own.losses;
    for (auto const& one : of_tables) way_.exchange[one.first] += sent_by(of_tables, one.first).bytes;
    for (auto const& one : of_sums) way_.sums[one.first] += sent_by(of_sums, one.first).bytes;
    way_.exchange_between_hosts += sent_to(of_tables, [&](int to) { return hosts_.domain_of(0, to) != hosts_.domain_of(0, rank); }).bytes;
  }

  plan const& plan_;
  session_clicks_options const& options_;
  sample_schema const& schema_;
  std::string path_;
  std::vector<std::vector<std::string>> groups_;
  topology hosts_;
  read_meter meter_;
  std::mutex mutex_;
  ranks_way way_;
};

}  // namespace

std::int64_t ranks_way::exchange_bytes() const {
  return std::accumulate(exchange.begin(), exchange.end(), std::int64_t{0},
                         [](std::int64_t sum, auto const& one) { return sum + one.second; });
}

ranks_result train_on_ranks(host_exec const& exec, plan const& plan, storage_result const& stored) {
  auto const options = stored_set(plan);
  auto const schema = session_clicks(exec, options).schema();
  ranks_result result;
  std::set<std::int64_t> groups;
  for (auto const& feature : options.features)
    if (feature.kind == session_feature_kind::sequence) groups.insert(feature.group);
  result.groups = groups.size();
  for (std::size_t way = 0; way < reading_ways; ++way) {
    auto const& path = way > 0 ? stored.dealt_clustered : stored.dealt_inference;
    result.ways[way] =
        way_on_ranks(plan, options, schema, path, way > 1 ? session_groups(options) : std::vector<std::vector<std::string>>{}).run();
    std::printf("  %-12s %lld steps of %lld samples\n", reading_names[way], static_cast<long long>(result.ways[way].steps),
                static_cast<long long>(plan.batch));
    std::fflush(stdout);
  }
  auto const &whole = result.ways[1], &shared = result.ways[2];
  for (std::size_t step = 0; step < std::min({compared_steps, whole.losses.size(), shared.losses.size()}); ++step)
    if (auto const one = whole.losses[step], other = shared.losses[step]; !(std::abs(one - other) <= loss_tolerance * std::abs(one)))
      throw error(errc::incompatible, "on ranks, losses differ with deduplication",
                  {{"step", step}, {"loss", one}, {"loss with deduplication", other}});
  return result;
}

}  // namespace recd
