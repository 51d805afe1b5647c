// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tessera/data/dedupe_model.hpp>
#include <tessera/data/session_clicks.hpp>
#include <tessera/data/session_sets.hpp>
#include <tessera/data/session_statistics.hpp>
#include <tessera/tensor/id_pipeline.hpp>
#include <tessera/tensor/id_transforms.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/session_model.hpp>

namespace recd {

/// What the run is of.
struct plan {
  std::int64_t rows = 65'536;  // of the RM1-like log; a sixteenth and a half as many sessions, all open at once
  std::int64_t batch = 2048;
  std::int64_t steps = 3;             // timed, of each way to train
  std::int64_t page_bytes = 1 << 16;  // of a column, compressed at once: so small that a smaller log's interleaved sessions stay apart
  int zstd_level = 3;
  std::int64_t scale = 1;  // of the sets' features a scale-th, for a small machine
  double source_mb_per_second = 150;
  std::string folder;  // where files go
};

/// A file of the log: how it is written, and how large it became.
struct stored_file {
  bool clustered = false, dictionary = false;
  std::int64_t row_group_rows = 0;
  std::int64_t bytes = 0;
};

/// What repeats in the log, as the paper's Figures 3 and 4 have it.
struct repeat_figures {
  double samples_a_session = 0, samples_in_batch = 0;
  std::map<std::int64_t, std::int64_t> sessions, batch_sessions;  // how many have so many samples, of the log and of batches of 4,096
  std::vector<double> exact, partial;                             // of each feature: share of lists and of ids that come again, most first
  tessera::repeat_means means;
};

struct storage_result {
  std::int64_t rows = 0, value_bytes = 0;
  repeat_figures repeats;
  std::vector<stored_file> files;
  double log_by_sample = 1, log_by_session = 1;          // what the log store's compression gains
  double entropy_bytes = 0, distinct_entropy_bytes = 0;  // of all ids at their frequencies; of those that are new in their session
  double generate_seconds = 0, cluster_seconds = 0;
  std::string inference, clustered;  // the files that the next stages read

  stored_file const& best(bool is_clustered) const;
  stored_file const& like(stored_file const& other, bool is_clustered) const;
  /// Both sides with the settings that are best for the clustered one, and each at its own best.
  double ratio() const;
  double best_ratio() const;
};

/// An epoch of batches of one file.
struct reading_result {
  std::int64_t samples = 0, read_bytes = 0, sent_bytes = 0;
  double seconds = 0;
  tessera::reader_times times;

  double rate() const { return static_cast<double>(samples) / seconds; }
};
struct reader_result {
  reading_result remote[2], cached[2];  // in the order of inference, and clustered with groups

  double remote_ratio() const { return remote[1].rate() / remote[0].rate(); }
  double cached_ratio() const { return cached[1].rate() / cached[0].rate(); }
};

/// One way to train: so many samples, each once.
struct training_result {
  std::string name;
  std::int64_t batch = 0, samples = 0;
  double seconds = 0;              // of all of them
  double loss = 0;                 // of the last step
  std::size_t peak_bytes = 0;      // of inputs and activations: what a step takes, and the batch
  std::size_t sequence_bytes = 0;  // of these, what grows with the ids of sequences
  tessera::session_times times;

  double rate() const { return static_cast<double>(samples) / seconds; }
};

/// The ways to train on one set.
struct trainer_result {
  std::string set;
  std::vector<training_result> ways;                       // the first is that without deduplication, in the order of inference
  double factor = 1, sequence_factor = 1, bag_factor = 1;  // how many times fewer ids distinct rows have

  training_result const& of(std::string const& name) const;
  double ratio(std::string const& name) const { return of(name).rate() / ways.front().rate(); }
  /// The most that sharing can gain at an equal batch: the first way's time over that with each stage divided by the factor of its ids.
  double bound() const;
  /// The share of the first way's peak memory that the factors predict.
  double expected_memory() const;
};

storage_result store(tessera::host_exec const& exec, plan const& plan);
reader_result read(tessera::host_exec const& exec, plan const& plan, storage_result const& stored);
/// The RM1-like set, from its files; and others, made in memory.
trainer_result train_rm1(tessera::host_exec const& exec, plan const& plan, storage_result const& stored);
trainer_result train_set(tessera::host_exec const& exec, plan const& plan, std::string const& name,
                         tessera::session_clicks_options options);
trainer_result train_without_repeats(tessera::host_exec const& exec, plan const& plan);

/// A set's log of about `rows` samples, of sessions that are all open at once.
tessera::session_clicks_options log_options(plan const& plan, tessera::session_clicks_options options, std::int64_t rows);
/// The groups of a set: its sequences by group, each feature of users on its own.
std::vector<std::vector<std::string>> groups_of(tessera::session_clicks_options const& options);

}  // namespace recd
