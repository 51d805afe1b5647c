// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <functional>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_sink.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/session_clustering.hpp>
#include <tessera/data/session_sampling.hpp>
#include <tessera/data/session_shards.hpp>
#include <tessera/data/session_statistics.hpp>
#include <tessera/synth/session_clicks.hpp>
#include <tessera/synth/session_log_store.hpp>

#include "entropies.hpp"
#include "results.hpp"

namespace recd {

namespace {

using namespace tessera;

constexpr std::int64_t rows_at_once = 8192;

parquet_writer_options written_by(plan const& plan, file_settings const& settings) {
  parquet_writer_options options;
  options.dictionary = settings.dictionary;
  options.row_group_rows = settings.group_rows;
  options.row_group_bytes = std::int64_t{1} << 32;
  options.page_bytes = settings.page_bytes;
  options.zstd_level = plan.zstd_level;
  return options;
}

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
  repeat_figures result;
  result.samples_a_session = statistics.samples_per_session();
  result.samples_in_batch = statistics.samples_per_session_in_batch();
  result.sessions = statistics.histogram();
  result.batch_sessions = statistics.batch_histogram();
  result.means = statistics.means();
  for (std::int64_t f = 0; f < statistics.feature_count(); ++f) {
    result.exact.push_back(statistics.feature(f).exact());
    result.partial.push_back(statistics.feature(f).partial());
  }
  std::sort(result.exact.begin(), result.exact.end(), std::greater<>());
  std::sort(result.partial.begin(), result.partial.end(), std::greater<>());
  return result;
}

// Writes the log in the order of inference; on the way, the log store by either key (O1).
void generate(host_exec const& exec, plan const& plan, session_clicks& clicks, storage_result& result) {
  session_statistics_options how;
  how.one_session_in = std::max<std::int64_t>(1, plan.rows / 65'536);
  entropies entropy(clicks.options(), how);
  std::vector<session_log_store> by_sample, by_session;
  for (auto const open : tried_open_sessions) {
    auto const shards = std::max<std::int64_t>(1, clicks.options().window_sessions / open);
    result.log_stores.push_back({open, shards});
    by_sample.emplace_back(session_log_store_options{.shards = shards, .key = sample_key::sample, .block_bytes = 1 << 20});
    by_session.emplace_back(session_log_store_options{.shards = shards, .key = sample_key::session, .block_bytes = 1 << 20});
  }
  auto const schema = clicks.schema();
  parquet_writer writer(result.inference, schema, written_by(plan, tried_settings[0]));
  sample_columns block(schema);
  for (std::int64_t row = 0; clicks.next(exec, rows_at_once, block) > 0; row += block.size()) {
    writer.write(exec, block.view());
    entropy.add(exec, block.view());
    for (auto& store : by_sample) store.append(exec, block.view(), row);
    for (auto& store : by_session) store.append(exec, block.view(), row);
  }
  auto const written = writer.finish();
  result.rows = written.rows;
  result.value_bytes = written.value_bytes;
  result.files.push_back({false, tried_settings[0], written.file_bytes});
  for (std::size_t i = 0; i < result.log_stores.size(); ++i) {
    result.log_stores[i].by_sample = by_sample[i].finish(exec).ratio();
    result.log_stores[i].by_session = by_session[i].finish(exec).ratio();
  }
  entropy.write(result);
  result.repeats = figures_of(entropy.statistics());
}

// Shards by session, then clusters (O2).
void cluster(host_exec const& exec, plan const& plan, parquet_log const& log, storage_result& result) {
  session_shards_options shards;
  shards.shards = 4;
  shards.writer.zstd_level = 1;
  auto const sharded = write_session_shards(exec, log, plan.folder, "shards", shards);
  parquet_log const source(sharded.paths, log.schema());
  session_clustering_options clustering;
  clustering.output = written_by(plan, tried_settings[0]);
  auto const written = cluster_by_session(exec, source, result.clustered, clustering);
  result.files.push_back({true, tried_settings[0], written.output.file_bytes});
  std::filesystem::remove_all(plan.folder + "/shards");
}

}  // namespace

stored_file const& storage_result::best(bool is_clustered, bool of_all) const {
  stored_file const* found = nullptr;
  for (auto const& file : files)
    if (file.clustered == is_clustered && (of_all || file.settings.page_bytes == 1 << 20) &&
        (found == nullptr || file.bytes < found->bytes))
      found = &file;
  return *found;
}

stored_file const& storage_result::like(file_settings const& settings, bool is_clustered) const {
  return *std::find_if(files.begin(), files.end(),
                       [&](stored_file const& file) { return file.clustered == is_clustered && file.settings == settings; });
}

double storage_result::ratio(file_settings const& settings) const { return like(settings, false).times_larger(like(settings, true)); }
double storage_result::ratio() const { return ratio(best(true, false).settings); }
double storage_result::best_ratio() const { return best(false).times_larger(best(true)); }

repeat_figures fitted_repeats(host_exec const& exec, plan const& plan) {
  auto options = fitted_sessions();
  options.window_sessions = std::min<std::int64_t>(60'000, plan.rows);
  options.windows = 1;
  session_clicks clicks(exec, options);
  session_statistics_options how;
  how.one_session_in = 16;
  session_statistics statistics(static_cast<std::int64_t>(options.features.size()), how);
  for (sample_columns block(clicks.schema()); clicks.next(exec, rows_at_once, block) > 0;) statistics.add(exec, block.view());
  return figures_of(statistics);
}

storage_result store(host_exec const& exec, plan const& plan) {
  storage_result result;
  result.inference = plan.folder + "/inference.parquet";
  result.clustered = plan.folder + "/clustered.parquet";
  session_clicks clicks(exec, stored_set(plan));
  auto const schema = clicks.schema();
  generate(exec, plan, clicks, result);
  parquet_log const log({result.inference}, schema);
  cluster(exec, plan, log, result);

  // The same with other settings, for their sizes alone.
  parquet_log const clustered({result.clustered}, schema);
  auto const scratch = plan.folder + "/scratch.parquet";
  for (bool const is_clustered : {false, true})
    for (auto const& settings : tried_settings) {
      if (settings == tried_settings[0]) continue;  // written above
      result.files.push_back({is_clustered, settings, rewrite(exec, is_clustered ? clustered : log, scratch, written_by(plan, settings))});
    }
  std::filesystem::remove(scratch);
  if (plan.ranks == 1) return result;
  result.dealt_inference = plan.folder + "/dealt_inference.parquet";
  result.dealt_clustered = plan.folder + "/dealt_clustered.parquet";
  auto settings = tried_settings[0];
  settings.group_rows = divide_up(result.rows, plan.ranks);
  rewrite(exec, log, result.dealt_inference, written_by(plan, settings));
  rewrite(exec, clustered, result.dealt_clustered, written_by(plan, settings));
  return result;
}

}  // namespace recd
