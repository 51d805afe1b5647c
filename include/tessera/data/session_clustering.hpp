// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <arrow/memory_pool.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/external_sort.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/data/session_order.hpp>
#include <tessera/data/session_sampling.hpp>
#include <tessera/files/atomic_file.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/json.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `cluster_by_session`.
struct session_clustering_options {
  std::int64_t memory_bytes = std::int64_t{1} << 30;  ///< the most taken at once; a block of the source must fit into a quarter of it;
                                                      ///< a row group gets an eighth
  std::string work_folder = {};                       ///< for sorted runs; none: the output's name + ".work"
  std::int64_t most_runs = 64;                        ///< the most sorted runs that are merged at once, at least 2
  bool whole_sessions = false;                        ///< a full row group grows to the end of its session, to twice its size at most
  sample_selection selection = {};                    ///< which samples are kept
  parquet_writer_options output = {};                 ///< row_group_bytes: an eighth of the memory at most
  session_order_options order = {};                   ///< how the order of source and output is measured
};

/// What `cluster_by_session` did.
struct clustered_sessions {
  parquet_written output;
  std::int64_t rows_read = 0;     ///< of the source, in this call
  std::int64_t runs = 0;          ///< files that were sorted in memory, in this call
  std::int64_t merges = 0;        ///< of runs into one, the last among them, in this call
  bool resumed = false;           ///< whether the call used what a killed one left
  session_order before, after;    ///< of some blocks of the source and of the output, by `session_order_of`
  std::int64_t source_bytes = 0;  ///< of the source's files; 0 where it does not say
};

namespace detail {

inline constexpr char const* clustering_format = "tessera session clustering 1";

// Files of a sort that is under way, in a folder that other files may share.
class clustering_work {
 public:
  struct run {
    std::string file;
    std::int64_t level = 0;  // merges behind it
    std::uint32_t fingerprint = 0;
  };
  struct progress {
    std::int64_t blocks = 0;         // of the source, which runs have
    std::int64_t largest_block = 0;  // in bytes
    std::int64_t next = 0;           // number of the next run
    std::vector<run> runs;           // in the order of the source
  };

  /// `is_ours`: whether the folder goes too, as one does that is made here.
  clustering_work(std::string folder, bool is_ours, nlohmann::json task)
      : folder_(std::move(folder)), is_ours_(is_ours || !std::filesystem::exists(folder_)), task_(std::move(task)), lock_(open(folder_)) {
    if (!lock_.lock()) throw_io_error("another process sorts in this folder", folder_, "locked");
  }
  clustering_work(clustering_work const&) = delete;
  /// After an exception or at the end nothing of ours stays.
  ~clustering_work() {
    progress_.runs.clear();
    remove_others();
    std::error_code ignored;
    std::filesystem::remove(path(progress_file), ignored);
    if (is_ours_) std::filesystem::remove(folder_, ignored);  // where it is empty
  }

  std::string path(std::string const& file) const { return folder_ + "/" + file; }
  progress& state() noexcept { return progress_; }
  std::string new_name(char const* ending = ".parquet") { return "run-" + std::to_string(progress_.next++) + ending; }

  /// Removes what a killed process has left.
  void clear() noexcept {
    progress_ = {};
    remove_others();
  }

  /// Takes up what a killed process has left; false where that is nothing, or of another task. Removes what is of no use.
  bool resume(sample_schema const& schema, arrow::MemoryPool* pool) {
    bool const found = load(schema, pool);
    if (!found) progress_ = {};
    remove_others();
    return found;
  }

  /// From here on a killed process resumes with what there is; files that are no longer of use go.
  void save() const {
    auto runs = nlohmann::json::array();
    for (auto const& r : progress_.runs) runs.push_back({{"file", r.file}, {"level", r.level}, {"fingerprint", r.fingerprint}});
    nlohmann::json const text{{"format", clustering_format}, {"task", task_},
                              {"blocks", progress_.blocks},  {"largest_block", progress_.largest_block},
                              {"next", progress_.next},      {"runs", runs}};
    staged_file staged(path(progress_file));
    write_json(staged.path(), text);
    staged.commit();
    remove_others();
  }

 private:
  static constexpr char const* progress_file = "progress.json";

  static folder_handle open(std::string const& folder) {
    make_folders(folder);
    folder_handle handle(folder);
    if (!handle.is_open()) throw_io_error("cannot open folder", folder, errno);
    return handle;
  }

  bool load(sample_schema const& schema, arrow::MemoryPool* pool) {
    if (!std::filesystem::exists(path(progress_file))) return false;
    try {
      auto const text = read_json(path(progress_file));
      if (json_string(text, "format", path(progress_file)) != clustering_format) return false;
      if (json_object(text, "task", path(progress_file)) != task_) return false;
      progress_ = {};
      progress_.blocks = json_integer(text, "blocks", path(progress_file));
      progress_.largest_block = json_integer(text, "largest_block", path(progress_file));
      progress_.next = json_integer(text, "next", path(progress_file));
      parquet_log_options options;
      options.pool = pool;
      for (auto const& r : json_array(text, "runs", path(progress_file))) {
        run one{json_string(r, "file", path(progress_file)), json_integer(r, "level", path(progress_file)), 0};
        one.fingerprint = parquet_log({path(one.file)}, schema, options).fingerprint();
        if (one.fingerprint != json_integer(r, "fingerprint", path(progress_file))) return false;
        progress_.runs.push_back(std::move(one));
      }
      return true;
    } catch (error const&) {
      return false;  // of no use, then
    }
  }

