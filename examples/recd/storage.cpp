// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/data/session_clustering.hpp>
#include <tessera/data/session_log_store.hpp>
#include <tessera/data/session_shards.hpp>

#include "results.hpp"

namespace recd {

namespace {

using namespace tessera;

constexpr std::int64_t rows_at_once = 8192;

class stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

parquet_writer_options settings(plan const& plan, bool dictionary, std::int64_t row_group_rows) {
  parquet_writer_options options;
  options.dictionary = dictionary;
  options.row_group_rows = row_group_rows;
  options.row_group_bytes = std::int64_t{1} << 32;
  options.page_bytes = plan.page_bytes;
  options.zstd_level = plan.zstd_level;
  return options;
}

// What ids would take at the entropy of their feature's frequencies: all of them, and those that no list of the session had before.
class entropies {
 public:
  entropies(session_clicks_options const& options, session_statistics_options how)
      : statistics_(static_cast<std::int64_t>(options.features.size()), how) {
    for (auto const& feature : options.features) counts_.emplace_back(static_cast<std::size_t>(feature.ids));
  }
  void add(host_exec const& exec, sample_columns_view samples) {
    statistics_.add(exec, samples);
    exec.run(samples.sparse.size(), [&](std::int64_t f) {
      for (auto const id : samples.sparse[f].all_values()) ++counts_[static_cast<std::size_t>(f)][static_cast<std::size_t>(id)];
    });
  }
  void write(storage_result& result) const {
    for (std::size_t f = 0; f < counts_.size(); ++f) {
      double ids = 0, bits = 0;
      for (auto const count : counts_[f]) ids += static_cast<double>(count);
      for (auto const count : counts_[f])
        if (count > 0) bits -= static_cast<double>(count) * std::log2(static_cast<double>(count) / ids);
      result.entropy_bytes += bits / 8;
      result.distinct_entropy_bytes += bits / 8 * (1 - statistics_.feature(static_cast<std::int64_t>(f)).partial());
    }
  }
  session_statistics const& statistics() const { return statistics_; }

 private:
  session_statistics statistics_;
  std::vector<std::vector<std::int64_t>> counts_;
};

// Writes a file anew with other settings.
std::int64_t rewrite(host_exec const& exec, parquet_log const& log, std::string const& path, parquet_writer_options const& options) {
  parquet_writer writer(path, log.schema(), options);
  sample_columns block(log.schema());
  for (std::int64_t b = 0; b < log.block_count(); ++b) {
    log.read(exec, b, block);
    writer.write(exec, block.view());
  }
  return writer.finish().file_bytes;
}

repeat_figures figures_of(session_statistics const& statistics) {
  repeat_figures result{statistics.samples_per_session(),
                        statistics.samples_per_session_in_batch(),
                        statistics.histogram(),
                        statistics.batch_histogram(),
                        {},
                        {},
                        statistics.means()};
  for (std::int64_t f = 0; f < statistics.feature_count(); ++f) {
    result.exact.push_back(statistics.feature(f).exact());
    result.partial.push_back(statistics.feature(f).partial());
  }
  std::sort(result.exact.begin(), result.exact.end(), std::greater<>());
  std::sort(result.partial.begin(), result.partial.end(), std::greater<>());
  return result;
}

}  // namespace

stored_file const& storage_result::best(bool is_clustered) const {
  stored_file const* found = nullptr;
  for (auto const& file : files)
    if (file.clustered == is_clustered && (found == nullptr || file.bytes < found->bytes)) found = &file;
  return *found;
}

stored_file const& storage_result::like(stored_file const& other, bool is_clustered) const {
  return *std::find_if(files.begin(), files.end(), [&](stored_file const& file) {
    return file.clustered == is_clustered && file.dictionary == other.dictionary && file.row_group_rows == other.row_group_rows;
  });
}

double storage_result::ratio() const {
  auto const& smallest = best(true);
  return static_cast<double>(like(smallest, false).bytes) / static_cast<double>(smallest.bytes);
}
double storage_result::best_ratio() const { return static_cast<double>(best(false).bytes) / static_cast<double>(best(true).bytes); }

storage_result store(host_exec const& exec, plan const& plan) {
  storage_result result;
  auto const options = log_options(plan, rm1_sessions(), plan.rows);
  session_clicks clicks(exec, options);
  auto const schema = clicks.schema();
  auto const plain = settings(plan, false, 65'536);
  result.inference = plan.folder + "/inference.parquet";
  result.clustered = plan.folder + "/clustered.parquet";

  // Generate, in the order of inference; on the way, the log store by either key (O1).
  session_statistics_options how;
  how.one_session_in = std::max<std::int64_t>(1, plan.rows / 65'536);
  entropies entropy(options, how);
  // As many shards as leave sixteen open sessions to each.
  auto const stores = std::max<std::int64_t>(1, options.window_sessions / 16);
  session_log_store by_sample({.shards = stores, .key = sample_key::sample, .block_bytes = 1 << 20}),
      by_session({.shards = stores, .key = sample_key::session, .block_bytes = 1 << 20});
  {
    stopwatch const watch;
    parquet_writer writer(result.inference, schema, plain);
    sample_columns block(schema);
    for (std::int64_t row = 0; clicks.next(exec, rows_at_once, block) > 0; row += block.size()) {
      writer.write(exec, block.view());
      entropy.add(exec, block.view());
      by_sample.append(exec, block.view(), row);
      by_session.append(exec, block.view(), row);
    }
    auto const written = writer.finish();
    result.rows = written.rows;
    result.value_bytes = written.value_bytes;
    result.files.push_back({false, false, 65'536, written.file_bytes});
    result.generate_seconds = watch.seconds();
  }
  result.log_by_sample = by_sample.finish(exec).ratio();
  result.log_by_session = by_session.finish(exec).ratio();
  entropy.write(result);
  result.repeats = figures_of(entropy.statistics());

  // Shard by session, then cluster (O2).
  parquet_log const log({result.inference}, schema);
  {
    stopwatch const watch;
    session_shards_options shards;
    shards.shards = 4;
    shards.writer.zstd_level = 1;
    auto const sharded = write_session_shards(exec, log, plan.folder, "shards", shards);
    parquet_log const source(sharded.paths, schema);
    session_clustering_options clustering;
    clustering.output = plain;
    auto const written = cluster_by_session(exec, source, result.clustered, clustering);
    result.files.push_back({true, false, 65'536, written.output.file_bytes});
    result.cluster_seconds = watch.seconds();
    std::filesystem::remove_all(plan.folder + "/shards");
  }

  parquet_log const clustered({result.clustered}, schema);
  auto const scratch = plan.folder + "/scratch.parquet";
  for (bool const is_clustered : {false, true})
    for (bool const dictionary : {false, true})
      for (std::int64_t const rows : {8192, 65'536}) {
        if (!dictionary && rows == 65'536) continue;  // written above
        auto const bytes = rewrite(exec, is_clustered ? clustered : log, scratch, settings(plan, dictionary, rows));
        result.files.push_back({is_clustered, dictionary, rows, bytes});
      }
  std::filesystem::remove(scratch);
  return result;
}

}  // namespace recd
