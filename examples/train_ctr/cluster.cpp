// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Logs into the order of sessions, where Apache Arrow is.
#ifdef TESSERA_TRAIN_PARQUET

#include "../support/cluster_job.hpp"

#include <cstdio>
#include <string>

#include <tessera/data/parquet_clustering.hpp>

namespace {

tessera::session_clustering_options options_of(examples::cluster_settings const& s) {
  tessera::session_clustering_options options;
  options.memory_bytes = s.memory_mb << 20;
  options.whole_sessions = s.whole_sessions;
  options.order.batch_size = s.batch;
  return options;
}

int print(examples::cluster_settings const& s, tessera::clustered_sessions const& done) {
  auto const &before = done.before, &after = done.after;
  std::printf("clustered %lld samples into %s\n", static_cast<long long>(done.output.rows), s.out.c_str());
  std::printf("                                     before     after\n");
  if (done.source_bytes > 0)
    std::printf("megabytes                        %10.2f%10.2f\n", static_cast<double>(done.source_bytes) * 1e-6,
                static_cast<double>(done.output.file_bytes) * 1e-6);
  std::printf("a session's samples of a batch   %10.2f%10.2f\n", before.samples_per_session(), after.samples_per_session());
  std::printf("a batch's ids in repeated lists  %9.1f%%%9.1f%%\n", 100 * before.repeated_share(), 100 * after.repeated_share());
  if (after.repeated == 0)
    std::printf("no session has two samples in what was looked at: is %s the column of sessions?\n", s.session_column.c_str());
  return 0;
}

}  // namespace

int examples::run_cluster(tessera::host_exec const& exec, cluster_settings const& s) {
  return print(s, tessera::cluster_by_session(exec, s.in, {s.session_column, s.time_column}, s.out, options_of(s)));
}

int examples::run_cluster(tessera::host_exec const& exec, tessera::any_sample_source const& source, cluster_settings const& s) {
  return print(s, tessera::cluster_by_session(exec, source, s.out, options_of(s)));
}

#endif
