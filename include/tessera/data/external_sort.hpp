// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <arrow/memory_pool.h>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/data/sample_columns.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// How an external sort shares out its memory.
struct sort_memory {
  std::int64_t held_bytes = 0;    // samples that are sorted at once, and what sorting takes
  std::int64_t fan_in = 2;        // runs that are merged at once,
  std::int64_t block_bytes = 0;   // each of which has one block of so many bytes in memory
  std::int64_t output_bytes = 0;  // values of a row group that is being written
};

inline constexpr std::int64_t bytes_to_sort = 2 * static_cast<std::int64_t>(sizeof(std::int64_t) + sizeof(sample_place));  // a sample

inline sort_memory share_out(std::int64_t memory_bytes, std::int64_t most_runs, std::int64_t columns) noexcept {
  // Smaller column chunks would be more headers than values.
  auto const least_block = std::max(std::int64_t{1} << 18, columns << 13);
  sort_memory sizes;
  sizes.held_bytes = memory_bytes / 2;
  sizes.fan_in = std::clamp<std::int64_t>(memory_bytes / 4 / least_block, 2, most_runs);
  sizes.block_bytes = std::max<std::int64_t>(memory_bytes / 4 / sizes.fan_in, 1);
  sizes.output_bytes = std::max<std::int64_t>(memory_bytes / 8, 1);
  return sizes;
}

// Where samples go in the order of sessions: into a file, whose row groups may have to end where sessions do.
class sorted_output {
 public:
  /// `whole_sessions`: a row group that is full ends with its session, but does not become twice as large for that.
  sorted_output(std::string const& path, sample_schema const& schema, parquet_writer_options options, bool whole_sessions)
      : full_rows_(options.row_group_rows),
        full_bytes_(options.row_group_bytes),
        whole_sessions_(whole_sessions),
        chunk_(schema),
        writer_(path, schema, unlimited(std::move(options), whole_sessions)) {}

  /// Appends samples of several sources. In which parts they come does not matter to the row groups.
  void write(host_exec const& exec, vector_view<sample_columns_view const> from, vector_view<sample_place const> places) {
    std::int64_t first = 0;
    for (std::int64_t i = 0; whole_sessions_ && i < places.size(); ++i) {
      auto const& source = from[places[i].source];
      auto const session = source.sessions[places[i].row];
      auto const bytes = bytes_of(source, places[i].row);
      bool const is_full = rows_ >= full_rows_ || bytes_ >= full_bytes_;
      bool const is_twice_full = rows_ / 2 >= full_rows_ || (bytes_ + bytes) / 2 >= full_bytes_;
      if (rows_ > 0 && (is_twice_full || (is_full && session != session_))) {
        write_part(exec, from, places.slice(first, i - first));
        writer_.end_row_group();
        first = i;
        rows_ = bytes_ = 0;
      }
      session_ = session;
      ++rows_;
      bytes_ += bytes;
    }
    write_part(exec, from, places.slice(first, places.size() - first));
  }

  parquet_written finish() { return writer_.finish(); }

 private:
  static parquet_writer_options unlimited(parquet_writer_options options, bool whole_sessions) {
    if (whole_sessions) options.row_group_rows = options.row_group_bytes = std::numeric_limits<std::int64_t>::max();
    return options;
  }

  std::int64_t bytes_of(sample_columns_view const& samples, std::int64_t row) const noexcept {
    auto bytes = 4 * (1 + samples.dense.rows() + samples.other_labels.rows() + (samples.weights.empty() ? 0 : 1)) + 8 +
                 (samples.times.empty() ? 0 : 8);
    for (auto const& rows : samples.sparse) bytes += 8 * rows.length(row);
    return bytes;
  }

  void write_part(host_exec const& exec, vector_view<sample_columns_view const> from, vector_view<sample_place const> places) {
    if (places.empty()) return;
    chunk_.clear();
    chunk_.append(exec, from, places);
    writer_.write(exec, chunk_.view());
  }

  std::int64_t full_rows_, full_bytes_;
  bool whole_sessions_;
  std::int64_t session_ = 0;           // of the last sample
  std::int64_t rows_ = 0, bytes_ = 0;  // of the row group, where it has to end with a session
  sample_columns chunk_;
  parquet_writer writer_;
};

// Samples that are sorted in memory: blocks as they were read.
class held_samples {
 public:
  explicit held_samples(sample_schema const& schema) : has_times_(!schema.time.empty()) {}

  bool empty() const noexcept { return rows_ == 0; }
  std::int64_t rows() const noexcept { return rows_; }
  /// With what sorting them takes.
  std::int64_t bytes() const noexcept { return bytes_; }

  void add(sample_columns samples) {
    if (samples.size() == 0) return;
    rows_ += samples.size();
    bytes_ += held_bytes(samples);
    blocks_.push_back(std::move(samples));
  }
  static std::int64_t held_bytes(sample_columns const& samples) noexcept {
    return static_cast<std::int64_t>(samples.bytes()) + samples.size() * bytes_to_sort;
  }
  void clear() noexcept {
    blocks_.clear();
    rows_ = bytes_ = 0;
  }

