// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_meter.hpp>

#include "results.hpp"

namespace recd {

namespace {

using namespace tessera;
using clock = std::chrono::steady_clock;

// Bytes of a batch as it goes to a trainer.
std::int64_t bytes_of(batch_view const& batch) {
  auto const numbers = batch.sparse.size() + batch.sparse.rows() + 1 + batch.groups.size() * batch.samples() + batch.sample_ids.size();
  return 8 * numbers + 4 * (batch.dense.rows() * batch.dense.columns() + batch.labels.size());
}

// One epoch: truncation to the last 200 ids and hashing to the rows of the tables are what a job asks of its readers.
reading_result read_epoch(host_exec const& exec, plan const& plan, sample_schema const& schema, std::string const& path,
                          std::vector<std::vector<std::string>> const& groups, double bytes_per_second) {
  read_meter meter(static_cast<std::int64_t>(bytes_per_second));
  parquet_log_options options;
  options.open = metered(meter);
  parquet_log const log({path}, schema, options);
  auto const order = group_keys(schema.sparse, groups).order;
  std::vector<std::string> keys;
  for (auto const key : order) keys.push_back(schema.sparse[static_cast<std::size_t>(key)]);
  id_pipeline const pipeline(exec, keys, truncate_ids{.most = 200}, hash_ids{.size = 100'000});

  system_memory memory;
  arena workspace(memory);
  auto const step_exec = exec.with_memory(workspace);
  sample_reader_options of_reader;
  of_reader.batch_size = plan.batch;
  of_reader.groups = groups;
  of_reader.dense = dense_values::log;
  reading_result result;
  auto const start = clock::now();
  {
    sample_reader reader(step_exec, log, pipeline, of_reader);
    for (batch_view batch; reader.next(step_exec, batch);) {
      result.samples += batch.samples();
      result.sent_bytes += bytes_of(batch);
    }
    result.times = reader.times();
  }
  result.seconds = std::chrono::duration<double>(clock::now() - start).count();
  result.read_bytes = meter.bytes();
  return result;
}

}  // namespace

reader_result read(host_exec const& exec, plan const& plan, storage_result const& stored) {
  auto const options = log_options(plan, rm1_sessions(), plan.rows);
  auto const schema = session_clicks(exec, options).schema();
  auto const groups = groups_of(options);
  reader_result result;
  // Each twice in turn, the second counts: both files are in the page cache then, and the machine's moods fall on both.
  for (int round = 0; round < 2; ++round)
    for (bool const is_remote : {true, false}) {
      auto& to = is_remote ? result.remote : result.cached;
      auto const rate = is_remote ? plan.source_mb_per_second * 1e6 : 0;
      to[0] = read_epoch(exec, plan, schema, stored.inference, {}, rate);
      to[1] = read_epoch(exec, plan, schema, stored.clustered, groups, rate);
    }
  return result;
}

}  // namespace recd
