// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <tessera/core/execution.hpp>

#include "../support/settings.hpp"

namespace plan_tables {

/// What the tables of `profile` are that no data file says.
struct profile_options {
  std::int64_t dim = 16;
  std::vector<std::string> own_dims;  ///< NAME=DIM
  std::int64_t batch = 65536;         ///< samples, or all where the files have fewer
  std::int64_t batches = 8;           ///< at most, of which profiles are means
  std::string row_format = "float", optimizer = "sgd", out = "tables.json";
  std::string towers;  ///< the file that says which columns make which tower; empty: none
};

/// Reads batches of files, and writes the profiles of the tables that its columns of ids read. @throws tessera::error naming option or file.
void profile(tessera::host_exec const& exec, examples::settings const& data, profile_options const& options);

struct task_options {
  std::string pool;        ///< the file that gets the synthetic pool; empty: none
  std::string tables;      ///< the file whose tables tasks are of; empty: the synthetic pool
  std::string out;         ///< the folder of the tasks; empty: none
  std::int64_t batch = 0;  ///< samples of the profiles' batches that tables are of; 0: all
  std::int64_t tasks = 100, devices = 4, most_dim = 128, least_tables = 10, most_tables = 59;
  std::uint64_t bytes_per_device = std::uint64_t{4} << 30, slack_bytes = std::uint64_t{1} << 30, seed = 0, pool_seed = 0;
};
void write_tasks(task_options const& options);

struct collect_options {
  std::string folder, pool, ranks = "threads:4";
  std::int64_t samples = 0, exchanges = 0;
  double seconds = 0;           ///< after which no further sample begins, of either kind; 0: none
  std::set<std::string> given;  ///< names of the options below that the command line has; others are the folder's
  std::string optimizer = "sgd";
  std::vector<std::int64_t> dims{4, 8, 16, 32, 64, 128}, batches;  ///< no batches: those of the profiles
  std::int64_t least_tables = 1, most_tables = 15, least_placed = 10, most_placed = 60, warm_up = 5, runs = 10, rounds = 1;
  std::uint64_t limit_bytes = std::uint64_t{1} << 30, seed = 0;
  double most_skew_ms = 20;
  std::int64_t time_limit = 3600;  ///< seconds that ranks wait for each other
};
/// Measures steps on this machine, and exchanges between ranks, into CSV files of a folder; goes on where it stopped.
void collect(int threads, collect_options const& options);

struct fit_command {
  std::string folder, exchanges_of;         ///< of steps, and of exchanges where these are in another; else empty
  std::vector<std::string> again;           ///< folders of the same steps, measured again: the medians count, or
  bool fastest = false;                     ///< the fastest
  std::vector<std::string> plans;           ///< TABLES.json=SAMPLES.csv: what was measured of plans of these tables
  std::string out, published;               ///< `published`: the folder of NeuroShard's networks; empty: none
  std::int64_t samples = 0, exchanges = 0;  ///< the first so many, the latter of each number of devices; 0: all
  std::int64_t epochs = 1000, batch = 512, starts = 1;
  float rate = 0.001F, last_rate = 0.001F;
  std::uint64_t seed = 0;
};
void fit(tessera::host_exec const& exec, fit_command const& options);

/// Which costs a command reckons with.
struct model_options {
  std::string folder;  ///< of a learned model or of published networks
  bool roofline = false;
  double memory_gb_per_second = 10, exchange_gb_per_second = 1;
  double host_gb_per_second = 0;  ///< inside a host; 0: as between hosts
  std::int64_t devices_of_host = 1;
  bool any_machine = false;  ///< whether a learned model may be of another machine
  double caution = 0;        ///< standard deviations over a learned model's networks that are added to its costs
};

struct search_options {
  std::string tables, out, report;
  model_options model;
  std::int64_t devices = 0, evaluations = 200'000;
  std::uint64_t bytes_per_device = 0, seed = 0;
  double deadline_ms = 0;
  bool cut_rows = false, replicas = false, weights_alone = false;
  std::int64_t towers = 0;                                         ///< of the methods that know towers
  std::int64_t candidates = 10, beams = 3, steps = 10, grid = 11;  ///< of the published search: N, K, L and M
  bool no_sums = false;                                            ///< of the published search
  std::string objective = "cost";                                  ///< the name of a `plan_objective`
  std::string method = "plan";                                     ///< the name of a `search_method`
};
void search(tessera::host_exec const& exec, search_options const& options);

struct compare_options {
  std::string folder, csv;
  std::vector<std::string> methods;  ///< names of them; empty: all but exhaustive
  search_options search;
};
void compare(tessera::host_exec const& exec, compare_options const& options);

struct predict_options {
  std::string folder, out = "predicted.csv";
  model_options model;
};
/// Writes what was collected in a folder beside what a model predicts of it.
void predict(tessera::host_exec const& exec, predict_options const& options);

struct show_options {
  std::string tables, plan, measured, page;
  model_options model;
  std::int64_t devices = 0;
  std::uint64_t bytes_per_device = 0;  ///< 0: no limit
  bool weights_alone = false;
};
void show(tessera::host_exec const& exec, show_options const& options);

struct measure_options {
  std::string tables, out = "measured.csv", ranks;
  std::string samples;  ///< the file of plans' samples that gets a line of each plan; empty: none
  std::vector<std::string> plans;
  std::string compute;        ///< a file of `measure` that has the steps, which then are not measured; empty: none
  bool no_exchanges = false;  ///< measure steps alone
  bool whole_steps = false;   ///< run steps of `sharded_tables` on the ranks instead
  bool fastest = false;       ///< the fastest round counts: of each device's steps, and of all devices' exchanges together
  std::int64_t devices = 0, warm_up = 5, runs = 10, rounds = 1, time_limit = 3600;
  std::uint64_t seed = 0;
};
/// Measures plans of the same tables: their steps on this machine, one device after the other, and their exchanges between ranks. In each
/// round the plans come one after the other, with the same ids; the medians of rounds count, or the fastest. Whole steps are of all devices at
/// once, each a rank.
void measure(int threads, measure_options const& options);

}  // namespace plan_tables