  // Files with our names that the progress does not tell of.
  void remove_others() const noexcept {
    std::error_code ignored;
    for (auto const& file : entries_of(folder_, "run-")) {
      auto const name = std::filesystem::path(file).filename().string();
      bool const is_used = std::any_of(progress_.runs.begin(), progress_.runs.end(), [&](run const& r) { return r.file == name; });
      if ((name.ends_with(".parquet") || name.ends_with(".arrow")) && !is_used) std::filesystem::remove(file, ignored);
    }
    remove_leftover_files(folder_);
  }

  std::string folder_;
  bool is_ours_;
  nlohmann::json task_;
  folder_handle lock_;
  progress progress_;
};

inline nlohmann::json clustering_task(sample_schema const& schema, std::uint32_t fingerprint, std::int64_t rows,
                                      session_clustering_options const& options) {
  return {{"fingerprint", fingerprint},
          {"rows", rows},
          {"label", schema.label},
          {"dense", schema.dense},
          {"sparse", schema.sparse},
          {"session", schema.session},
          {"time", schema.time},
          {"weight", schema.weight},
          {"other_labels", schema.other_labels},
          {"single", schema.single},
          {"memory_bytes", options.memory_bytes},
          {"most_runs", options.most_runs},
          {"rate", options.selection.rate},
          {"by_session", options.selection.key == sample_key::session},
          {"seed", options.selection.seed.value}};
}

inline session_clustering_options checked_options(std::string const& path, session_clustering_options options) {
  validate(options.selection);
  if (options.memory_bytes < 1 || options.most_runs < 2)
    throw error(errc::invalid_argument, "cluster_by_session: options",
                {{"file", path}, {"memory_bytes", options.memory_bytes}, {"most_runs", options.most_runs}});
  if (options.output.pool == nullptr) options.output.pool = arrow::system_memory_pool();
  return options;
}

template <class Source>
class session_clusterer {
 public:
  session_clusterer(host_exec const& exec, Source const& source, std::string path, session_clustering_options const& options)
      : exec_(exec),
        source_(source),
        schema_(source.schema()),
        path_(std::move(path)),
        options_(options),
        sizes_(share_out(options.memory_bytes, options.most_runs, columns(schema_))),
        work_(options.work_folder.empty() ? path_ + ".work" : options.work_folder, options.work_folder.empty(),
              clustering_task(schema_, fingerprint(source), source.rows(), options)),
        held_(schema_) {}

  clustered_sessions run() {
    if constexpr (requires { source_.file_bytes(); }) result_.source_bytes = source_.file_bytes();
    result_.before = session_order_of(exec_, source_, options_.order);
    sort();
    parquet_log_options options;
    options.pool = options_.output.pool;
    result_.after = session_order_of(exec_, parquet_log({path_}, schema_, options), options_.order);
    return result_;
  }

 private:
  void sort() {
    if (fingerprint(source_) == 0)
      work_.clear();
    else
      result_.resumed = work_.resume(schema_, options_.output.pool);
    make_runs();
    auto& runs = work_.state().runs;
    if (runs.empty()) {  // all fits into memory
      write_held(path_, output_options(), options_.whole_sessions);
      return;
    }
    if (!held_.empty()) end_run();
    while (static_cast<std::int64_t>(runs.size()) > sizes_.fan_in) merge_some();
    merge(0, runs.size(), path_, output_options(), options_.whole_sessions);
  }

  // 0: the source cannot be told from others.
  static std::uint32_t fingerprint(Source const& source) {
    if constexpr (fingerprinted_source<Source>) return source.fingerprint();
    return 0;
  }
  static std::int64_t columns(sample_schema const& schema) noexcept {
    return 4 + static_cast<std::int64_t>(schema.dense.size() + schema.sparse.size() + schema.other_labels.size());
  }

  parquet_writer_options output_options() const {
    auto options = options_.output;
    options.row_group_bytes = std::min(options.row_group_bytes, sizes_.output_bytes / (options_.whole_sessions ? 2 : 1));
    return options;
  }
  parquet_writer_options run_options() const {
    parquet_writer_options options;
    options.row_group_rows = std::int64_t{1} << 30;
    options.row_group_bytes = sizes_.block_bytes;
    options.zstd_level = 1;
    options.pool = options_.output.pool;
    return options;
  }

  // Reads the source from where the runs end. What is held at the end becomes a run only where there are others.
  void make_runs() {
    auto& state = work_.state();
    for (auto block = state.blocks; block < source_.block_count(); ++block) {
      if (!held_.empty() && held_.bytes() + state.largest_block > sizes_.held_bytes) {
        state.blocks = block;
        end_run();
      }
      sample_columns samples(schema_);
      source_.read(exec_, block, samples);
      result_.rows_read += samples.size();
      state.largest_block = std::max(state.largest_block, held_samples::held_bytes(samples));
      held_.add(options_.selection.rate < 1 ? selected(samples, source_.first_row(block)) : std::move(samples));
    }
    state.blocks = source_.block_count();
  }

