// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/list_hash.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_meter.hpp>
#include <tessera/data/session_clicks.hpp>

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

// A sum over samples of hashes of session, label and every list. `columns` (keys,): of the schema, whose order the keys need not have.
std::uint64_t hash_of(batch_view const& batch, std::vector<std::int64_t> const& columns) {
  auto const features = batch.inverse_keyed();
  std::vector<std::uint64_t> of_samples(static_cast<std::size_t>(batch.samples())), of_rows;
  for (std::int64_t key = 0; key < features.keys(); ++key) {
    auto const rows = features.distinct.key(key);
    auto const column = static_cast<std::uint64_t>(columns[static_cast<std::size_t>(key)]);
    of_rows.clear();
    for (std::int64_t row = 0; row < rows.rows; ++row) of_rows.push_back(list_hash(rows.row(row)).within(column).low);
    auto const inverse = features.inverse(key);
    for (std::size_t i = 0; i < of_samples.size(); ++i)
      of_samples[i] += of_rows[inverse.empty() ? i : static_cast<std::size_t>(inverse[static_cast<std::int64_t>(i)])];
  }
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < batch.samples(); ++i)
    sum += mix_bits(of_samples[static_cast<std::size_t>(i)] ^ mix_bits(static_cast<std::uint64_t>(batch.session_ids[i])) ^
                    static_cast<std::uint64_t>(batch.labels[i]));
  return sum;
}

// One epoch: truncation to the last 200 ids and hashing to the rows of the tables are what a job asks of its readers.
reading_result read_epoch(host_exec const& exec, plan const& plan, sample_schema const& schema, std::string const& path,
                          std::vector<std::vector<std::string>> const& groups, double bytes_per_second) {
  read_meter meter(static_cast<std::int64_t>(bytes_per_second));
  parquet_log_options options;
  options.open = metered(meter);
  parquet_log const log({path}, schema, options);
  auto const grouped = group_keys(schema.sparse, groups);
  id_pipeline const pipeline(exec, grouped.keys, truncate_ids{.most = 200}, hash_ids{.size = 100'000});

  system_memory memory;
  arena workspace(memory);
  auto const step_exec = exec.with_memory(workspace);
  sample_reader_options of_reader;
  of_reader.batch_size = plan.batch;
  of_reader.groups = groups;
  of_reader.dense = dense_values::log;
  sample_reader reader(step_exec, log, pipeline, of_reader);
  reading_result result;
  auto const next = [&](batch_view& batch) {  // what is timed
    auto const start = clock::now();
    bool const is_there = reader.next(step_exec, batch);
    result.seconds += std::chrono::duration<double>(clock::now() - start).count();
    return is_there;
  };
  for (batch_view batch; next(batch);) {
    result.samples += batch.samples();
    result.sent_bytes += bytes_of(batch);
    result.hash += hash_of(batch, grouped.order);
  }
  result.times = reader.times();
  result.read_bytes = meter.bytes();
  return result;
}

}  // namespace

reader_result read(host_exec const& exec, plan const& plan, storage_result const& stored) {
  auto const options = log_options(plan, rm1_sessions(), plan.rows);
  auto const schema = session_clicks(exec, options).schema();
  reader_result result;
  // The two sides in turn, so that a machine's moods fall on both; of two rounds the faster.
  for (int round = 0; round < 2; ++round)
    for (bool const is_remote : {true, false})
      for (bool const is_clustered : {false, true}) {
        auto const side = read_epoch(exec, plan, schema, is_clustered ? stored.clustered : stored.inference,
                                     is_clustered ? session_groups(options) : std::vector<std::vector<std::string>>(),
                                     is_remote ? plan.source_mb_per_second * 1e6 : 0);
        auto const& first = result.remote[0];
        if (first.samples > 0 && (side.samples != first.samples || side.hash != first.hash))
          throw error(errc::incompatible, "readers with and without deduplication deliver other samples",
                      {{"samples", side.samples}, {"expected", first.samples}, {"hash", side.hash}, {"hash expected", first.hash}});
        auto& kept = (is_remote ? result.remote : result.cached)[is_clustered ? 1 : 0];
        if (round == 0 || side.seconds < kept.seconds) kept = side;
      }
  return result;
}

}  // namespace recd
