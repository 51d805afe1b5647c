// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/data/list_hash.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/synth/parquet_meter.hpp>
#include <tessera/synth/session_clicks.hpp>
#include <tessera/synth/session_sets.hpp>
#include <tessera/tensor/key_groups.hpp>

#include "reading.hpp"
#include "results.hpp"

namespace recd {

namespace {

using namespace tessera;
using clock = std::chrono::steady_clock;

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

// One epoch.
reading_result read_epoch(host_exec const& exec, plan const& plan, sample_schema const& schema, std::string const& path,
                          std::vector<std::vector<std::string>> const& groups, double bytes_per_second) {
  read_meter meter(static_cast<std::int64_t>(bytes_per_second));
  parquet_log_options options;
  options.open = metered(meter);
  parquet_log const log({path}, schema, options);
  auto const prepare = preparation(schema);

  system_memory memory;
  arena workspace(memory);
  auto const step_exec = exec.with_memory(workspace);
  sample_reader_options of_reader;
  of_reader.batch_size = plan.batch;
  of_reader.groups = groups;
  sample_reader reader(step_exec, log, prepare, of_reader);
  auto const columns = group_keys(schema.sparse, groups).order;
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
    result.hash += hash_of(batch, columns);
  }
  result.times = reader.times();
  result.read_bytes = meter.bytes();
  return result;
}

}  // namespace

reader_result read(host_exec const& exec, plan const& plan, storage_result const& stored) {
  auto const options = stored_set(plan);
  auto const schema = session_clicks(exec, options).schema();
  std::vector<std::vector<std::string>> const no_groups;
  std::vector<reading_result> epochs[2][reading_ways];  // remote, cached
  // The ways in turn, so that a machine's moods fall on all.
  for (std::int64_t round = 0; round < plan.rounds; ++round)
    for (auto const is_cached : {0, 1})
      for (std::size_t way = 0; way < reading_ways; ++way) {
        auto const& first = epochs[0][0];
        auto epoch = read_epoch(exec, plan, schema, way > 0 ? stored.clustered : stored.inference,
                                way > 1 ? session_groups(options) : no_groups, is_cached == 0 ? plan.source_mb_per_second * 1e6 : 0);
        if (!first.empty() && (epoch.samples != first[0].samples || epoch.hash != first[0].hash))
          throw error(errc::incompatible, "readers with and without deduplication deliver other samples",
                      {{"samples", epoch.samples}, {"expected", first[0].samples}, {"hash", epoch.hash}, {"hash expected", first[0].hash}});
        epochs[is_cached][way].push_back(std::move(epoch));
      }
  reader_result result;
  for (std::size_t way = 0; way < reading_ways; ++way)
    for (auto const is_cached : {0, 1}) {
      auto& of_way = epochs[is_cached][way];
      auto const middle = of_way.begin() + static_cast<std::ptrdiff_t>(of_way.size() / 2);
      std::nth_element(of_way.begin(), middle, of_way.end(), [](auto const& a, auto const& b) { return a.seconds < b.seconds; });
      (is_cached == 0 ? result.remote : result.cached)[way] = *middle;
    }
  return result;
}

}  // namespace recd
