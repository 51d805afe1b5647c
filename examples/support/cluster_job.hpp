// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/data/sample_source.hpp>

namespace examples {

/// What `train_ctr cluster` is told.
struct cluster_settings {
  std::vector<std::string> in;  ///< Parquet files
  std::string out;
  std::string session_column;
  std::string time_column;  ///< none: samples of a session keep their order
  std::int64_t memory_mb = 1024;
  std::int64_t batch = 4096;    ///< samples whose sessions are counted, to say what was gained
  bool whole_sessions = false;  ///< row groups end with sessions
};

/// Writes Parquet files as one by session, with all their columns, and prints what that gained. Returns the status of the program.
int run_cluster(tessera::host_exec const& exec, cluster_settings const& s);

/// Likewise the samples of any other source, with the columns that its schema names; the columns that `s` names do not matter.
int run_cluster(tessera::host_exec const& exec, tessera::any_sample_source const& source, cluster_settings const& s);

}  // namespace examples