  /// Writes all by session, then time, then as they came; so many bytes at once.
  void write_sorted(host_exec const& exec, sorted_output& out, std::int64_t bytes_at_once) const {
    buffer<std::int64_t> keys(exec, rows_);
    buffer<sample_place> places(exec, rows_);
    std::vector<sample_columns_view> views;
    std::int64_t next = 0;
    for (auto const& block : blocks_) {
      views.push_back(block.view());
      for (std::int64_t row = 0; row < block.size(); ++row) places[next++] = {static_cast<std::int64_t>(views.size()) - 1, row};
    }
    if (has_times_) sort(exec, keys, places, [&](sample_place at) { return views[static_cast<std::size_t>(at.source)].times[at.row]; });
    sort(exec, keys, places, [&](sample_place at) { return views[static_cast<std::size_t>(at.source)].sessions[at.row]; });

    auto const rows_at_once =
        std::max<std::int64_t>(bytes_at_once / std::max<std::int64_t>(bytes_ / std::max<std::int64_t>(rows_, 1), 1), 1);
    for (std::int64_t first = 0; first < rows_; first += rows_at_once)
      out.write(exec, views, std::as_const(places).view().slice(first, std::min(rows_at_once, rows_ - first)));
  }

 private:
  template <class Key>
  static void sort(host_exec const& exec, buffer<std::int64_t>& keys, buffer<sample_place>& places, Key const& key) {
    for (std::int64_t i = 0; i < keys.size(); ++i) keys[i] = key(places[i]);
    radix_sort_pairs(exec, keys.view(), places.view());
  }

  bool has_times_;
  std::vector<sample_columns> blocks_;
  std::int64_t rows_ = 0, bytes_ = 0;
};

// Merges sorted files into one; of equal samples those of the earlier file come first. Each has one block in memory.
class run_merge {
 public:
  run_merge(host_exec const& exec, std::vector<std::string> const& paths, sample_schema const& schema, arrow::MemoryPool* pool) {
    parquet_log_options options;
    options.pool = pool;
    for (auto const& path : paths) cursors_.emplace_back(parquet_log({path}, schema, options), schema);
    views_.resize(cursors_.size());
    for (std::size_t c = 0; c < cursors_.size(); ++c)
      if (next_block(exec, c)) order_.push_back(c);
    std::make_heap(order_.begin(), order_.end(), is_later{*this});
  }

  void write(host_exec const& exec, sorted_output& out, std::int64_t bytes_at_once) {
    std::vector<sample_place> places;
    std::int64_t bytes = 0;
    auto const flush = [&] {
      out.write(exec, views_, places);
      places.clear();
      bytes = 0;
    };
    while (!order_.empty()) {
      std::pop_heap(order_.begin(), order_.end(), is_later{*this});
      auto const c = order_.back();
      auto& cursor = cursors_[c];
      order_.pop_back();
      bool is_at_end = false;
      do {  // as long as its samples are next
        places.push_back({static_cast<std::int64_t>(c), cursor.row});
        bytes += cursor.row_bytes;
        is_at_end = ++cursor.row == cursor.samples.size();
      } while (!is_at_end && bytes < bytes_at_once && (order_.empty() || key_of(c) < key_of(order_.front())));
      if (is_at_end || bytes >= bytes_at_once) flush();
      if (is_at_end && !next_block(exec, c)) continue;
      order_.push_back(c);
      std::push_heap(order_.begin(), order_.end(), is_later{*this});
    }
    if (!places.empty()) flush();
  }

 private:
  struct cursor_state {
    cursor_state(parquet_log opened, sample_schema const& schema) : log(std::move(opened)), samples(schema) {}

    parquet_log log;
    sample_columns samples;
    std::int64_t next = 0;  // block
    std::int64_t row = 0;
    std::int64_t row_bytes = 0;  // in the mean
  };
  using sort_key = std::tuple<std::int64_t, std::int64_t, std::size_t>;
  struct is_later {  // puts the next sample's cursor in front of a heap
    run_merge const& merge;
    bool operator()(std::size_t a, std::size_t b) const noexcept { return merge.key_of(b) < merge.key_of(a); }
  };

  sort_key key_of(std::size_t c) const noexcept {
    auto const row = cursors_[c].row;
    return {views_[c].sessions[row], views_[c].times.empty() ? 0 : views_[c].times[row], c};
  }
  bool next_block(host_exec const& exec, std::size_t c) {
    auto& cursor = cursors_[c];
    if (cursor.next == cursor.log.block_count()) return false;
    cursor.log.read(exec, cursor.next++, cursor.samples);
    views_[c] = cursor.samples.view();
    cursor.row = 0;
    cursor.row_bytes = std::max<std::int64_t>(static_cast<std::int64_t>(cursor.samples.bytes()) / cursor.samples.size(), 1);
    return true;
  }

  std::vector<cursor_state> cursors_;
  std::vector<sample_columns_view> views_;  // of the cursors' blocks
  std::vector<std::size_t> order_;          // a heap of cursors, the next sample's first
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
