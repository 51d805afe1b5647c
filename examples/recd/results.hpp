// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/data/session_statistics.hpp>
#include <tessera/synth/session_options.hpp>
#include <tessera/train/click_model_saved.hpp>

namespace recd {

/// What the run is of.
struct plan {
  bool fitted = true;                               // the log: fitted to the paper's Figures 3 and 4; else `rm1_sessions`
  std::int64_t rows = 65'536;                       // of the log; a sixteenth and a half as many sessions, all open at once
  std::int64_t batch = 2048;                        // samples
  std::int64_t steps = 2;                           // timed, of each way to train and round, each on a batch of its own
  std::int64_t rounds = 3;                          // the ways of one comparison take turns so often
  std::vector<std::int64_t> transformers{0, 1, 2};  // RM1-like also trains with so many of its groups pooled by a transformer
  bool trains = true;
  int zstd_level = 3;
  std::int64_t scale = 1;              // of the sets' features a scale-th, for a small machine
  double source_mb_per_second = 150;   // of the remote file
  std::string folder;                  // where files go
  int ranks = 1, hosts = 1;            // that train together, as many on each host; 1: no such stage
  std::int64_t rank_steps = 0;         // of each way to train on ranks; 0: an epoch
  std::int64_t rank_transformers = 0;  // groups that a transformer pools there

  std::int64_t batches() const { return steps * rounds; }
};

/// How a file is written.
struct file_settings {
  bool dictionary;
  std::int64_t group_rows, page_bytes;  // of a row group, of a page

  bool operator==(file_settings const&) const = default;
};
/// What is tried in either order; the readers read the files of the first. A page is what zstd compresses at once: the more samples of a session
/// stand in a page in the order of inference, the less clustering gains.
inline constexpr file_settings tried_settings[] = {{false, 1 << 16, 1 << 20}, {true, 1 << 16, 1 << 20},  {false, 1 << 13, 1 << 20},
                                                   {true, 1 << 13, 1 << 20},  {false, 1 << 16, 1 << 16}, {false, 1 << 16, 8 << 20}};
inline constexpr auto const &small_pages = tried_settings[4], &large_pages = tried_settings[5];

/// A file of the log: how it is written, and how large it became.
struct stored_file {
  bool clustered;
  file_settings settings;
  std::int64_t bytes;

  double times_larger(stored_file const& than) const { return static_cast<double>(bytes) / static_cast<double>(than.bytes); }
};

/// What repeats in a log, as the paper's Figures 3 and 4 have it.
struct repeat_figures {
  double samples_a_session = 0, samples_in_batch = 0;
  std::map<std::int64_t, std::int64_t> sessions, batch_sessions;  // how many have so many samples, of the log and of batches of 4,096
  std::vector<double> exact, partial;                             // of each feature: share of lists and of ids that come again, most first
  tessera::repeat_means means;
};

/// What a log store's shards compress, with messages spread by sample and by session.
struct log_store_result {
  std::int64_t open_sessions = 0, shards = 0;  // at once in a shard, about, where messages are spread by session
  double by_sample = 1, by_session = 1;        // how many times smaller messages become

  double gain() const { return by_session / by_sample; }
};
/// Sessions that are open at once in a shard, in either store that is tried.
inline constexpr std::int64_t tried_open_sessions[] = {16, 250};

struct storage_result {
  std::int64_t rows = 0, value_bytes = 0;
  repeat_figures repeats;
  std::vector<stored_file> files;
  std::vector<log_store_result> log_stores;              // of each of `tried_open_sessions`
  double entropy_bytes = 0, distinct_entropy_bytes = 0;  // estimates: ids one by one at their frequencies; those new in their session
  std::string inference, clustered;                      // the files that the next stages read
  std::string dealt_inference, dealt_clustered;          // the same with a row group for each rank, where there are several

  /// The smallest file of a side, among those with pages of 1 MiB or among all.
  stored_file const& best(bool is_clustered, bool of_all = true) const;
  stored_file const& like(file_settings const& settings, bool is_clustered) const;
  /// Both sides with the same settings.
  double ratio(file_settings const& settings) const;
  /// Both sides with the settings that are best for the clustered one, of those with pages of 1 MiB; and each at its own best of all.
  double ratio() const;
  double best_ratio() const;
};

/// An epoch of batches of one file.
struct reading_result {
  std::int64_t samples = 0, read_bytes = 0, sent_bytes = 0;
  std::uint64_t hash = 0;  // the same for the same samples, whatever their order and form
  double seconds = 0;
  tessera::reader_times times;

  double rate() const { return static_cast<double>(samples) / seconds; }
};
/// The ways to read, as the paper's Table 3 has them: the order of inference, the clustered file, and that with groups deduplicated.
inline constexpr std::size_t reading_ways = 3;
inline constexpr char const* reading_names[reading_ways] = {"baseline", "with cluster", "with IKJT"};
struct reader_result {
  reading_result remote[reading_ways], cached[reading_ways];

  double remote_ratio() const { return remote[2].rate() / remote[0].rate(); }
  double cached_ratio() const { return cached[2].rate() / cached[0].rate(); }
};

/// What ranks that train together read and send, all of them.
struct ranks_way {
  std::int64_t read_samples = 0, read_bytes = 0, batch_bytes = 0;  // of an epoch: from files, and as batches
  std::int64_t samples = 0, steps = 0;                             // that they trained
  std::map<std::string, std::int64_t> exchange, sums;  // bytes of messages to other ranks, by operation: of tables, of the dense net
  std::int64_t exchange_between_hosts = 0;             // bytes; hosts are of neighbouring ranks
  std::vector<double> losses;                          // of each step, of all ranks' samples