  sample_columns selected(sample_columns const& samples, std::int64_t first_row) const {
    auto const view = samples.view();
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < view.size(); ++i)
      if (options_.selection.keeps(view.sessions[i], first_row + i)) rows.push_back(i);
    sample_columns result(schema_);
    result.append(exec_, view, rows);
    return result;
  }

  parquet_written write_held(std::string const& path, parquet_writer_options const& options, bool whole_sessions) {
    sorted_output out(path, schema_, options, whole_sessions);
    held_.write_sorted(exec_, out, sizes_.block_bytes / 2);
    held_.clear();
    return result_.output = out.finish();
  }

  void end_run() {
    auto const file = work_.new_name();
    write_held(work_.path(file), run_options(), false);
    work_.state().runs.push_back(run_of(file, 0));
    ++result_.runs;
    work_.save();
  }

  clustering_work::run run_of(std::string const& file, std::int64_t level) const {
    parquet_log_options options;
    options.pool = options_.output.pool;
    return {file, level, parquet_log({work_.path(file)}, schema_, options).fingerprint()};
  }

  void merge(std::size_t first, std::size_t count, std::string const& path, parquet_writer_options const& options, bool whole_sessions) {
    std::vector<std::string> paths;
    for (auto i = first; i < first + count; ++i) paths.push_back(work_.path(work_.state().runs[i].file));
    run_merge sorted(exec_, paths, schema_, options_.output.pool);
    sorted_output out(path, schema_, options, whole_sessions);
    sorted.write(exec_, out, sizes_.block_bytes / 2);
    result_.output = out.finish();
    ++result_.merges;
  }

  // Merges neighbours of the lowest level, as many as there are and as may be, but no more than are too many.
  void merge_some() {
    auto& runs = work_.state().runs;
    auto const by_level = [](clustering_work::run const& a, clustering_work::run const& b) { return a.level < b.level; };
    auto const lowest = std::min_element(runs.begin(), runs.end(), by_level)->level;
    auto const is_lowest = [&](clustering_work::run const& r) { return r.level == lowest; };
    auto const first = std::find_if(runs.begin(), runs.end(), is_lowest);
    auto const too_many = static_cast<std::int64_t>(runs.size()) - sizes_.fan_in + 1;
    auto const together = std::find_if_not(first, runs.end(), is_lowest) - first;
    auto const count = std::min({std::int64_t{together}, too_many, sizes_.fan_in});
    if (count < 2) {
      ++first->level;  // alone: as if it were merged
      return;
    }
    auto const file = work_.new_name();
    merge(static_cast<std::size_t>(first - runs.begin()), static_cast<std::size_t>(count), work_.path(file), run_options(), false);
    *first = run_of(file, lowest + 1);
    runs.erase(first + 1, first + count);
    work_.save();
  }

  host_exec exec_;
  Source const& source_;
  sample_schema schema_;
  std::string path_;
  session_clustering_options const& options_;
  sort_memory sizes_;
  clustering_work work_;
  held_samples held_;
  clustered_sessions result_;
};

}  // namespace detail

/// Writes the samples of a data set as one Parquet file, sorted by session, within a session by time. Samples that are equal in both, or
/// that have no time, keep their order. Sessions of all times mix, so a job that trains in the order of time clusters each partition by
/// itself.
///
/// The file has what the schema names, as `parquet_writer` stores it. The overload for Parquet files keeps all columns and types.
///
/// Memory is bounded. The source is sorted in runs, which lie in the work folder; runs are merged, in several passes where there are many.
/// `memory_bytes` counts what comes from `exec`'s memory and from `output.pool`. Without a pool, Arrow takes the system's heap, which gives
/// back what is not used. The output appears whole or not at all, with the same bytes on any number of threads.
///
/// After an exception no run stays in the work folder, except where another process sorts there. After a kill, the next call with the same
/// source, options and folder continues behind the last finished run and comes to the same bytes. A call with others begins anew. So does a
/// call whose source has no fingerprint, or the fingerprint 0.
///
/// The result says what was gained: bytes, and the order of a few blocks of source and output. Source: Zhao et al., "RecD", MLSys 2023,
/// section 4.1, "Clustering by session"; section 7 for the selection.
///
/// @throws what the source, `session_order_of` and `parquet_writer` throw. tessera::error io_error when another process sorts in the work
/// folder. invalid_argument for a schema without a session and for options out of their range.
template <sample_source Source>
clustered_sessions cluster_by_session(host_exec const& exec, Source const& source, std::string const& path,
                                      session_clustering_options const& options = {}) {
  if (source.schema().session.empty())
    throw error(errc::invalid_argument, "cluster_by_session: the schema has no session", {{"file", path}});
  auto const valid = detail::checked_options(path, options);
  return detail::session_clusterer<Source>(exec, source, path, valid).run();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