  std::int64_t exchange_bytes() const;
};
struct ranks_result {
  std::size_t groups = 0;  // of sequences
  ranks_way ways[reading_ways];
};

/// What steps go through; where rows are shared, each distinct one once.
struct amounts {
  double sequence_ids = 0;                 // of sequences that a transformer pools
  double products = 0;                     // multiplications of these transformers: linear in a sequence's length, and quadratic
  double bag_ids = 0, bag_vectors = 0;     // of the other features: ids, and a vector a sample, shared or not
  double sequence_rows = 0, bag_rows = 0;  // of tables, that a batch updates

  amounts& operator+=(amounts const& other);
};

/// What a first step on the largest batch takes at once: inputs and activations.
struct memory_peak {
  double bytes = 0;
  amounts ids;  // of that batch
};

/// One way to train: so many samples, each once.
struct training_result {
  std::string name;
  std::int64_t batch = 0, samples = 0;
  std::vector<double> step_seconds;  // of each timed step of all rounds
  std::vector<double> losses;        // of each step of the first round, the one that is not timed first
  memory_peak peak;
  amounts work, expanded;      // of all batches: as they are, and were every row a sample's
  tessera::model_times times;  // of all timed steps

  /// Seconds of all steps, were each as long as their median.
  double seconds() const;
  double rate() const { return static_cast<double>(samples) / seconds(); }
  /// Samples a second of the slowest and of the fastest step.
  double slowest() const;
  double fastest() const;
  /// Seconds of each stage of `seconds()`.
  tessera::model_times stages() const;
  /// Seconds of what is no stage of its own: loss, and the update of dense parameters.
  double rest() const;
};

/// What sharing can gain: the share of the time that does less, and how many times less.
struct sharing {
  double share = 0, factor = 1;

  double bound() const { return 1 / (1 - share + share / factor); }
};

/// The ways to train on one set.
struct trainer_result {
  std::string set;
  std::size_t groups = 0, transformers = 0;  // of sequences; those that a transformer pools
  double table_bytes = 0;                    // of all tables with their optimizers, which no peak has in it
  std::vector<training_result> ways;         // the first is that without deduplication, in the order of inference
  std::size_t recommended_groups = 0;        // of a set without repeats
  double predicted_bytes = 0;                // peak of the way "+ O7", from steps of the baseline

  /// Steps of the same way in another round go to those before.
  training_result const& add(training_result way);
  training_result const& of(std::string const& name) const;
  training_result const* find(std::string const& name) const;  // or none
  training_result const& baseline() const { return ways.front(); }
  /// Of throughputs. Where a way has samples of its own, the baseline's time is scaled to them, stage by stage.
  double ratio(std::string const& name) const;
  /// Of a way that pools distinct rows, by the baseline's time of each stage and what either way's stage goes through.
  sharing expected(std::string const& name) const;
  /// Shows that these ways, which train on the same batches, have the same losses at the first steps.
  /// @throws tessera::error incompatible, naming the step.
  void check_losses(std::vector<std::string> const& names) const;
};
constexpr double loss_tolerance = 1e-5;    // relative
constexpr std::size_t compared_steps = 2;  // forward, update, forward; from there on what merged sums round otherwise grows

/// Of the log that is fitted to the paper's, where 60,000 sessions are open at once.
repeat_figures fitted_repeats(tessera::host_exec const& exec, plan const& plan);
storage_result store(tessera::host_exec const& exec, plan const& plan);
/// @throws tessera::error incompatible where the two sides deliver other samples.
reader_result read(tessera::host_exec const& exec, plan const& plan, storage_result const& stored);
/// The RM1-like set, from its files, with a transformer on each group of sequences; and with a transformer on some, in two ways.
trainer_result train_rm1(tessera::host_exec const& exec, plan const& plan, storage_result const& stored);
std::vector<trainer_result> train_with_fewer(tessera::host_exec const& exec, plan const& plan, storage_result const& stored);
/// Others, made in memory, whose sequences are pooled by sum.
trainer_result train_set(tessera::host_exec const& exec, plan const& plan, std::string const& name,
                         tessera::session_clicks_options options);
#ifdef TESSERA_RECD_DNNL
/// Whether oneDNN has such products for this processor.
bool has_bf16(tessera::host_exec const& exec);
/// With products of factors rounded to bf16, as GPUs train.
trainer_result train_set_by_bf16(tessera::host_exec const& exec, plan const& plan, std::string const& name,
                                 tessera::session_clicks_options options);
#endif
trainer_result train_without_repeats(tessera::host_exec const& exec, plan const& plan);
/// The set of the log, from its files, on ranks that are threads of this process. Each reads and trains its part of every batch.
/// @throws tessera::error incompatible where losses of the clustered file differ with deduplication.
ranks_result train_on_ranks(tessera::host_exec const& exec, plan const& plan, storage_result const& stored);

/// A set's log of about `rows` samples, of sessions that are all open at once.
tessera::session_clicks_options log_options(plan const& plan, tessera::session_clicks_options options, std::int64_t rows);
/// Every eleventh feature of `paper_sessions`: 5 groups of 4 sequences, 40 features of users, 7 of items.
tessera::session_clicks_options fitted_sessions();
/// The log that is stored, read and trained on as RM1-like.
tessera::session_clicks_options stored_set(plan const& plan);

}  // namespace recd
